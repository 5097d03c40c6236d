package provider

import "time"

// window counts the calls of the last windowBuckets × bucketTime.
type window struct {
	Buckets []bucket `json:"buckets,omitempty"` // ascending by time
}

type bucket struct {
	Start int64 `json:"start"` // in units of bucketTime since 1970
	counts
}

// counts are what calls came to at an endpoint.
type counts struct {
	OK          int64 `json:"ok,omitzero"`
	Failed      int64 `json:"failed,omitzero"`
	Limited     int64 `json:"limited,omitzero"`
	Connections int64 `json:"connections,omitzero"`
}

func (c *counts) add(o counts) {
	c.OK, c.Failed, c.Limited, c.Connections = c.OK+o.OK, c.Failed+o.Failed, c.Limited+o.Limited, c.Connections+o.Connections
}

// judged is how many calls tell of the endpoint.
func (c *counts) judged() int64 { return c.OK + c.Failed }

// rate is the part of the calls that tell of the endpoint which failed.
func (c *counts) rate() float64 {
	if c.Failed == 0 {
		return 0
	}
	return float64(c.Failed) / float64(c.judged())
}

func place(now time.Time) int64 { return now.UnixNano() / int64(bucketTime) }

func (w *window) add(now time.Time, c counts) {
	w.expire(now)
	if n := len(w.Buckets); n == 0 || w.Buckets[n-1].Start < place(now) {
		w.Buckets = append(w.Buckets, bucket{Start: place(now)})
	}
	w.Buckets[len(w.Buckets)-1].add(c)
}

// expire drops what is too old.
func (w *window) expire(now time.Time) {
	for len(w.Buckets) > 0 && w.Buckets[0].Start <= place(now)-windowBuckets {
		w.Buckets = w.Buckets[1:]
	}
}

func (w *window) sum(now time.Time) (sum counts) {
	w.expire(now)
	for i := range w.Buckets {
		sum.add(w.Buckets[i].counts)
	}
	return sum
}
