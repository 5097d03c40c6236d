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

// fetchCall asks for values of secrets, as of minRevision or later.
type fetchCall struct {
	Items       []fetchItem `json:"items"`
	MinRevision uint64      `json:"min_revision,omitzero"`
}

type fetchItem struct {
	Path         string `json:"path"`
	HaveRevision uint64 `json:"have_revision,omitzero"`
}

// fetchAnswer is the state of secrets as of Revision, or later.
type fetchAnswer struct {
	Revision uint64        `json:"revision"`
	Items    []fetchedItem `json:"items"`
	date     time.Time     // by the service's clock, whole seconds; zero: it did not say
}

// What an item of a fetch can be.
const (
	statusOK          = "ok"
	statusUnchanged   = "unchanged"
	statusNotFound    = "not_found"
	statusDenied      = "denied"
	statusDisabled    = "disabled"
	statusUnavailable = "unavailable"
)

type fetchedItem struct {
	Path         string            `json:"path"`
	Status       string            `json:"status"`
	SecretID     string            `json:"secret_id"`
	Provider     string            `json:"provider"`
	Revision     uint64            `json:"revision"`
	Metadata     map[string]string `json:"metadata"`
	FreshUntil   time.Time         `json:"fresh_until"`
	LeaseEnd     time.Time         `json:"lease_end"`
	RetryAfterMS int64             `json:"retry_after_ms"`
	Versions     []fetchedVersion  `json:"versions"`
}

type fetchedVersion struct {
	Version uint32 `json:"version"`
	Weight  int    `json:"weight"`
	Value   Value  `json:"value"`
}

// answered takes the answer's headers.
func (a *fetchAnswer) answered(h http.Header) {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		a.date = at
	}
}

// wipe clears the values that nobody has taken over.
func (a *fetchAnswer) wipe() {
	for i := range a.Items {
		a.Items[i].wipe()
	}
}

func (i *fetchedItem) wipe() {
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
func (i *fetchedItem) spans(date time.Time) (fresh, lease time.Duration) {
	now := date.Add(dateGrain)
	if date.IsZero() {
		now = time.Now()
	}
	return i.FreshUntil.Sub(now), i.LeaseEnd.Sub(now)
}

// reportItem is what came of uses of a version since the last report.
type reportItem struct {
	SecretID   string `json:"secret_id"`
	Version    uint32 `json:"version"`
	OK         uint64 `json:"ok"`
	Credential uint64 `json:"credential"`
	Quota      uint64 `json:"quota"`
	RateLimit  uint64 `json:"rate_limit"`
	Transient  uint64 `json:"transient"`
}

func (c *Client) fetchSecretValues(ctx context.Context, in *fetchCall) (*fetchAnswer, error) {
	return invoke[fetchAnswer](ctx, c, call{method: http.MethodPost, path: []string{"v1", "secret-values", "fetch"}, in: in, prepares: true})
}

func (c *Client) reportSecretOutcomes(ctx context.Context, items []reportItem) error {
	in := struct {
		Items []reportItem `json:"items"`
	}{items}
	_, err := invoke[struct{}](ctx, c, call{method: http.MethodPost, path: []string{"v1", "secret-values", "report"}, in: in, prepares: true})
	return err
}
