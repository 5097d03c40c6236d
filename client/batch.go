package client

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"time"
)

// Bounds of a batch.
const (
	MaxBatch      = 500     // items
	MaxBatchBytes = 1 << 20 // of the request's JSON
)

// BatchItem is one operation of a batch.
type BatchItem struct {
	// Op names the operation: "encrypt", "decrypt", "reencrypt", "sign",
	// "verify", "mac", "verify-mac", "datakey", "datakey/wrapped", "wrap",
	// "unwrap", "shared-secret", "derive", "encapsulate", "decapsulate", "csr",
	// "random" or "digest".
	Op string
	// Key is the key's id, name or alias; "" for random and digest.
	Key string
	// Input is that of the operation's own method, such as an EncryptInput, or
	// anything with the same JSON; nil is none.
	Input any
}

// MarshalJSONTo writes the item: the input's fields with op and key.
func (i BatchItem) MarshalJSONTo(e *jsontext.Encoder) error {
	input := jsontext.Value("{}")
	if i.Input != nil {
		var err error
		if input, err = json.Marshal(i.Input); err != nil {
			return err
		}
	}
	if input.Kind() != jsontext.KindBeginObject {
		return invalid("the input of an item must be an object")
	}
	item, err := json.Marshal(struct {
		Op  string `json:"op"`
		Key string `json:"key,omitzero"`
	}{i.Op, i.Key})
	if err != nil {
		return err
	}
	if len(input) > len("{}") {
		item[len(item)-1] = ','
		item = append(item, input[1:]...)
	}
	return e.WriteValue(item)
}

// BatchOutput is the output of Batch.
type BatchOutput struct {
	// Results are in the order of the items.
	Results []BatchResult `json:"results"`
	DryRun  bool          `json:"dry_run,omitzero"`
	Charge
}

// BatchResult is what became of an item.
type BatchResult struct {
	Status int `json:"status"` // the HTTP status that a call of its own would have had
	// Result is the JSON of what the operation's own method returns; nil when
	// there is a problem. See Into.
	Result jsontext.Value `json:"result,omitempty"`
	// Problem is the JSON of the refusal, nil when there is none. See Err.
	Problem jsontext.Value `json:"problem,omitempty"`
	// RetryAfter counts seconds; 0 when none is given.
	RetryAfter uint32 `json:"retry_after,omitzero"`
}

// Err returns the *Error of an item that was refused, nil of one that was not.
func (r *BatchResult) Err() error {
	if r.Problem == nil && r.Status == http.StatusOK {
		return nil
	}
	e := &Error{Status: r.Status, RetryAfter: time.Duration(r.RetryAfter) * time.Second}
	if !e.read(r.Problem) {
		e.Title = http.StatusText(r.Status)
	}
	return e
}

// Into decodes the result into the output of the operation's own method, such as
// an EncryptOutput, or returns Err.
func (r *BatchResult) Into(out any) error {
	if err := r.Err(); err != nil {
		return err
	}
	if json.Unmarshal(r.Result, out) != nil {
		// The decoder's error is not kept: it can quote the result.
		return fmt.Errorf("%w: a result is none of its operation", ErrBadAnswer)
	}
	return nil
}

// Batch runs 1 to MaxBatch operations in one call. Each is a call of its own in
// all but the way: it is authorised, priced and recorded by itself, and its
// problem is in its result and touches no other. The error is of the call as a
// whole. The items run in parallel and in no order.
func (c *Client) Batch(ctx context.Context, items []BatchItem) (*BatchOutput, error) {
	if len(items) < 1 || len(items) > MaxBatch {
		return nil, invalid("a batch has 1 to %d items", MaxBatch)
	}
	out, err := invoke[BatchOutput](ctx, c, call{method: http.MethodPost, path: []string{"v1", "batch"},
		in: struct {
			Items []BatchItem `json:"items"`
		}{items}})
	if err == nil && len(out.Results) != len(items) {
		return nil, fmt.Errorf("%w: %d items have %d results", ErrBadAnswer, len(items), len(out.Results))
	}
	return out, err
}
