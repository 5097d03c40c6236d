package plot

import (
	"errors"
	"fmt"
	"strings"
)

// Lines shows how values go over an axis, a line for each series.
type Lines struct {
	Title        string
	XAxis, YAxis string // what they are, with their units
	LogX, LogY   bool
	Series       []Series
}

// MaxSeries is how many lines a chart can have: as many as there are colours.
const MaxSeries = 8

// Series is one line. X and Y have the same length, X ascends.
type Series struct {
	Name string
	X, Y []float64
}

const (
	linesHeight = 360
	linesLeft   = 70
	linesRight  = 200 // pixels for the legend
	linesTop    = 44
	linesBottom = 52
)

// SVG draws the chart.
func (l *Lines) SVG() ([]byte, error) {
	var xs, ys []float64
	if len(l.Series) == 0 || len(l.Series) > MaxSeries {
		return nil, fmt.Errorf("plot: %d series; give 1 to %d", len(l.Series), MaxSeries)
	}
	for _, s := range l.Series {
		if len(s.X) == 0 || len(s.X) != len(s.Y) {
			return nil, fmt.Errorf("plot: the series %q has %d and %d values", s.Name, len(s.X), len(s.Y))
		}
		xs, ys = append(xs, s.X...), append(ys, s.Y...)
	}
	x, errX := newAxis(l.LogX, xs, linesLeft, width-linesRight)
	y, errY := newAxis(l.LogY, ys, linesHeight-linesBottom, linesTop)
	if err := errors.Join(errX, errY); err != nil {
		return nil, err
	}
	c := newCanvas(linesHeight, l.Title, l.YAxis+" over "+l.XAxis)
	for _, tick := range x.ticks {
		c.line(x.at(tick), y.from, x.at(tick), y.to, grid)
		c.text(x.at(tick), y.from+16, "middle", number(tick), "")
	}
	for _, tick := range y.ticks {
		c.line(x.from, y.at(tick), x.to, y.at(tick), grid)
		c.text(x.from-6, y.at(tick)+4, "end", number(tick), "")
	}
	c.text((x.from+x.to)/2, y.from+38, "middle", l.XAxis, "")
	middle := (y.from + y.to) / 2
	c.text(18, middle, "middle", l.YAxis, fmt.Sprintf(` transform="rotate(-90 18 %.1f)"`, middle))
	for i, s := range l.Series {
		var path strings.Builder
		for k := range s.X {
			fmt.Fprintf(&path, "%.1f,%.1f ", x.at(s.X[k]), y.at(s.Y[k]))
		}
		fmt.Fprintf(c, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", colours[i], strings.TrimSpace(path.String()))
		at := float64(linesTop + 8 + i*20)
		c.box(x.to+12, at, 14, 4, colours[i])
		c.text(x.to+32, at+6, "start", s.Name, "")
	}
	return c.end(), nil
}
