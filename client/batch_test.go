package client_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/client"
)

// TestEveryItemHasItsResultOrItsError decodes results in their places; a
// refused item is the error that its own call would have returned.
func TestEveryItemHasItsResultOrItsError(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"results":[{"status":200,"result":{"mac":"aGk=","version":3}},
{"status":429,"problem":{"code":"quota_exceeded","detail":"too fast","request_id":"r-2","reasons":[{"code":"TENANT_RATE","retry_ms":1500}]},"retry_after":2},
{"status":200,"result":7},{"status":500}],"cost":1.5,"request_id":"r-0"}`))
	})
	items := []client.BatchItem{{Op: "mac", Key: "k", Input: client.MACInput{Message: []byte("a")}}, {Op: "sign", Key: "k"}, {Op: "random"}, {Op: "random"}}
	out, err := c.Batch(t.Context(), items)
	if err != nil || out.Cost != 1.5 || out.RequestID != "r-0" {
		t.Fatal(out, err)
	}
	var mac client.MACOutput
	if err := out.Results[0].Into(&mac); err != nil || string(mac.MAC) != "hi" || mac.Version != 3 || out.Results[0].Err() != nil {
		t.Errorf("the first is %+v, %v", mac, err)
	}
	err = out.Results[1].Into(&mac)
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrQuotaExceeded) || e.Status != 429 || e.RetryAfter != 2*time.Second || e.RequestID != "r-2" || len(e.Reasons) != 1 || e.Reasons[0].RetryIn != 1500*time.Millisecond {
		t.Errorf("the second is %+v", err)
	}
	if err := out.Results[2].Into(&mac); !errors.Is(err, client.ErrBadAnswer) {
		t.Errorf("a result of another kind: %v", err)
	}
	if e, ok := errors.AsType[*client.Error](out.Results[3].Err()); !ok || e.Title != "Internal Server Error" {
		t.Errorf("a status without a problem: %v", e)
	}
	if _, err := c.Batch(t.Context(), items[:3]); !errors.Is(err, client.ErrBadAnswer) {
		t.Errorf("more results than items: %v", err)
	}
}

func TestBatchThatCannotSucceedIsNotSent(t *testing.T) {
	c := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	for name, items := range map[string][]client.BatchItem{
		"none": nil, "too many": make([]client.BatchItem, client.MaxBatch+1), "an input that is no object": {{Op: "random", Input: 7}},
		"op twice": {{Op: "random", Input: map[string]any{"op": "x"}}}, "not UTF-8": {{Op: "random", Key: "\xff"}},
	} {
		if _, err := c.Batch(t.Context(), items); !errors.Is(err, client.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDryRunOfABatchCountsItsRefusals: the price alone would hide them.
func TestDryRunOfABatchCountsItsRefusals(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"results":[{"status":200},{"status":404},{"status":403}],"dry_run":true,"cost":12,"request_id":"r-1"}`))
	}).WithDryRun()
	_, err := c.Batch(t.Context(), make([]client.BatchItem, 3))
	if dry, ok := errors.AsType[*client.DryRun](err); !ok || dry.Cost != 12 || dry.Refused != 2 {
		t.Errorf("%v", err)
	}
}
