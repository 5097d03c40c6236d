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
	w := NewFailing()
	for i := range decryptLine + 1 {
		w.Note(failed(7, noon.Add(time.Duration(i)*time.Second)))
	}
	w.Note(failed(8, noon))
	last := noon.Add(decryptLine * time.Second)
	if list := w.Keys.More(last, decryptLine); len(list) != 1 || list[0].Object != tenantID(7) || list[0].Times != decryptLine+1 {
		t.Errorf("failing are %+v", list)
	}
	if list := w.Keys.More(last.Add(time.Minute), 0); len(list) != 0 || len(w.Keys.all) != 0 {
		t.Errorf("after a minute there are %+v", list)
	}
}

// A flood of keys that fail once does not hide the one that fails always, and
// does not grow what is kept.
func TestFloodOfKeysHidesNone(t *testing.T) {
	w := NewFailing()
	for i := range 20_000 {
		w.Note(failed(100+i, noon))
		if i%100 == 0 {
			w.Note(failed(7, noon))
		}
	}
	if len(w.Keys.all) > maxFailing {
		t.Errorf("%d keys are kept", len(w.Keys.all))
	}
	list := w.Keys.More(noon, decryptLine)
	if len(list) == 0 || list[0].Object != tenantID(7) {
		t.Errorf("the first of %d is %+v", len(list), list)
	}
}

// Denials count by credential: whole requests, and what a fetch may not have of
// what it asks for.
func TestDenialsCountByCredential(t *testing.T) {
	w := NewFailing()
	denied := func(credential, items int, err error) {
		r := ran(1, noon, time.Millisecond, time.Millisecond)
		r.By.Credential, r.Denied = tenantID(credential), items
		w.Note(r, err)
	}
	for range deniedLine {
		denied(1, 0, kms.ErrPermissionDenied)
		denied(2, 0, kms.ErrNotFound)
	}
	denied(1, 3, nil)
	denied(3, deniedLine, nil)
	if list := w.Credentials.More(noon, deniedLine); len(list) != 1 || list[0].Object != tenantID(1) || list[0].Times != deniedLine+3 {
		t.Errorf("denied are %+v", list)
	}
}
