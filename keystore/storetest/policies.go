package storetest

import (
	"crypto/sha256"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func samplePolicy(version uint64, document string) *kms.PolicyVersion {
	return &kms.PolicyVersion{Version: version, Document: []byte(document), Digest: sha256.Sum256([]byte(document)),
		Comment: "more for " + strconv.FormatUint(version, 10), Created: start, By: uuid.NewV7()}
}

// policy stores a version after the newest.
func (e *env) policy(t testing.TB, document string) *kms.PolicyVersion {
	t.Helper()
	newest, err := e.NewestPolicy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := samplePolicy(newest+1, document)
	if err := e.PutPolicy(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func testPolicies(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()

	t.Run("NoneAtTheBeginning", func(t *testing.T) {
		if n, err := e.NewestPolicy(ctx); n != 0 || err != nil {
			t.Errorf("NewestPolicy = %d, %v", n, err)
		}
		for _, version := range []uint64{0, 1, 1 << 63} {
			if _, err := e.Policy(ctx, version); err != kms.ErrNotFound {
				t.Errorf("Policy(%d): %v", version, err)
			}
		}
		if list, next, err := e.ListPolicies(ctx, kms.Page{Size: 1}); len(list) != 0 || next != "" || err != nil {
			t.Errorf("ListPolicies = %v, %q, %v", list, next, err)
		}
	})
	t.Run("ReadBackAsItWasStored", func(t *testing.T) {
		longest := samplePolicy(1, strings.Repeat("x", kms.MaxPolicyDocument))
		longest.Comment = strings.Repeat("y", kms.MaxPolicyComment)
		second := samplePolicy(2, `{"second":true}`)
		second.Comment = ""
		for _, want := range []*kms.PolicyVersion{longest, second} {
			if err := e.PutPolicy(ctx, want); err != nil {
				t.Fatal(err)
			}
			again := newEnv(t, e.driver)
			if n, err := again.NewestPolicy(ctx); n != want.Version || err != nil {
				t.Errorf("NewestPolicy = %d, %v; want %d", n, err, want.Version)
			}
			if got, err := again.Policy(ctx, want.Version); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("version %d is read back as another one, %v", want.Version, err)
			}
			listed, _, err := again.ListPolicies(ctx, kms.Page{Size: 1})
			short := *want
			short.Document = nil
			if err != nil || len(listed) != 1 || !reflect.DeepEqual(listed[0], &short) {
				t.Errorf("listed as %+v, %v; want %+v", listed, err, short)
			}
		}
	})
	t.Run("OnlyAfterTheNewest", func(t *testing.T) {
		for _, version := range []uint64{1, 2, 4, 1<<63 - 1} {
			wantKind(t, "a version that is not the next", e.PutPolicy(ctx, samplePolicy(version, "{}")), kms.KindPreconditionFailed)
		}
	})
	t.Run("OneOfManyIsFirst", func(t *testing.T) {
		other := newEnv(t, e.driver)
		var done, refused atomic.Int32
		var group sync.WaitGroup
		for i := range 8 {
			store, p := []*env{e, other}[i%2], samplePolicy(3, strconv.Itoa(i))
			group.Go(func() {
				switch err := store.PutPolicy(ctx, p); {
				case err == nil:
					done.Add(1)
				case kms.KindOf(err) == kms.KindPreconditionFailed:
					refused.Add(1)
				}
			})
		}
		group.Wait()
		if done.Load() != 1 || refused.Load() != 7 {
			t.Errorf("%d stored and %d refused, want 1 and 7", done.Load(), refused.Load())
		}
	})
	t.Run("ListHasTheNewestFirst", func(t *testing.T) {
		fresh := newEnv(t, open(t))
		var want []string
		for i := range 12 {
			fresh.policy(t, strconv.Itoa(i))
			want = append([]string{strconv.Itoa(i + 1)}, want...)
		}
		for _, size := range []int{1, 5, 12, 100} {
			checkPages(t, size, want, func(p kms.Page) ([]string, string, error) {
				list, next, err := fresh.ListPolicies(ctx, p)
				return namesOf(list, func(p *kms.PolicyVersion) string { return strconv.FormatUint(p.Version, 10) }), next, err
			})
		}
	})
	t.Run("UnusableVersionsAreRefused", func(t *testing.T) {
		for name, spoil := range map[string]func(*kms.PolicyVersion){
			"no version":     func(p *kms.PolicyVersion) { p.Version = 0 },
			"a huge version": func(p *kms.PolicyVersion) { p.Version = 1 << 63 },
			"no document":    func(p *kms.PolicyVersion) { p.Document, p.Digest = nil, sha256.Sum256(nil) },
			"a long document": func(p *kms.PolicyVersion) {
				p.Document = make([]byte, kms.MaxPolicyDocument+1)
				p.Digest = sha256.Sum256(p.Document)
			},
			"another digest": func(p *kms.PolicyVersion) { p.Digest[0]++ },
			"a long comment": func(p *kms.PolicyVersion) { p.Comment = strings.Repeat("y", kms.MaxPolicyComment+1) },
			"no text":        func(p *kms.PolicyVersion) { p.Comment = "\xff" },
			"no date":        func(p *kms.PolicyVersion) { p.Created = time.Time{} },
			"nobody":         func(p *kms.PolicyVersion) { p.By = uuid.Nil() },
		} {
			p := samplePolicy(4, "{}")
			spoil(p)
			wantKind(t, name, e.PutPolicy(ctx, p), kms.KindInvalidArgument)
		}
	})
	t.Run("ADamagedNewestVersionIsNotPassedOver", func(t *testing.T) {
		fresh := newEnv(t, open(t))
		fresh.policy(t, "1")
		newest := fresh.policy(t, "2")
		fresh.driver.(Damager).Damage(t, Damage{Table: "policies", Column: "document", Value: []byte("3"), Key: "version", KeyValue: int64(2)})
		if n, err := fresh.NewestPolicy(ctx); n != newest.Version || err != nil {
			t.Errorf("NewestPolicy = %d, %v; want that the version is named", n, err)
		}
		_, err := fresh.Policy(ctx, newest.Version)
		wantRefused(t, "a changed document", err, false)
		// It is repaired by the next one.
		fresh.policy(t, "3")
	})
}
