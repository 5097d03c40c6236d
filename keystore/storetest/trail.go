package storetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// trailEntry makes the n-th entry of a tenant, a second after the one before.
func trailEntry(tenant uuid.UUID, n int) *kms.Entry {
	at := start.Add(time.Duration(n) * time.Second)
	return &kms.Entry{Time: at, Phase: kms.PhaseOutcome, RequestID: requestAt(at), Tenant: tenant,
		Project: "team", Component: "shop", Credential: uuid.UUID{1}, Op: kms.OpSign, Key: uuid.UUID{2}, Spec: kms.SpecSM2, Outcome: "ok",
		Charged: 12 * kms.Credit, Bytes: 32, SlotTime: time.Millisecond, Wait: time.Microsecond, PolicyVersion: 3}
}

// requestAt is the id of a request that arrived at a time.
func requestAt(t time.Time) uuid.UUID {
	id := uuid.NewV7()
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(t.UnixMilli()))
	copy(id[:6], ms[2:])
	return id
}

// batchOf makes a batch of a node's journal behind a record.
func batchOf(node string, after kms.TrailHead, entries ...*kms.Entry) *kms.TrailBatch {
	b := &kms.TrailBatch{Node: node, After: after, Until: start, Usage: map[kms.Granularity][]kms.UsageRow{}}
	for i, e := range entries {
		n := after.Sequence + uint64(i) + 1
		b.Entries = append(b.Entries, kms.TrailEntry{Sequence: n, Payload: fmt.Appendf(nil, "%s/%d", node, n), Entry: e})
		if key, sum, ok := e.Usage(); ok {
			for _, g := range kms.Granularities() {
				b.Usage[g] = addUsage(b.Usage[g], kms.UsageRow{Start: g.Start(e.Time), UsageKey: key, UsageSum: sum})
			}
		}
	}
	b.Head = kms.TrailHead{Sequence: after.Sequence + uint64(len(entries)), Hash: [32]byte{byte(len(entries)), 1}}
	return b
}

func addUsage(rows []kms.UsageRow, u kms.UsageRow) []kms.UsageRow {
	for i := range rows {
		if rows[i].Start.Equal(u.Start) && rows[i].UsageKey == u.UsageKey {
			rows[i].Add(u.UsageSum)
			return rows
		}
	}
	return append(rows, u)
}

func (e *env) ship(t *testing.T, b *kms.TrailBatch) kms.TrailHead {
	t.Helper()
	if err := e.Ship(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return b.Head
}

// positions are the places of the entries of all pages of a query.
func (e *env) positions(t *testing.T, q kms.TrailQuery) (all []string) {
	t.Helper()
	if q.Page.Size == 0 {
		q.Page.Size = kms.MaxPageSize
	}
	for {
		page, err := e.TrailEntries(t.Context(), &q)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.Entries {
			if got := fmt.Sprintf("%s/%d", entry.Node, entry.Sequence); got != string(entry.Payload) {
				t.Errorf("the payload of %s is %q", got, entry.Payload)
			}
			all = append(all, string(entry.Payload))
		}
		if q.Page.Token = page.Next; page.Next == "" {
			return all
		}
	}
}

func wantPositions(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func testTrail(t *testing.T, open func(*testing.T) keystore.Driver) {
	ctx := t.Context()
	t.Run("ABatchCountsOnce", func(t *testing.T) {
		e := newEnv(t, open(t))
		tenant := uuid.NewV7()
		if n, err := e.Shipped(ctx, "a"); err != nil || n.Head != (kms.TrailHead{}) || !n.Until.IsZero() {
			t.Errorf("before anything: %+v, %v", n, err)
		}
		batch := batchOf("a", kms.TrailHead{}, trailEntry(tenant, 0), trailEntry(tenant, 1))
		head := e.ship(t, batch)
		wantKind(t, "the same again", e.Ship(ctx, batch), kms.KindPreconditionFailed)
		forked := batchOf("a", kms.TrailHead{Sequence: head.Sequence}, trailEntry(tenant, 2))
		wantKind(t, "one of another journal", e.Ship(ctx, forked), kms.KindPreconditionFailed)
		late := batchOf("a", head, trailEntry(tenant, -7200))
		late.Ended, late.Until = true, start.Add(time.Hour)
		e.ship(t, late)
		n, err := e.Shipped(ctx, "a")
		if err != nil || n.Head != late.Head || !n.Ended || !n.Until.Equal(late.Until) {
			t.Errorf("afterwards: %+v, %v", n, err)
		}
		wantPositions(t, "entries", e.positions(t, kms.TrailQuery{Order: kms.ByArrival}), "a/1", "a/2", "a/3")
		var sum kms.UsageSum
		for _, u := range e.usage(t, kms.UsageQuery{Granularity: kms.ByDay, From: start.AddDate(0, 0, -2), To: start.AddDate(0, 0, 2)}) {
			sum.Add(u.UsageSum)
		}
		if sum.Requests != 3 || sum.Charged != 36*kms.Credit {
			t.Errorf("usage is %+v", sum)
		}
	})
	t.Run("EntriesOfAnOperationAreFollowed", func(t *testing.T) {
		e := newEnv(t, open(t))
		found := trailEntry(uuid.NewV7(), 1)
		found.Op = kms.OpFoundOld
		head := e.ship(t, batchOf("a", kms.TrailHead{}, trailEntry(found.Tenant, 0), found, trailEntry(found.Tenant, 2)))
		if payloads, _, err := e.EntriesOf(ctx, kms.OpFoundOld, 0); err != nil || len(payloads) != 1 || string(payloads[0]) != "a/2" {
			t.Errorf("from the beginning: %q, %v", payloads, err)
		}
		payloads, end, err := e.EntriesOf(ctx, kms.OpFoundOld, -1)
		if err != nil || len(payloads) != 0 {
			t.Errorf("from the end: %q, %v", payloads, err)
		}
		e.ship(t, batchOf("b", kms.TrailHead{}, found))
		e.ship(t, batchOf("a", head, found))
		for range 2 {
			if payloads, end, err = e.EntriesOf(ctx, kms.OpFoundOld, end); err != nil {
				t.Fatal(err)
			}
			if len(payloads) > 0 && (len(payloads) != 2 || string(payloads[0]) != "b/1" || string(payloads[1]) != "a/4") {
				t.Errorf("from there on: %q", payloads)
			}
		}
		if len(payloads) != 0 {
			t.Errorf("told twice: %q", payloads)
		}
	})
	t.Run("ABatchIsStoredAsAWhole", func(t *testing.T) {
		e := newEnv(t, open(t))
		batch := batchOf("a", kms.TrailHead{}, trailEntry(uuid.NewV7(), 0), trailEntry(uuid.NewV7(), 1))
		batch.Entries[1].Payload = nil // which no database takes
		if err := e.Ship(ctx, batch); err == nil {
			t.Fatal("it was stored")
		}
		wantPositions(t, "entries", e.positions(t, kms.TrailQuery{}))
		if rows := e.usage(t, kms.UsageQuery{Granularity: kms.ByDay, From: start.AddDate(0, 0, -1), To: start.AddDate(0, 0, 1)}); len(rows) != 0 {
			t.Errorf("usage %+v", rows)
		}
		if n, err := e.Shipped(ctx, "a"); err != nil || n.Head.Sequence != 0 {
			t.Errorf("the node is at %+v, %v", n, err)
		}
	})
	t.Run("NodesShipAtOnceAndNothingIsLostOrDoubled", func(t *testing.T) { testTrailNodes(t, newEnv(t, open(t))) })
	t.Run("EntriesAreFound", func(t *testing.T) { testTrailQueries(t, newEnv(t, open(t))) })
	t.Run("EntriesThatAreStoredTogetherAreReadAsIfApart", func(t *testing.T) { testTrailChunks(t, newEnv(t, open(t))) })
	t.Run("TheTrailIsTrimmedByTime", func(t *testing.T) { testTrailTrim(t, newEnv(t, open(t))) })
}

// testTrailNodes has two nodes ship the same keys' usage, while somebody
// follows the trail.
func testTrailNodes(t *testing.T, e *env) {
	const batches, each = 20, 10
	tenant := uuid.NewV7()
	var all sync.WaitGroup
	for _, node := range []string{"a", "b"} {
		all.Go(func() {
			var head kms.TrailHead
			for i := range batches {
				entries := make([]*kms.Entry, each)
				for j := range entries {
					entries[j] = trailEntry(tenant, i)
				}
				b := batchOf(node, head, entries...)
				if err := e.Ship(context.WithoutCancel(t.Context()), b); err != nil {
					t.Error(err)
					return
				}
				head = b.Head
			}
		})
	}
	seen := map[string]int{}
	follow := kms.TrailQuery{Tenant: tenant, Order: kms.ByArrival, Page: kms.Page{Size: 7}}
	read := func() {
		for {
			page, err := e.TrailEntries(t.Context(), &follow)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range page.Entries {
				seen[string(entry.Payload)]++
			}
			follow.Page.Token = page.Resume
			if page.Next == "" {
				return
			}
		}
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		read()
	}
	read()
	if len(seen) != 2*batches*each {
		t.Errorf("who follows has seen %d entries, want %d", len(seen), 2*batches*each)
	}
	for position, n := range seen {
		if n != 1 {
			t.Errorf("%s was seen %d times", position, n)
		}
	}
	for _, u := range e.usage(t, kms.UsageQuery{Tenant: tenant, Granularity: kms.ByDay, From: start.AddDate(0, 0, -1), To: start.AddDate(0, 0, 1)}) {
		if u.Requests != 2*batches*each || u.Charged != 12*kms.Credit*2*batches*each {
			t.Errorf("usage is %+v", u)
		}
	}
	nodes, err := e.ShippedNodes(t.Context())
	if err != nil || len(nodes) != 2 || nodes[0].Node != "a" || nodes[1].Head.Sequence != batches*each {
		t.Errorf("nodes: %+v, %v", nodes, err)
	}
}

func testTrailQueries(t *testing.T, e *env) {
	mine, other := uuid.NewV7(), uuid.NewV7()
	entries := make([]*kms.Entry, 6)
	for i := range entries {
		entries[i] = trailEntry(mine, i)
	}
	entries[1].Op, entries[2].Key, entries[3].Credential = kms.OpVerify, uuid.UUID{9}, uuid.UUID{9}
	entries[4].Outcome, entries[4].Project, entries[4].Component = "not_found", "else", "else"
	entries[5].Tenant = other
	head := e.ship(t, batchOf("a", kms.TrailHead{}, entries...))
	// What another node had recorded before and shipped later.
	e.ship(t, batchOf("b", kms.TrailHead{}, trailEntry(mine, -10), trailEntry(uuid.Nil(), -5)))

	all := []string{"a/5", "a/4", "a/3", "a/2", "a/1", "b/1"}
	for what, c := range map[string]struct {
		q    kms.TrailQuery
		want []string
	}{
		"all of a tenant":         {kms.TrailQuery{}, all},
		"by pages":                {kms.TrailQuery{Page: kms.Page{Size: 2}}, all},
		"an operation, by pages":  {kms.TrailQuery{Op: kms.OpSign, Page: kms.Page{Size: 2}}, []string{"a/5", "a/4", "a/3", "a/1", "b/1"}},
		"another operation":       {kms.TrailQuery{Op: kms.OpVerify}, []string{"a/2"}},
		"a key":                   {kms.TrailQuery{Key: uuid.UUID{9}}, []string{"a/3"}},
		"a credential":            {kms.TrailQuery{Credential: uuid.UUID{9}}, []string{"a/4"}},
		"an outcome":              {kms.TrailQuery{Outcome: "not_found"}, []string{"a/5"}},
		"a project":               {kms.TrailQuery{Project: "else"}, []string{"a/5"}},
		"a component":             {kms.TrailQuery{Component: "else"}, []string{"a/5"}},
		"a node":                  {kms.TrailQuery{Node: "b"}, []string{"b/1"}},
		"a request":               {kms.TrailQuery{Request: entries[2].RequestID}, []string{"a/3"}},
		"another's request":       {kms.TrailQuery{Request: entries[5].RequestID}, nil},
		"a time":                  {kms.TrailQuery{From: start.Add(time.Second), To: start.Add(3 * time.Second)}, []string{"a/3", "a/2"}},
		"by arrival":              {kms.TrailQuery{Order: kms.ByArrival}, []string{"a/1", "a/2", "a/3", "a/4", "a/5", "b/1"}},
		"by arrival and time":     {kms.TrailQuery{Order: kms.ByArrival, From: start, To: start.Add(2 * time.Second)}, []string{"a/1", "a/2"}},
		"by arrival, by pages":    {kms.TrailQuery{Order: kms.ByArrival, Page: kms.Page{Size: 1}}, []string{"a/1", "a/2", "a/3", "a/4", "a/5", "b/1"}},
		"behind an entry":         {kms.TrailQuery{Order: kms.ByArrival, After: &kms.TrailPosition{Node: "a", Sequence: 4}}, []string{"a/5", "b/1"}},
		"behind the end":          {kms.TrailQuery{Order: kms.ByArrival, AtEnd: true}, nil},
		"several things together": {kms.TrailQuery{Op: kms.OpSign, Project: "team", Node: "a"}, []string{"a/4", "a/3", "a/1"}},
	} {
		c.q.Tenant = mine
		wantPositions(t, what, e.positions(t, c.q), c.want...)
	}
	for what, c := range map[string]struct {
		q    kms.TrailQuery
		want []string
	}{
		"all":        {kms.TrailQuery{}, []string{"a/6", "a/5", "a/4", "a/3", "a/2", "a/1", "b/2", "b/1"}},
		"by arrival": {kms.TrailQuery{Order: kms.ByArrival}, []string{"a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "b/1", "b/2"}},
		"a request":  {kms.TrailQuery{Request: entries[5].RequestID}, []string{"a/6"}},
		"behind":     {kms.TrailQuery{Order: kms.ByArrival, After: &kms.TrailPosition{Node: "b", Sequence: 1}}, []string{"b/2"}},
	} {
		wantPositions(t, "operators: "+what, e.positions(t, c.q), c.want...)
	}

	refused := func(what string, q kms.TrailQuery) {
		t.Helper()
		q.Page.Size = max(q.Page.Size, 1)
		_, err := e.TrailEntries(t.Context(), &q)
		wantKind(t, what, err, kms.KindInvalidArgument)
	}
	for _, of := range []uuid.UUID{mine, {}} {
		refused("behind one that is not there", kms.TrailQuery{Tenant: of, Order: kms.ByArrival, After: &kms.TrailPosition{Node: "a", Sequence: 99}})
	}
	refused("behind another's", kms.TrailQuery{Tenant: mine, Order: kms.ByArrival, After: &kms.TrailPosition{Node: "a", Sequence: 6}})
	page, err := e.TrailEntries(t.Context(), &kms.TrailQuery{Tenant: mine, Page: kms.Page{Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	refused("another's token", kms.TrailQuery{Tenant: other, Page: kms.Page{Size: 1, Token: page.Next}})
	refused("a token of the other order", kms.TrailQuery{Tenant: mine, Order: kms.ByArrival, Page: kms.Page{Size: 1, Token: page.Next}})
	refused("a page that is too large", kms.TrailQuery{Page: kms.Page{Size: kms.MaxPageSize + 1}})

	page, err = e.TrailEntries(t.Context(), &kms.TrailQuery{Tenant: mine, Order: kms.ByArrival, AtEnd: true, Page: kms.Page{Size: 10}})
	if err != nil || page.Resume == "" || page.Next != "" {
		t.Fatalf("at the end: %+v, %v", page, err)
	}
	e.ship(t, batchOf("a", head, trailEntry(mine, -100)))
	wantPositions(t, "what comes", e.positions(t, kms.TrailQuery{Tenant: mine, Order: kms.ByArrival, Page: kms.Page{Size: 10, Token: page.Resume}}), "a/7")
}

func testTrailTrim(t *testing.T, e *env) {
	tenant := uuid.NewV7()
	var entries []*kms.Entry
	for i := range 10 {
		entries = append(entries, trailEntry(tenant, i*86400))
	}
	head := e.ship(t, batchOf("a", kms.TrailHead{}, entries...))
	day := func(n int) time.Time { return start.AddDate(0, 0, n) }
	before := kms.TrailBounds{Entries: day(6), Usage: map[kms.Granularity]time.Time{kms.ByMinute: day(8), kms.ByHour: day(4), kms.ByDay: day(0)}}
	rounds := 1
	for more := true; more; rounds++ {
		var err error
		if more, err = e.TrimTrail(t.Context(), before, 2); err != nil {
			t.Fatal(err)
		}
	}
	if rounds < 4 {
		t.Errorf("it took %d rounds: the limit is not kept", rounds)
	}
	wantPositions(t, "entries", e.positions(t, kms.TrailQuery{}), "a/10", "a/9", "a/8", "a/7")
	for g, want := range map[kms.Granularity]int{kms.ByMinute: 1, kms.ByHour: 5, kms.ByDay: 9} {
		if rows := e.usage(t, kms.UsageQuery{Granularity: g, From: day(-1), To: day(11)}); len(rows) != want {
			t.Errorf("%s: %d rows are left, want %d", g, len(rows), want)
		}
	}
	// Ordinals are not given twice, so that nobody who follows misses any.
	page, err := e.TrailEntries(t.Context(), &kms.TrailQuery{Order: kms.ByArrival, AtEnd: true, Page: kms.Page{Size: 10}})
	if err != nil {
		t.Fatal(err)
	}
	before.Entries = day(20)
	for more := true; more; {
		if more, err = e.TrimTrail(t.Context(), before, 100); err != nil {
			t.Fatal(err)
		}
	}
	e.ship(t, batchOf("a", head, trailEntry(tenant, 0)))
	wantPositions(t, "what comes after all was removed", e.positions(t, kms.TrailQuery{Order: kms.ByArrival, Page: kms.Page{Size: 10, Token: page.Resume}}), "a/11")
}
