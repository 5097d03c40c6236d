package client

import (
	"context"
	"net/http"
	"time"
)

// RequestReport tells what became of a request, and why it took as long as it
// did.
type RequestReport struct {
	Request   string    `json:"request"`
	Tenant    string    `json:"tenant"`
	EndedAt   time.Time `json:"ended_at"`
	Operation string    `json:"operation"`
	Key       string    `json:"key,omitzero"` // id; "": it acted on none
	Outcome   string    `json:"outcome"`      // "ok", or a Code

	Summary string `json:"summary"` // what took how long, in a sentence
	// Reasons are why it was refused and what it waited for, the longest first;
	// the waits add up to QueueMS.
	Reasons []ReasonReport `json:"reasons"`

	QueueMS    float64 `json:"queue_ms"`
	HSMMS      float64 `json:"hsm_ms"`
	TotalMS    float64 `json:"total_ms"`
	EstimateMS float64 `json:"estimate_ms,omitzero"` // the wait that was expected
	Node       string  `json:"node,omitzero"`        // that ran it last
	Attempts   int     `json:"attempts,omitzero"`    // nodes tried
	Away       bool    `json:"away,omitzero"`        // not on the node preferred
	Aged       bool    `json:"aged,omitzero"`        // by the lane of those who have waited long
	ColdLoad   bool    `json:"cold_load,omitzero"`   // the key had to be loaded first
	Class      string  `json:"class,omitzero"`       // "HIGH", "MID" or "LOW"
	Urgency    string  `json:"urgency"`

	Reserved      float64 `json:"reserved"` // credits
	Charged       float64 `json:"charged"`
	PolicyVersion uint64  `json:"policy_version"`
	Charge
}

// ReasonReport is a reason with what it means.
type ReasonReport struct {
	Code        string  `json:"code"`
	Unit        string  `json:"unit,omitzero"` // of the numbers
	Limit       int64   `json:"limit,omitzero"`
	Need        int64   `json:"need,omitzero"`
	Have        int64   `json:"have,omitzero"`
	RetryMS     int64   `json:"retry_ms,omitzero"`
	WaitMS      float64 `json:"wait_ms,omitzero"` // 0: it refused
	Share       float64 `json:"share,omitzero"`   // of the whole wait, 0 to 1
	Explanation string  `json:"explanation,omitzero"`
	Advice      string  `json:"advice,omitzero"`
}

// Why reports what became of a request of the last minutes, by the id that its
// answer or its Error has. An operator's credential may ask about any.
func (c *Client) Why(ctx context.Context, request string) (*RequestReport, error) {
	return invoke[RequestReport](ctx, c, call{method: http.MethodGet, path: []string{"v1", "requests", request, "why"}})
}
