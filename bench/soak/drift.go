package main

import (
	"fmt"
	"slices"
	"time"
)

// gauge is what must not grow.
type gauge struct {
	name string
	unit string
	// allowed is growth after the warm-up that is no drift: caches that fill,
	// and what the garbage collector has not come to.
	allowed float64
	// part of the middle value that is allowed too.
	part float64
}

// The gauges, in the order of reading.
var gauges = []gauge{
	{"resident memory", "MiB", 32, 0.10},
	{"live heap", "MiB", 8, 0.10},
	{"goroutines", "", 32, 0.10},
	{"file handles", "", 16, 0.10},
}

// reading is all gauges at a time.
type reading struct {
	at     time.Duration
	values []float64
}

// slope is the median of the slopes between all pairs of readings, per second
// (Theil and Sen). Of fewer than two it is 0.
func slope(readings []reading, gauge int) float64 {
	var all []float64
	for i := range readings {
		for k := i + 1; k < len(readings); k++ {
			if d := (readings[k].at - readings[i].at).Seconds(); d > 0 {
				all = append(all, (readings[k].values[gauge]-readings[i].values[gauge])/d)
			}
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// drift is what a gauge did after the warm-up.
type drift struct {
	gauge
	middle, growth, limit float64
}

// afterWarmUp cuts the first third.
func afterWarmUp(readings []reading) []reading { return readings[len(readings)/3:] }

// drifts judges all gauges. There must be enough readings to judge by.
func drifts(readings []reading) ([]drift, error) {
	rest := afterWarmUp(readings)
	const enough = 8
	if len(rest) < enough {
		return nil, fmt.Errorf("%d readings after the warm-up are too few to see drift", len(rest))
	}
	span := (rest[len(rest)-1].at - rest[0].at).Seconds()
	var all []drift
	for i, g := range gauges {
		values := make([]float64, len(rest))
		for k := range rest {
			values[k] = rest[k].values[i]
		}
		slices.Sort(values)
		middle := values[len(values)/2]
		all = append(all, drift{gauge: g, middle: middle, growth: slope(rest, i) * span, limit: g.allowed + g.part*middle})
	}
	return all, nil
}

func (d *drift) grew() bool { return d.growth > d.limit }

func (d *drift) String() string {
	return fmt.Sprintf("%s: %.0f %s in the middle, %+.1f over the time after the warm-up, of which %.1f are allowed", d.name, d.middle, d.unit, d.growth, d.limit)
}
