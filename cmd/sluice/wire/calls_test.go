package wire_test

import (
	"maps"
	"testing"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// A key that is not loaded costs its node one opening of its blob and one
// unwrap, beside the operation; no handle is searched, no session opened.
func TestColdKeyCostsOneOpenAndOneUnwrap(t *testing.T) {
	p := newFaultyPool(t, 2)
	p.must(t, p.tenants[0], "/v1/keys", `{"name":"warm","spec":"AES_256"}`)
	for range 2 * engines { // the tenant's sealing key is loaded everywhere
		p.must(t, p.tenants[0], "/v1/keys", `{"spec":"AES_256"}`)
	}
	calls := func() map[fault.Function]uint64 {
		all := map[fault.Function]uint64{}
		for f := range fault.GenerateRandom {
			for _, m := range p.modules {
				all[f] += m.Calls(f)
			}
		}
		return all
	}
	took := func(f func()) map[fault.Function]uint64 {
		before := calls()
		f()
		after := calls()
		for function, n := range before {
			if after[function] -= n; after[function] == 0 {
				delete(after, function)
			}
		}
		return after
	}
	use := func() { p.must(t, p.tenants[0], "/v1/keys/warm/encrypt", `{"plaintext":"aGVsbG8="}`) }
	cold := took(use)
	want := map[fault.Function]uint64{
		fault.DecryptInit: 1, fault.Decrypt: 1, // opens the blob
		fault.UnwrapKey:   1,
		fault.EncryptInit: 1, fault.Encrypt: 1, // what was asked for
	}
	if !maps.Equal(cold, want) {
		t.Errorf("a cold key takes %v, want %v", cold, want)
	}
	warm := took(use)
	if want := map[fault.Function]uint64{fault.EncryptInit: 1, fault.Encrypt: 1}; !maps.Equal(warm, want) {
		t.Errorf("a warm key takes %v, want %v", warm, want)
	}
	for _, n := range p.app.Device.Status() {
		if n.State != kms.NodeUp {
			t.Errorf("node %s is %s", n.ID, n.State)
		}
	}
}
