package api_test

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// batchItem is the item that a single request would be.
func batchItem(t *testing.T, r request) string {
	t.Helper()
	fields := map[string]any{}
	if r.body != "" {
		if err := json.Unmarshal([]byte(r.body), &fields); err != nil {
			t.Fatal(err)
		}
	}
	op := strings.TrimPrefix(r.path, "/v1/")
	if rest, keyed := strings.CutPrefix(r.path, "/v1/keys/"); keyed {
		var key string
		key, op, _ = strings.Cut(rest, "/")
		fields["key"] = strings.ReplaceAll(key, "%2F", "/")
	}
	fields["op"] = op
	return object(fields)
}

// batch sends a batch of items that the document may forbid and returns the
// results.
func (w *world) batch(token string, items ...string) (*answer, []map[string]any) {
	w.t.Helper()
	a := w.sendBad("POST", "/v1/batch", token, `{"items":[`+strings.Join(items, ",")+`]}`)
	if a.status != 200 {
		w.t.Fatalf("batch: %d %s", a.status, a.body)
	}
	var results []map[string]any
	for _, r := range a.fields["results"].([]any) {
		results = append(results, r.(map[string]any))
	}
	if len(results) != len(items) {
		w.t.Fatalf("%d items have %d results", len(items), len(results))
	}
	return a, results
}

// without returns an object without what is another one each time.
func without(v any, names ...string) map[string]any {
	fields := maps.Clone(v.(map[string]any))
	for _, name := range names {
		delete(fields, name)
	}
	return fields
}

// TestItemIsAnsweredAsItsOwnRouteAnswers sends, for every operation, a request
// by its own route and as an item, once as it is, and in every way in which it
// is refused: status, result and problem are the same.
func TestItemIsAnsweredAsItsOwnRouteAnswers(t *testing.T) {
	w := newWorld(t)
	foreign := w.key(w.rival, kms.SpecAES256, "", "batch/foreign")
	disabled := w.key(w.acme, kms.SpecAES256, "", "")
	w.must(200, "POST", "/v1/keys/"+disabled+"/disable", w.acme.token, "")
	limited := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"limited","scopes":["key:describe"]}`).text("credential")
	keyIn := func(path, key string) string {
		rest, keyed := strings.CutPrefix(path, "/v1/keys/")
		if !keyed {
			return path
		}
		_, op, _ := strings.Cut(rest, "/")
		return "/v1/keys/" + key + "/" + op
	}
	covered := 0
	for name, make := range w.operations() {
		if name == "batch" || name == "fetch-secrets" {
			continue // they have items of their own
		}
		ok := make()
		for _, c := range []struct {
			way    string
			change func(*request)
		}{
			{"as it is", func(*request) {}},
			{"a missing key", func(r *request) { r.path = keyIn(r.path, "missing") }},
			{"another tenant's key", func(r *request) { r.path = keyIn(r.path, foreign) }},
			{"another tenant's key by name", func(r *request) { r.path = keyIn(r.path, "batch%2Fforeign") }},
			{"a disabled key", func(r *request) { r.path = keyIn(r.path, disabled) }},
			{"an unknown field", func(r *request) { r.body = `{"unknown":1}` }},
			{"a field of a wrong type", func(r *request) { r.body = `{"version":"x"}` }},
			{"nothing", func(r *request) { r.body = `{}` }},
			{"no permission", func(r *request) { r.token = limited }},
		} {
			r := ok
			c.change(&r)
			single := w.sendBad(r.method, r.path, r.token, r.body)
			_, results := w.batch(r.token, batchItem(t, r))
			result := results[0]
			if result["status"] != float64(single.status) {
				t.Errorf("%s, %s: %v, its route answers %d: %s", name, c.way, result, single.status, single.body)
				continue
			}
			covered++
			got, kind := result["problem"], "problem"
			if single.status == 200 {
				got, kind = result["result"], "result"
			}
			if got == nil || len(result) != 2 {
				t.Errorf("%s, %s: %v has no %s, or more", name, c.way, result, kind)
				continue
			}
			// What an operation gives is another thing each time; that it is right
			// is TestItemDependsOnItselfOnly's.
			volatile := []string{"request_id"}
			if single.status == 200 {
				for field, v := range got.(map[string]any) {
					if _, is := v.(string); is && !slices.Contains([]string{"protection", "algorithm"}, field) || strings.HasSuffix(field, "_crc32c") && !strings.HasPrefix(field, "verified") {
						volatile = append(volatile, field)
					}
				}
				if want, is := slices.Sorted(maps.Keys(single.fields)), slices.Sorted(maps.Keys(got.(map[string]any))); !slices.Equal(want, is) {
					t.Errorf("%s: the result has the fields %v, its route's answer %v", name, is, want)
				}
			}
			g, s := without(got, volatile...), without(single.fields, volatile...)
			if detail, is := s["detail"].(string); is { // offsets are those of the item
				s["detail"], g["detail"] = digits.Replace(detail), digits.Replace(g["detail"].(string))
			}
			if !reflect.DeepEqual(g, s) {
				t.Errorf("%s, %s: %v, its route answers %v", name, c.way, g, s)
			}
		}
	}
	if covered < 17*9 {
		t.Errorf("only %d cells were compared", covered)
	}
}

var digits = strings.NewReplacer("0", "", "1", "", "2", "", "3", "", "4", "", "5", "", "6", "", "7", "", "8", "", "9", "")

// TestItemsAreRecordedOneByOne: one entry each, in whose id an auditor finds the
// batch and the place, and one of the batch, which costs nothing itself.
func TestItemsAreRecordedOneByOne(t *testing.T) {
	w := newWorld(t)
	p256 := w.key(w.acme, kms.SpecP256, "", "")
	w.outcomes()
	sign := `{"op":"sign","key":"` + p256 + `","message":""}`
	a, results := w.batch(w.acme.token, sign, `{"op":"random","bytes":16}`, `{"op":"sign","key":"missing","message":""}`, `1`, sign)
	id := uuid.MustParse(a.header.Get("X-Request-Id"))
	entries := map[uuid.UUID]kms.Entry{}
	for _, e := range w.outcomes() {
		entries[e.RequestID] = e
	}
	var charged kms.Credits
	for i, want := range []struct {
		op      kms.Op
		outcome string
		charged kms.Credits
	}{{kms.OpSign, "ok", 12 * kms.Credit}, {kms.OpRandom, "ok", kms.Credit / 4}, {kms.OpSign, "not_found", 0}, {kms.OpBatch, "malformed", 0}, {kms.OpSign, "ok", 12 * kms.Credit}} {
		e := entries[kms.ItemID(id, i)]
		if e.Op != want.op || e.Outcome != want.outcome || e.Charged != want.charged || e.Resource != id.String() || e.Tenant.String() != w.acme.id {
			t.Errorf("the entry of item %d is %+v", i, e)
		}
		charged += e.Charged
		object := results[i]["result"]
		if object == nil {
			object = results[i]["problem"]
		}
		if got := object.(map[string]any)["request_id"]; got != e.RequestID.String() {
			t.Errorf("item %d is told the request id %v", i, got)
		}
	}
	if e := entries[id]; len(entries) != 6 || e.Op != kms.OpBatch || e.Outcome != "ok" || e.Charged != 0 || e.SlotTime != 0 || e.Resource != "5 items" {
		t.Errorf("%d entries, that of the batch is %+v", len(entries), e)
	}
	if cost := api.Cost(charged).String(); a.header.Get("Sluice-Cost") != cost || fmt.Sprint(a.fields["cost"]) != cost {
		t.Errorf("the batch cost %v, its items %s", a.fields["cost"], cost)
	}
}

// TestMalformedBatchDoesNothing: it costs what a refusal costs, and no item of
// it runs or is recorded.
func TestMalformedBatchDoesNothing(t *testing.T) {
	w := newWorld(t)
	random := `{"op":"random","bytes":16}`
	many := strings.Repeat(random+",", kms.MaxBatch)
	for _, c := range []struct {
		name, body string
		status     int
	}{
		{"empty", ``, 400},
		{"no JSON", `{"items":[` + random, 400},
		{"text after it", `{"items":[` + random + `]}{}`, 400},
		{"an array", `[` + random + `]`, 400},
		{"a number", `7`, 400},
		{"null", `null`, 400},
		{"items missing", `{}`, 422},
		{"items null", `{"items":null}`, 400},
		{"items an object", `{"items":` + random + `}`, 400},
		{"another field", `{"items":[` + random + `],"x":1}`, 400},
		{"another field first", `{"x":1,"items":[` + random + `]}`, 400},
		{"items twice", `{"items":[` + random + `],"items":[]}`, 400},
		{"a field twice", `{"items":[` + random + `,{"op":"random","bytes":1,"bytes":2}]}`, 400},
		{"op twice", `{"items":[` + random + `,{"op":"random","op":"random","bytes":2}]}`, 400},
		{"op twice, once escaped", `{"items":[{"op":"random","\u006fp":"random","bytes":2}]}`, 400},
		{"no items", `{"items":[]}`, 422},
		{"too many items", `{"items":[` + many + random + `]}`, 422},
		{"too deep", `{"items":[` + random + `,{"op":"random","x":[[[[[1]]]]]}]}`, 400},
		{"too many members", `{"items":[[` + strings.Repeat("1,", 40_000) + `1]]}`, 400},
		{"not UTF-8", "{\"items\":[" + random + ",\"\xff\"]}", 400},
		{"too long", `{"items":[` + random + strings.Repeat(" ", 1<<20) + `]}`, 413},
	} {
		w.outcomes()
		calls, penalised := w.nodeCalls.Load(), w.penalised.Load()
		a := w.sendBad("POST", "/v1/batch", w.acme.token, c.body)
		entries := w.outcomes()
		if a.status != c.status || len(entries) != 1 || entries[0].Op != kms.OpBatch || w.nodeCalls.Load() != calls {
			t.Errorf("%s: %d %s, %d entries, %d calls of nodes", c.name, a.status, a.body, len(entries), w.nodeCalls.Load()-calls)
		}
		if w.penalised.Load() != penalised+1 {
			t.Errorf("%s costs nothing", c.name)
		}
	}
	if a, _ := w.batch(w.acme.token, slices.Repeat([]string{random}, kms.MaxBatch)...); a.status != 200 {
		t.Errorf("the largest batch: %d", a.status)
	}
}

// TestFaultyItemIsItsOwnProblemOnly puts an item with every fault between two
// that are right, in every order of its members.
func TestFaultyItemIsItsOwnProblemOnly(t *testing.T) {
	w := newWorld(t)
	hmac := w.key(w.acme, kms.SpecHMAC256, "", "batch/hmac")
	mac := `{"op":"mac","key":"batch/hmac","message":"aGVsbG8="}`
	_, results := w.batch(w.acme.token, mac)
	want := without(results[0]["result"], "request_id")
	for _, c := range []struct {
		name, item string
		status     float64
	}{
		{"a number", `7`, 400}, {"null", `null`, 400}, {"an array", `[[1],[{"op":"random"}]]`, 400}, {"a text", `"mac"`, 400},
		{"nothing", `{}`, 422}, {"no op", `{"key":"` + hmac + `","message":""}`, 422}, {"op null", `{"op":null}`, 400},
		{"op an object", `{"op":{"op":"mac"},"key":"` + hmac + `","message":""}`, 400},
		{"unknown op", `{"op":"rotate","key":"` + hmac + `"}`, 422}, {"a batch", `{"op":"batch","items":[` + mac + `]}`, 422},
		{"no key", `{"op":"mac","message":""}`, 422}, {"empty key", `{"op":"mac","key":"","message":""}`, 422},
		{"key a number", `{"op":"mac","key":7,"message":""}`, 400}, {"a key too many", `{"op":"random","key":"` + hmac + `","bytes":16}`, 400},
		{"a key with a path", `{"op":"mac","key":"batch%2Fhmac","message":""}`, 404}, {"a field null", `{"op":"mac","key":"` + hmac + `","message":null}`, 400},
		{"another's field", `{"op":"mac","key":"` + hmac + `","message":"","plaintext":""}`, 400},
		{"op escaped", `{"\u006fp":"m\u0061c","key":"batch\/hmac","message":"aGVsbG8="}`, 200},
		{"op last", `{"message":"aGVsbG8=","key":"` + hmac + `","op":"mac"}`, 200}, {"op between", ` { "key" : "` + hmac + `" , "op" : "mac" , "message" : "aGVsbG8=" } `, 200},
		{"key last", `{"op":"mac","message":"aGVsbG8="  ,  "key":"` + hmac + `"}`, 200}, {"op and key last", `{"message":"aGVsbG8=","op":"mac","key":"` + hmac + `"}`, 200},
	} {
		_, results := w.batch(w.acme.token, mac, c.item, mac)
		if got := results[1]["status"]; got != c.status {
			t.Errorf("%s: %v", c.name, results[1])
		}
		if c.status == 200 && !reflect.DeepEqual(without(results[1]["result"], "request_id"), want) {
			t.Errorf("%s: %v, want %v", c.name, results[1]["result"], want)
		}
		for _, i := range []int{0, 2} {
			if results[i]["status"] != 200.0 || !reflect.DeepEqual(without(results[i]["result"], "request_id"), want) {
				t.Errorf("beside %s: %v", c.name, results[i])
			}
		}
	}
}

// TestBatchNeedsNoScopeOfItsOwn: each item needs what its operation needs.
func TestBatchNeedsNoScopeOfItsOwn(t *testing.T) {
	w := newWorld(t)
	w.key(w.acme, kms.SpecAES256, "", "orders/a")
	w.key(w.acme, kms.SpecAES256, "", "hr/a")
	orders := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"orders","scopes":["key:encrypt:orders/*"]}`).text("credential")
	_, results := w.batch(orders,
		`{"op":"encrypt","key":"orders/a","plaintext":""}`, `{"op":"encrypt","key":"hr/a","plaintext":""}`,
		`{"op":"datakey","key":"orders/a","bytes":32}`, `{"op":"random","bytes":16}`)
	for i, want := range []float64{200, 403, 403, 403} {
		if results[i]["status"] != want {
			t.Errorf("item %d: %v", i, results[i])
		}
	}
}

// TestUnrecordedItemsAreWithheld: without their entries nothing is told of what
// items gave.
func TestUnrecordedItemsAreWithheld(t *testing.T) {
	w := newWorld(t)
	w.journalFault = errors.New("disk full")
	a := w.sendBad("POST", "/v1/batch", w.acme.token, `{"items":[{"op":"random","bytes":16}]}`)
	if a.status != 503 || a.code() != "audit_unavailable" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestResultsAreBounded: the results of a batch take no more memory than they
// may, and an item whose result would be too much is not carried out.
func TestResultsAreBounded(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecHMAC256, kms.UsageDerive, "")
	derive := fmt.Sprintf(`{"op":"derive","key":"%s","bytes":%d}`, key, kms.MaxDerived)
	a, results := w.batch(w.acme.token, slices.Repeat([]string{derive}, kms.MaxBatch)...)
	statuses := map[any]int{}
	for _, r := range results {
		statuses[r["status"]]++
	}
	if statuses[200.0] < 300 || statuses[413.0] < 50 || len(statuses) != 2 || len(a.body) > 5<<20 {
		t.Errorf("%v in %d bytes", statuses, len(a.body))
	}
	if cost := a.fields["cost"]; cost != float64(statuses[200.0])/4 {
		t.Errorf("%d items cost %v", statuses[200.0], cost)
	}
}

// TestKeyOfAnItemIsOneAsForeignAndMissing: neither result nor the others'
// tell whether another tenant has the key.
func TestKeyOfAnItemIsOneAsForeignAndMissing(t *testing.T) {
	w := newWorld(t)
	foreign := w.key(w.rival, kms.SpecAES256, "", "batch/theirs")
	var want map[string]any
	for _, ref := range []string{"018f0000-0000-7000-8000-000000000000", "batch/missing", foreign, "batch/theirs"} {
		_, results := w.batch(w.acme.token, `{"op":"random","bytes":16}`, `{"op":"encrypt","key":"`+ref+`","plaintext":""}`, `{"op":"random","bytes":16}`)
		got := without(results[1]["problem"], "request_id")
		if want == nil {
			want = got
		}
		if results[1]["status"] != 404.0 || !reflect.DeepEqual(got, want) || results[0]["status"] != 200.0 || results[2]["status"] != 200.0 {
			t.Errorf("%s: %v, want %v", ref, results, want)
		}
	}
}
