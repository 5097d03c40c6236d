package api

import (
	"bytes"
	"encoding/json/jsontext"
)

// BatchItem is one operation of a batch as JSON: the body of the operation's
// own route, with op and key. What is wrong in it is the item's own problem.
type BatchItem []byte

// UnmarshalJSONFrom copies a value.
func (i *BatchItem) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	*i = bytes.Clone(raw)
	return nil
}

// MarshalJSONTo writes the value.
func (i BatchItem) MarshalJSONTo(e *jsontext.Encoder) error { return e.WriteValue(jsontext.Value(i)) }

// BatchRequest is the body of batch.
type BatchRequest struct {
	Items []BatchItem `json:"items" api:"required" doc:"1 at least. Each has op, key unless the operation needs none, and the fields of the operation's own route" maxlen:"MaxBatch"`
}

// BatchOutcome is the answer that an item's own route would have given.
type BatchOutcome []byte

// MarshalJSONTo writes the answer.
func (o BatchOutcome) MarshalJSONTo(e *jsontext.Encoder) error {
	return e.WriteValue(jsontext.Value(o))
}

// UnmarshalJSONFrom copies an answer.
func (o *BatchOutcome) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return (*BatchItem)(o).UnmarshalJSONFrom(d)
}

// BatchResult is what became of an item: a result or a problem.
type BatchResult struct {
	Status     int          `json:"status" doc:"The HTTP status that the operation's own route would have answered with" min:"200" max:"599"`
	Result     BatchOutcome `json:"result,omitempty" doc:"What that route answers; absent when there is a problem"`
	Problem    *Problem     `json:"problem,omitempty" doc:"The problem that route would have answered with"`
	RetryAfter uint32       `json:"retry_after,omitzero" doc:"Seconds after which a retry of the item can succeed: what Retry-After would have said"`
}

// BatchResponse is the answer of batch.
type BatchResponse struct {
	Results []BatchResult `json:"results" doc:"In the order of the items"`
	DryRun  bool          `json:"dry_run,omitzero" doc:"Nothing was done: the results say what each item would cost, and cost is their sum"`
	Charge
}
