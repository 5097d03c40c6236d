package plot

import (
	"errors"
	"fmt"
)

// Bars compares values side by side, each with its label, from top to bottom.
type Bars struct {
	Title string
	// Axis says what the values are, with their unit.
	Axis string
	Log  bool
	Bars []Bar
	// Line, when not 0, is a value that all are held against, LineLabel its
	// name.
	Line      float64
	LineLabel string
}

// Bar is one value. Ours is drawn in the first colour.
type Bar struct {
	Label string
	Value float64
	Ours  bool
	// Note is written behind the value.
	Note string
}

const (
	barHeight = 22
	barGap    = 8
	barLabels = 210 // pixels for the labels
	barValues = 150 // pixels for the values
	barTop    = 60
)

// SVG draws the chart.
func (b *Bars) SVG() ([]byte, error) {
	if len(b.Bars) == 0 {
		return nil, errors.New("plot: no bars")
	}
	var values []float64
	description := b.Axis + ":"
	for _, bar := range b.Bars {
		values = append(values, bar.Value)
		description += fmt.Sprintf(" %s %s;", bar.Label, number(bar.Value))
	}
	if b.Line != 0 {
		values = append(values, b.Line)
	}
	x, err := newAxis(b.Log, values, barLabels, width-barValues)
	if err != nil {
		return nil, err
	}
	bottom := float64(barTop + len(b.Bars)*(barHeight+barGap))
	c := newCanvas(int(bottom)+48, b.Title, description)
	for _, tick := range x.ticks {
		c.line(x.at(tick), barTop-4, x.at(tick), bottom, grid)
		c.text(x.at(tick), bottom+16, "middle", number(tick), "")
	}
	c.text((x.from+x.to)/2, bottom+36, "middle", b.Axis, "")
	for i, bar := range b.Bars {
		y := float64(barTop + i*(barHeight+barGap))
		colour := colours[1]
		if bar.Ours {
			colour = colours[0]
		}
		c.text(barLabels-8, y+barHeight*0.7, "end", bar.Label, "")
		c.box(x.from, y, max(1, x.at(bar.Value)-x.from), barHeight, colour)
		c.text(x.at(bar.Value)+6, y+barHeight*0.7, "start", number(bar.Value)+bar.Note, "")
	}
	if b.Line != 0 {
		c.line(x.at(b.Line), barTop-10, x.at(b.Line), bottom, ink)
		c.text(x.at(b.Line)+4, barTop-10, "start", b.LineLabel+" "+number(b.Line), "")
	}
	return c.end(), nil
}
