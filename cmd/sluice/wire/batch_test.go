package wire_test

import (
	"encoding/json/v2"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
	"uuid"

	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// batchResult is what became of an item.
type batchResult struct {
	Status  int            `json:"status"`
	Result  map[string]any `json:"result"`
	Problem map[string]any `json:"problem"`
	Retry   int            `json:"retry_after"`
}

// told is what an item is told, without what is another each time.
func (r *batchResult) told() map[string]any {
	fields := maps.Clone(r.Result)
	if fields == nil {
		fields = maps.Clone(r.Problem)
	}
	delete(fields, "request_id")
	fields["status"] = r.Status
	return fields
}

// requestID is the item's.
func (r *batchResult) requestID() string {
	for _, fields := range []map[string]any{r.Result, r.Problem} {
		if id, ok := fields["request_id"].(string); ok {
			return id
		}
	}
	return ""
}

// fataler is a test or one of rapid's.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// sendBatch sends items and returns their results and the batch's request id.
func sendBatch(t testing.TB, of fataler, s *wiretest.Service, credential string, items []object, query string) (id string, cost float64, results []batchResult) {
	of.Helper()
	body, err := json.Marshal(object{"items": items}, json.Deterministic(true))
	if err != nil {
		of.Fatalf("%v", err)
	}
	status, header, fields := raw(t, s, credential, http.MethodPost, "/v1/batch"+query, string(body))
	if status != http.StatusOK {
		of.Fatalf("batch: %d %v", status, fields)
	}
	again, err := json.Marshal(fields["results"])
	if err == nil {
		err = json.Unmarshal(again, &results)
	}
	if err != nil || len(results) != len(items) {
		of.Fatalf("%d items have %d results: %v", len(items), len(results), err)
	}
	return header.Get("X-Request-Id"), fields["cost"].(float64), results
}

// batcher makes a tenant whose keys may be sealed, and a credential that may use
// them and read the usage.
func (v *village) batcher(t *testing.T, name string) (id, credential string) {
	t.Helper()
	id = v.make(t, v.Operator, "/v1/tenants", object{"name": name, "tier": "platinum", "force": true, "allow_sealed": true}).ID
	return id, v.make(t, v.Operator, "/v1/tenants/"+name+"/credentials",
		object{"name": "app", "scopes": []string{"key:*", "usage:read"}}).Credential
}

// determined makes items whose results follow from them alone, right ones and
// every kind of wrong one.
func determined(t *testing.T, v *village, token string) []object {
	for name, spec := range map[string]object{"aes": {"spec": "AES_256"}, "sm4": {"spec": "SM4"}, "hmac": {"spec": "HMAC_256"}, "p256": {"spec": "ECC_NIST_P256"},
		"sm2": {"spec": "SM2"}, "wrapper": {"spec": "AES_256", "usage": "WRAP_UNWRAP"}, "deriver": {"spec": "HMAC_256", "usage": "DERIVE"}} {
		spec["name"] = name
		v.make(t, token, "/v1/keys", spec)
	}
	var items []object
	for i := range 6 {
		text := []byte(strings.Repeat(fmt.Sprintf("value-%d;", i), 1+i*i*20))
		sealed := v.make(t, token, "/v1/keys/aes/encrypt", object{"plaintext": text}).Ciphertext
		other := v.make(t, token, "/v1/keys/sm4/encrypt", object{"plaintext": text, "aad": []byte{byte(i)}}).Ciphertext
		signed := v.make(t, token, "/v1/keys/p256/sign", object{"message": text}).Signature
		bySM2 := v.make(t, token, "/v1/keys/sm2/sign", object{"message": text}).Signature
		items = append(items,
			object{"op": "decrypt", "key": "aes", "ciphertext": sealed},
			object{"op": "decrypt", "key": "sm4", "ciphertext": other, "aad": []byte{byte(i)}},
			object{"op": "decrypt", "key": "sm4", "ciphertext": other, "aad": []byte{byte(i + 1)}},
			object{"op": "decrypt", "key": "sm4", "ciphertext": sealed},
			object{"op": "verify", "key": "p256", "message": text, "signature": signed},
			object{"op": "verify", "key": "sm2", "message": text, "signature": bySM2},
			object{"op": "verify", "key": "p256", "message": append(text, 'x'), "signature": signed},
			object{"op": "mac", "key": "hmac", "message": text},
			object{"op": "verify-mac", "key": "hmac", "message": text, "mac": make([]byte, 32)},
			object{"op": "derive", "key": "deriver", "context": text[:8], "bytes": 16 + i},
			object{"op": "digest", "algorithm": "SM3", "data": text},
			object{"op": "mac", "key": fmt.Sprintf("missing-%d", i), "message": text},
			object{"op": "sign", "key": "aes", "message": text},
			object{"op": "mac", "key": "hmac", "message": 7},
			object{"op": fmt.Sprintf("unknown-%d", i)},
		)
	}
	return items
}

// TestItemDependsOnItselfOnly (R8): on the whole service, what an item is told
// is what it is told alone, whatever stands before, behind and beside it, in
// whatever order, and however often.
func TestItemDependsOnItselfOnly(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	v := &village{Service: s}
	_, token := v.batcher(t, "batches")
	pool := determined(t, v, token)
	alone := make([]map[string]any, len(pool))
	for i, item := range pool {
		_, _, results := sendBatch(t, t, s, token, []object{item}, "")
		alone[i] = results[0].told()
	}
	rapid.Check(t, func(r *rapid.T) {
		places := rapid.SliceOfN(rapid.IntRange(0, len(pool)-1), 1, 120).Draw(r, "places")
		items := make([]object, len(places))
		for i, place := range places {
			items[i] = pool[place]
		}
		_, _, results := sendBatch(t, r, s, token, items, "")
		for i, place := range places {
			if got := results[i].told(); !reflect.DeepEqual(got, alone[place]) {
				r.Fatalf("item %d, %v: %v, alone %v", i, items[i], got, alone[place])
			}
		}
	})
}

// TestEncryptedItemsAreTheirOwn: what items encrypted, signed and made is of
// their own inputs, and no two of them are the same.
func TestEncryptedItemsAreTheirOwn(t *testing.T) {
	s := service(t)
	for _, spec := range []string{"AES_256", "SM4"} {
		key := must(t, s, "/v1/keys", object{"spec": spec}).ID
		var sealing, opening []object
		for i := range 300 {
			sealing = append(sealing, object{"op": "encrypt", "key": key, "plaintext": fmt.Appendf(nil, "plaintext %d", i)})
		}
		_, _, sealed := sendBatch(t, t, s, s.Demo, sealing, "")
		seen := map[any]bool{}
		for _, r := range sealed {
			if seen[r.Result["ciphertext"]] {
				t.Fatalf("two items have one ciphertext: %v", r)
			}
			seen[r.Result["ciphertext"]] = true
			opening = append(opening, object{"op": "decrypt", "key": key, "ciphertext": r.Result["ciphertext"]})
		}
		_, _, opened := sendBatch(t, t, s, s.Demo, opening, "")
		for i, r := range opened {
			want, _ := json.Marshal(sealing[i]["plaintext"])
			if got, _ := json.Marshal(r.Result["plaintext"]); string(got) != string(want) {
				t.Errorf("%s: item %d is %s, want %s", spec, i, got, want)
			}
		}
	}
}

// TestBatchIsAccountedItemByItem: what a tenant is charged for batches is the
// sum of what their items were, in the answers, in the journal, in the balance
// and in the usage; each item can be asked about; and nothing is left reserved.
func TestBatchIsAccountedItemByItem(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	v := &village{Service: s}
	id, token := v.batcher(t, "accounts")
	tenant := uuid.MustParse(id)
	items := determined(t, v, token)
	_, before := journalOf(t, s, tenant)
	var answered float64
	told := map[string]batchResult{}
	for range 3 {
		batch, cost, results := sendBatch(t, t, s, token, items, "")
		answered += cost
		for i, r := range results {
			if want := kms.ItemID(uuid.MustParse(batch), i).String(); r.requestID() != want {
				t.Errorf("item %d has the id %s, want %s", i, r.requestID(), want)
			}
			told[r.requestID()] = r
		}
	}
	// A dry run prices the same, and nothing of it counts.
	_, dry, results := sendBatch(t, t, s, token, items[:3], "?dry_run=true")
	if dry != 3 || results[0].Result["dry_run"] != true || results[0].Result["plaintext"] != nil {
		t.Errorf("a dry run costs %v: %v", dry, results[0])
	}
	status, _, quota := raw(t, s, token, http.MethodGet, "/v1/quota", "")
	if status != http.StatusOK {
		t.Fatal(status, quota)
	}
	entries, after := journalOf(t, s, tenant)
	reading := entries[len(entries)-1].Charged
	if got := math.Round(answered * 1e6); got != float64(after-before-reading) {
		t.Errorf("the answers say %v µcr, the journal %d", got, after-before-reading)
	}
	if got := math.Round(quota["day"].(map[string]any)["used"].(float64) * 1e6); got != float64(after) {
		t.Errorf("the balance says %v µcr, the journal %d", got, after)
	}
	if used := quota["concurrency"].(map[string]any)["used"]; used != 1.0 { // the reading itself
		t.Errorf("%v requests hold concurrency", used)
	}
	for _, e := range entries {
		if r, ok := told[e.RequestID.String()]; ok && (e.Outcome == "ok") != (r.Status == http.StatusOK) {
			t.Errorf("item %s was told %d, the journal has %s", e.RequestID, r.Status, e.Outcome)
		}
	}
	for item, r := range told {
		status, _, why := raw(t, s, token, http.MethodGet, "/v1/requests/"+item+"/why", "")
		if status != http.StatusOK || (why["outcome"] == "ok") != (r.Status == http.StatusOK) {
			t.Fatalf("why of %s, which was told %d: %d %v", item, r.Status, status, why)
		}
		break
	}
	awaitUsage(t, s, id, tenant)
}

// journalOf returns the outcomes of a tenant in the journal and what they were
// charged.
func journalOf(t *testing.T, s *wiretest.Service, tenant uuid.UUID) (entries []kms.Entry, charged kms.Credits) {
	t.Helper()
	err := audit.Read(s.Config.Journal.Dir, 1, func(e *kms.Entry, _ audit.Position) error {
		if e.Tenant == tenant && e.Phase == kms.PhaseOutcome {
			entries = append(entries, *e)
			charged += e.Charged
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return entries, charged
}

// awaitUsage returns when the tenant's usage is what the journal says; it is
// told within seconds.
func awaitUsage(t *testing.T, s *wiretest.Service, id string, tenant uuid.UUID) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(50 * time.Millisecond) {
		status, _, usage := raw(t, s, s.Operator, http.MethodGet, "/v1/tenants/"+id+"/usage", "")
		var credits float64
		rows, _ := usage["rows"].([]any)
		for _, row := range rows {
			credits += row.(map[string]any)["credits"].(float64)
		}
		_, charged := journalOf(t, s, tenant)
		if status == http.StatusOK && math.Round(credits*1e6) == float64(charged) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the usage says %v credits, the journal %d µcr", credits, charged)
		}
	}
}
