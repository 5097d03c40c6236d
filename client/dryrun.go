package client

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

// DryRun is what the methods of a Client from WithDryRun return as their error
// when the call would have been carried out: there is no output, since nothing
// was done. errors.AsType finds it.
type DryRun struct {
	Cost      float64 // credits that the call would have cost
	RequestID string
	// Protection of the key that would have been used or made; "" where none is.
	Protection Protection
	// Refused is how many items of a batch would be refused; they cost nothing.
	Refused int
}

// Error says that nothing was done, and the price.
func (d *DryRun) Error() string {
	text := fmt.Sprintf("dry run: nothing was done; it would cost %s credits", strconv.FormatFloat(d.Cost, 'f', -1, 64))
	if d.Refused > 0 {
		text += fmt.Sprintf(", and %d items would be refused", d.Refused)
	}
	return text
}

// WithDryRun returns a Client whose calls only ask: the service checks
// permission, arguments, limits and price, does nothing and charges nothing.
// What would have succeeded returns a *DryRun as its error; what would have
// been refused is refused. It is for calls that use a key or change something;
// others give ErrInvalidArgument. It shares the connections.
func (c *Client) WithDryRun() *Client {
	with := *c
	with.dryRun = true
	return &with
}

// dryRunAnswer is the answer to a call that only asks.
type dryRunAnswer struct {
	DryRun     bool       `json:"dry_run"`
	Cost       float64    `json:"cost"`
	RequestID  string     `json:"request_id"`
	Protection Protection `json:"protection"`
	Results    []struct {
		Status int `json:"status"`
	} `json:"results"` // of a batch
}

// asking turns a call into one that only asks.
func (k call) asking() (call, error) {
	if k.method == http.MethodGet || k.prepares {
		return k, invalid("a dry run is for calls that use a key or change something")
	}
	query := maps.Clone(k.query)
	if query == nil {
		query = url.Values{}
	}
	query.Set("dry_run", "true")
	k.query = query
	return k, nil
}

// result is the error of a call that only asked.
func (a *dryRunAnswer) result() error {
	if !a.DryRun {
		return fmt.Errorf("%w: it is none to a dry run; the call may have been carried out", ErrBadAnswer)
	}
	dry := &DryRun{Cost: a.Cost, RequestID: a.RequestID, Protection: a.Protection}
	for _, r := range a.Results {
		if r.Status != http.StatusOK {
			dry.Refused++
		}
	}
	return dry
}
