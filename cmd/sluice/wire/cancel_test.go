package wire_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// A query whose context ended while its rows were read could return rows of
// another (database/sql, CVE-2025-47907). Readers of several tenants who leave
// at any moment never see a row of each other's, and the database serves on.
func TestReadersWhoLeaveSeeNoOtherTenantsRows(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *site{"SQLite": sqliteSite, "PostgreSQL": postgresSite} {
		t.Run(name, func(t *testing.T) {
			s, stop := open(t).serve(t)
			defer stop()
			v := &village{Service: s}
			const tenants, keys, readersOfEach, rounds = 3, 5, 3, 150
			var read, left atomic.Int64
			var readers sync.WaitGroup
			for i := range tenants {
				name := fmt.Sprintf("tenant-%d", i)
				id, credential := v.tenant(t, name)
				for k := range keys {
					v.make(t, credential, "/v1/keys", object{"name": fmt.Sprintf("%s/key-%d", name, k), "spec": "AES_256"})
				}
				for range readersOfEach {
					readers.Go(func() {
						// Lists are not cached. The time that is left for one follows
						// how long they take here, so that some end in the midst.
						patience := 2 * time.Millisecond
						for range rounds {
							ctx, cancel := context.WithTimeout(context.Background(), rand.N(2*patience))
							list, _, err := s.App.Store.ListKeys(ctx, uuid.MustParse(id), "", kms.Page{Size: 100})
							cancel()
							if err != nil {
								left.Add(1)
								patience += patience / 4
								continue
							}
							read.Add(1)
							patience -= patience / 5
							if len(list) != keys {
								t.Errorf("%s has %d keys", name, len(list))
							}
							for _, k := range list {
								if k.Tenant.Name != name || !strings.HasPrefix(k.Name, name+"/") {
									t.Errorf("%s was shown the key %s of %s", name, k.Name, k.Tenant.Name)
								}
							}
						}
					})
				}
			}
			readers.Wait()
			t.Logf("%d lists were read, %d readers left before", read.Load(), left.Load())
			if read.Load() < 20 || left.Load() < 20 {
				t.Errorf("%d lists were read, %d readers left: this test cancels nothing", read.Load(), left.Load())
			}
			v.make(t, v.Operator, "/v1/tenants", object{"name": "afterwards"})
		})
	}
}
