package watch

import (
	"testing"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// failed is a request with a key that could not decrypt.
func failed(key int, at time.Time) (*kms.Ticket, error) {
	t := ran(1, at, time.Millisecond, time.Millisecond)
	t.Key = &kms.Key{ID: tenantID(key), Tenant: t.By.Tenant}
	return t, kms.ErrDecryptionFailed
}

func TestKeyThatFailsIsSeenForAMinute(t *testing.T) {
	w := NewKeys()
	for i := range decryptLine + 1 {
		w.Note(failed(7, noon.Add(time.Duration(i)*time.Second)))
	}
	w.Note(failed(8, noon))
	last := noon.Add(decryptLine * time.Second)
	if list := w.Failing(last, decryptLine); len(list) != 1 || list[0].Key != tenantID(7) || list[0].Failures != decryptLine+1 {
		t.Errorf("failing are %+v", list)
	}
	if list := w.Failing(last.Add(time.Minute), 0); len(list) != 0 || len(w.keys) != 0 {
		t.Errorf("after a minute there are %+v", list)
	}
}

// A flood of keys that fail once does not hide the one that fails always, and
// does not grow what is kept.
func TestFloodOfKeysHidesNone(t *testing.T) {
	w := NewKeys()
	for i := range 20_000 {
		w.Note(failed(100+i, noon))
		if i%100 == 0 {
			w.Note(failed(7, noon))
		}
	}
	if len(w.keys) > maxKeys {
		t.Errorf("%d keys are kept", len(w.keys))
	}
	list := w.Failing(noon, decryptLine)
	if len(list) == 0 || list[0].Key != tenantID(7) {
		t.Errorf("the first of %d is %+v", len(list), list)
	}
}
