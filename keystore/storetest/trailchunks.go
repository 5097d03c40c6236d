package storetest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// stored is an entry with its place, as it was shipped.
type stored struct {
	place string
	entry *kms.Entry
}

// testTrailChunks ships what comes to few rows, to many, and to rows that lie
// across each other in time, and compares every way to read them with the list.
func testTrailChunks(t *testing.T, e *env) {
	random := rand.New(rand.NewPCG(1, 2))
	tenants := []uuid.UUID{uuid.NewV7(), uuid.NewV7(), uuid.NewV7()}
	heads := map[string]kms.TrailHead{}
	var all []stored
	for i := range 24 {
		node := []string{"a", "b"}[random.IntN(2)]
		entries := make([]*kms.Entry, 1+random.IntN([]int{3, 400}[i%2]))
		for j := range entries {
			entries[j] = trailEntry(tenants[min(random.IntN(5), 2)], i)
			x := entries[j]
			x.Time = x.Time.Add(time.Duration(random.IntN(30_000)) * time.Millisecond)
			x.RequestID = requestAt(x.Time.Add(-time.Duration(random.IntN(7000)) * time.Millisecond))
			x.Op = []kms.Op{kms.OpSign, kms.OpSign, kms.OpSign, kms.OpEncrypt, kms.OpCreateKey}[random.IntN(5)]
			if x.Op == kms.OpCreateKey && random.IntN(2) == 0 {
				x.Phase = kms.PhaseIntent
			}
			x.Credential, x.Project = uuid.UUID{byte(random.IntN(3))}, []string{"", "team"}[random.IntN(2)]
		}
		b := batchOf(node, heads[node], entries...)
		for j := range b.Entries {
			place := string(b.Entries[j].Payload)
			all = append(all, stored{place, entries[j]})
			b.Entries[j].Payload = append([]byte(place+"|"), bytes.Repeat([]byte{'x'}, random.IntN(2000))...)
		}
		heads[node] = e.ship(t, b)
	}
	for _, of := range append(tenants, uuid.Nil()) {
		checkTrail(t, e, of, all, random)
	}
}

// places are the places of what a query returns.
func (e *env) places(t *testing.T, q kms.TrailQuery) (places []string) {
	t.Helper()
	for {
		page, err := e.TrailEntries(t.Context(), &q)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page.Entries {
			place, _, _ := bytes.Cut(x.Payload, []byte("|"))
			if want := fmt.Sprintf("%s/%d", x.Node, x.Sequence); want != string(place) {
				t.Fatalf("the entry of %s says it is at %s", place, want)
			}
			places = append(places, string(place))
		}
		if q.Page.Token = page.Next; page.Next == "" {
			return places
		}
	}
}

func checkTrail(t *testing.T, e *env, tenant uuid.UUID, all []stored, random *rand.Rand) {
	t.Helper()
	want := func(wanted func(*kms.Entry) bool) (places []string) {
		for _, x := range all {
			if (tenant == uuid.Nil() || x.entry.Tenant == tenant) && wanted(x.entry) {
				places = append(places, x.place)
			}
		}
		slices.Sort(places)
		return places
	}
	times := map[string]time.Time{}
	for _, x := range all {
		times[x.place] = x.entry.Time
	}
	same := func(what string, got []string, wanted func(*kms.Entry) bool) {
		t.Helper()
		got = slices.Sorted(slices.Values(got))
		if expected := want(wanted); !slices.Equal(got, expected) {
			t.Errorf("%s: %d entries, want %d", what, len(got), len(expected))
		}
	}
	any := func(*kms.Entry) bool { return true }
	for _, size := range []int{7, 250} {
		got := e.places(t, kms.TrailQuery{Tenant: tenant, Page: kms.Page{Size: size}})
		if !slices.IsSortedFunc(got, func(a, b string) int { return times[b].Compare(times[a]) }) {
			t.Errorf("pages of %d: the newest do not come first", size)
		}
		same(fmt.Sprintf("pages of %d", size), got, any)
		arrived := e.places(t, kms.TrailQuery{Tenant: tenant, Order: kms.ByArrival, Page: kms.Page{Size: size}})
		same(fmt.Sprintf("by arrival, pages of %d", size), arrived, any)
		if tenant != uuid.Nil() {
			checkOrder(t, arrived)
		}
	}
	for range 10 {
		from := start.Add(time.Duration(random.IntN(40_000)) * time.Millisecond)
		to := from.Add(time.Duration(random.IntN(20_000)) * time.Millisecond)
		got := e.places(t, kms.TrailQuery{Tenant: tenant, From: from, To: to, Op: kms.OpSign, Project: "team", Page: kms.Page{Size: 50}})
		same("a time, an operation and a project", got, func(x *kms.Entry) bool {
			return !x.Time.Before(from) && x.Time.Before(to) && x.Op == kms.OpSign && x.Project == "team"
		})
	}
	arrived := e.places(t, kms.TrailQuery{Tenant: tenant, Order: kms.ByArrival, Page: kms.Page{Size: 1000}})
	for range 20 {
		n := random.IntN(len(arrived))
		x := all[slices.IndexFunc(all, func(s stored) bool { return s.place == arrived[n] })]
		got := e.places(t, kms.TrailQuery{Tenant: tenant, Request: x.entry.RequestID, Page: kms.Page{Size: 10}})
		if !slices.Equal(got, []string{x.place}) {
			t.Errorf("the request of %s: %q", x.place, got)
		}
		var after kms.TrailPosition
		if _, err := fmt.Sscanf(x.place, "%1s/%d", &after.Node, &after.Sequence); err != nil {
			t.Fatal(err)
		}
		behind := e.places(t, kms.TrailQuery{Tenant: tenant, Order: kms.ByArrival, After: &after, Page: kms.Page{Size: 1000}})
		if !slices.Equal(behind, arrived[n+1:]) {
			t.Errorf("behind %s: %d entries, want %d", x.place, len(behind), len(arrived)-n-1)
		}
	}
}

// checkOrder checks that each node's entries come in the order of its journal.
func checkOrder(t *testing.T, places []string) {
	t.Helper()
	last := map[string]uint64{}
	for _, p := range places {
		var node string
		var n uint64
		if _, err := fmt.Sscanf(p, "%1s/%d", &node, &n); err != nil {
			t.Fatal(err)
		}
		if n <= last[node] {
			t.Errorf("%s came after %s/%d", p, node, last[node])
		}
		last[node] = n
	}
}
