package client

import (
	"context"
	"net/http"
	"time"
)

// Bounds of the service.
const (
	maxFetchItems  = 100
	maxReportItems = 100
)

// What an item of a fetch can be.
const (
	statusOK        = "ok"
	statusUnchanged = "unchanged"
	statusNotFound  = "not_found"
	statusDenied    = "denied"
	statusDisabled  = "disabled"
)

// datedFetch is an answer with its time.
type datedFetch struct {
	FetchedSecrets
	date time.Time // by the service's clock, whole seconds; zero: it did not say
}

// answered takes the answer's headers.
func (a *datedFetch) answered(h http.Header) {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		a.date = at
	}
}

func (c *Client) fetchDated(ctx context.Context, in FetchSecretsInput) (*datedFetch, error) {
	return invoke[datedFetch](ctx, c, call{method: http.MethodPost, path: []string{"v1", "secret-values", "fetch"}, in: in})
}

// wipe clears the values that nobody has taken over.
func (a *datedFetch) wipe() {
	for i := range a.Items {
		a.Items[i].wipe()
	}
}

func (i *FetchedSecret) wipe() {
	for _, v := range i.Versions {
		v.Value.Wipe()
	}
}

// dateGrain is how far behind its clock an answer's Date may be.
const dateGrain = time.Second

// spans are for how long, from when the fetch was sent, an item is fresh and
// may be used at all. They are computed by the service's clock and then counted
// by the monotonic one of this machine, so that wrong and jumping clocks here
// do not matter.
func (i *FetchedSecret) spans(date time.Time) (fresh, lease time.Duration) {
	now := date.Add(dateGrain)
	if date.IsZero() {
		now = time.Now()
	}
	return i.FreshUntil.Sub(now), i.LeaseEnd.Sub(now)
}
