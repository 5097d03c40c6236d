package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

// chart is what both kinds are.
type chart interface{ SVG() ([]byte, error) }

func bars() *Bars {
	return &Bars{Title: "P99 <of> victims", Axis: "ms", Log: true, Line: 4, LineLabel: "alone", Bars: []Bar{
		{Label: "ours", Value: 5, Ours: true}, {Label: "FIFO & co", Value: 4000, Note: " ms"}}}
}

func lines() *Lines {
	return &Lines{Title: "t", XAxis: "x", YAxis: "y", LogY: true, Series: []Series{
		{Name: "a", X: []float64{0, 50, 99}, Y: []float64{1, 2, 30}}, {Name: "b", X: []float64{0, 99}, Y: []float64{0.5, 700}}}}
}

func TestChartsAreXMLAndTheSameEachTime(t *testing.T) {
	for name, c := range map[string]chart{"bars": bars(), "lines": lines()} {
		t.Run(name, func(t *testing.T) {
			first, err := c.SVG()
			if err != nil {
				t.Fatal(err)
			}
			second, _ := c.SVG()
			if !bytes.Equal(first, second) {
				t.Error("two drawings differ")
			}
			for d := xml.NewDecoder(bytes.NewReader(first)); ; {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestChartsShowEveryLabelAndValue(t *testing.T) {
	svg, err := bars().SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"P99 &lt;of&gt; victims", ">ours<", "FIFO &amp; co", ">5<", ">4000 ms<", ">alone 4<", ">ms<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("%q is not in the chart", want)
		}
	}
	if svg, err = lines().SVG(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(svg), "<polyline"); n != 2 {
		t.Errorf("%d lines", n)
	}
}

func TestAChartThatWouldShowNothingIsAnError(t *testing.T) {
	for name, c := range map[string]chart{
		"no bars":        &Bars{},
		"no series":      &Lines{},
		"empty series":   &Lines{Series: []Series{{Name: "a"}}},
		"unequal series": &Lines{Series: []Series{{Name: "a", X: []float64{1, 2}, Y: []float64{1}}}},
		"no number":      &Bars{Bars: []Bar{{Label: "a", Value: math.NaN()}}},
		"no end":         &Bars{Bars: []Bar{{Label: "a", Value: math.Inf(1)}}},
		"negative":       &Bars{Bars: []Bar{{Label: "a", Value: -1}}},
		"log of 0":       &Bars{Log: true, Bars: []Bar{{Label: "a"}}},
	} {
		if _, err := c.SVG(); err == nil {
			t.Errorf("%s: drawn", name)
		}
	}
}

func TestAxesHoldTheirValuesBetweenRoundTicks(t *testing.T) {
	for _, tt := range []struct {
		log    bool
		values []float64
		first  float64
		last   float64
	}{
		{false, []float64{3, 7}, 0, 7}, {false, []float64{0}, 0, 1}, {false, []float64{1000}, 0, 1000}, {false, []float64{97.3}, 0, 100},
		{true, []float64{3, 700}, 1, 1000}, {true, []float64{10}, 10, 100}, {true, []float64{0.02}, 0.01, 0.1},
	} {
		a, err := newAxis(tt.log, tt.values, 100, 500)
		if err != nil {
			t.Fatal(err)
		}
		first, last := a.ticks[0], a.ticks[len(a.ticks)-1]
		if math.Abs(first-tt.first) > 1e-9 || math.Abs(last-tt.last) > 1e-9 || len(a.ticks) > 12 {
			t.Errorf("%v: ticks %v, want %v to %v", tt.values, a.ticks, tt.first, tt.last)
		}
		for _, v := range tt.values {
			if at := a.at(v); at < 100-1e-9 || at > 500+1e-9 {
				t.Errorf("%v is at %v", v, at)
			}
		}
	}
}
