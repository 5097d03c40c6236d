package plot

import (
	"fmt"
	"math"
	"strconv"
)

// axis maps values to pixels, linearly or by their logarithm.
type axis struct {
	log      bool
	low, top float64 // of the values
	from, to float64 // pixels
	ticks    []float64
}

// axisTicks is how many intervals a linear axis has at least, about.
const axisTicks = 4

// newAxis makes an axis that holds all values. A linear one begins at 0, a
// logarithmic one at a power of ten.
func newAxis(log bool, values []float64, from, to float64) (*axis, error) {
	if len(values) == 0 {
		return nil, fmt.Errorf("plot: no values")
	}
	a := &axis{log: log, low: math.Inf(1), top: math.Inf(-1), from: from, to: to}
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || log && v == 0 {
			return nil, fmt.Errorf("plot: %v has no place on the axis", v)
		}
		a.low, a.top = min(a.low, v), max(a.top, v)
	}
	if log {
		a.decades()
	} else {
		a.steps()
	}
	return a, nil
}

func (a *axis) decades() {
	low, top := math.Floor(math.Log10(a.low)), math.Ceil(math.Log10(a.top))
	if top == low {
		top++
	}
	a.low, a.top = math.Pow(10, low), math.Pow(10, top)
	for e := low; e <= top; e++ {
		a.ticks = append(a.ticks, math.Pow(10, e))
	}
}

func (a *axis) steps() {
	a.low = 0
	if a.top == 0 {
		a.top = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(a.top)))
	for _, part := range []float64{1, 2, 5} {
		if a.top/(step/part) >= axisTicks {
			step /= part
			break
		}
	}
	n := math.Ceil(a.top/step - 1e-9)
	a.top = n * step
	for i := range int(n) + 1 {
		a.ticks = append(a.ticks, float64(i)*step)
	}
}

// at returns the pixel of a value.
func (a *axis) at(v float64) float64 {
	part := (v - a.low) / (a.top - a.low)
	if a.log {
		part = math.Log(v/a.low) / math.Log(a.top/a.low)
	}
	return a.from + part*(a.to-a.from)
}

// number writes a value with three digits that count.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if digits > 0 {
		for s[len(s)-1] == '0' {
			s = s[:len(s)-1]
		}
		if s[len(s)-1] == '.' {
			s = s[:len(s)-1]
		}
	}
	return s
}
