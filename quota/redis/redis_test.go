package redis

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/quota/inmem"
	"github.com/sluice-kms/sluice/quota/quotatest"
	"github.com/sluice-kms/sluice/quota/redis/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timed opens a store whose script takes the time from two keys, so that tests
// move it; the rest of the script is the one that runs.
func timed(t testing.TB, s *redistest.Server) *Store {
	t.Helper()
	store := open(t, s)
	const time = "local time = redis.call('TIME')"
	if !strings.Contains(source, time) {
		t.Fatal("the script takes its time from elsewhere")
	}
	store.script = redis.NewScript(strings.Replace(source, time, "local time = {redis.call('GET', 'seconds'), redis.call('GET', 'micros')}", 1))
	return store
}

// setTime sets the time of timed stores.
func setTime(t testing.TB, client redis.Cmdable, ms int64) {
	t.Helper()
	if err := client.MSet(context.Background(), "seconds", ms/1000, "micros", ms%1000*1000).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestSuite(t *testing.T) {
	s := redistest.Start(t)
	now := time.Date(2030, 3, 10, 6, 0, 0, 0, time.UTC).UnixMilli()
	quotatest.Suite{
		Open: func(t *testing.T) quota.Backing {
			store := timed(t, s)
			setTime(t, store.client, now)
			return store
		},
		Pass: func(t *testing.T, b quota.Backing, ms int64) {
			now += ms
			setTime(t, b.(*Store).client, now)
		},
		Flush: func(t *testing.T, b quota.Backing) {
			s.Do("FLUSHALL")
			setTime(t, b.(*Store).client, now)
		},
	}.Run(t)
}

// Whatever is claimed, the script answers what the reference does, to the last
// digit.
func TestScriptDecidesAsTheReference(t *testing.T) {
	s := redistest.Start(t)
	store := timed(t, s)
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Date(2030, 3, 10, 6, 0, 0, 0, time.UTC).UnixMilli()
		reference := inmem.New(func() time.Time { return time.UnixMilli(now) })
		tenant := uuid.New()
		limits := drawLimits(rt)
		var sequences [3]uint64
		for range rapid.IntRange(1, 25).Draw(rt, "claims") {
			now += rapid.SampledFrom([]int64{0, 1, 20, 100, 100, 251, 3001, 100_000, 3_700_000, -50}).Draw(rt, "pass")
			setTime(t, store.client, now)
			node := rapid.IntRange(0, 2).Draw(rt, "node")
			if rapid.IntRange(0, 9).Draw(rt, "repeat") > 0 {
				sequences[node]++
			}
			c := quota.Claim{
				Tenant: tenant, Node: fmt.Sprint("node-", node), Epoch: 1<<52 - uint64(node), Sequence: sequences[node], PeriodMs: 250, SlotsMs: 3000,
			}
			for _, l := range limits {
				c.Lines = append(c.Lines, drawClaim(rt, l))
			}
			want, err := reference.Exchange(context.Background(), []quota.Claim{c})
			if err != nil {
				rt.Fatal(err)
			}
			got, err := store.Exchange(context.Background(), []quota.Claim{c})
			if err != nil {
				rt.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				rt.Fatalf("claim %+v\nscript    %+v\nreference %+v", c, got, want)
			}
		}
	})
}

// drawLimits draws one line of each kind, up to the largest of a policy.
func drawLimits(t *rapid.T) []quota.LineClaim {
	rate := rapid.Int64Range(1, 1_000_000_000).Draw(t, "rate")
	total := rapid.Int64Range(1, 90_000_000_000_000).Draw(t, "total")
	return []quota.LineClaim{
		{Name: "t.c", Kind: quota.RateLine, PerSecond: rate, Limit: rapid.Int64Range(rate, max(rate, 4_000_000_000)).Draw(t, "burst"),
			Overdraft: rapid.Int64Range(0, 4_000_000_000).Draw(t, "overdraft"), Repay: rapid.Int64Range(0, 1000).Draw(t, "repay")},
		{Name: "t.e", Kind: quota.TotalLine, Limit: total, Pool: rapid.Int64Range(0, total).Draw(t, "pool"), Repay: 300, Notch: 800, Window: 21_900},
		{Name: "t.m", Kind: quota.TotalLine, Limit: 31 * total, Window: 24_363},
		{Name: "n.s", Kind: quota.NodeLine, Limit: rapid.Int64Range(1, 65_536).Draw(t, "node slots")},
		{Name: "t.s", Kind: quota.SlotLine, Limit: rapid.Int64Range(1, 65_536).Draw(t, "slots")},
	}
}

func drawClaim(t *rapid.T, l quota.LineClaim) quota.LineClaim {
	amount := func(name string) int64 {
		return rapid.SampledFrom([]int64{0, 0, 1}).Draw(t, name+"?") * rapid.Int64Range(0, l.Limit).Draw(t, name)
	}
	l.Returned, l.Extra, l.Ask, l.Head, l.Held = amount("returned"), amount("extra"), amount("ask"), amount("head"), amount("held")
	switch l.Kind {
	case quota.RateLine:
		l.Demand = rapid.Int64Range(0, 4*l.PerSecond).Draw(t, "demand")
	case quota.NodeLine:
		l.Weight = rapid.Int64Range(0, quota.MaxWeight).Draw(t, "weight")
	case quota.TotalLine:
		l.Window += rapid.SampledFrom([]int64{0, 0, 0, 1, 1, 2, 5, 2000}).Draw(t, "window")
		if rapid.IntRange(0, 4).Draw(t, "knows") == 0 {
			l.KnownBorn, l.Known, l.KnownPool = rapid.Int64Range(1, 1e13).Draw(t, "born"), amount("known"), min(amount("known pool"), l.Pool)
			l.KnownLowered = rapid.Bool().Draw(t, "known lowered")
		}
	}
	return l
}

func TestRedisThatMayEvictIsRefused(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
	_, err := Open(context.Background(), Config{Addresses: []string{s.Address()}, Dial: time.Second})
	if !errors.Is(err, ErrEviction) {
		t.Errorf("got %v", err)
	}
	s.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	open(t, s)
}

func TestRedisThatIsAwayIsAnErrorAtTheStart(t *testing.T) {
	s := redistest.Start(t)
	s.End()
	_, err := Open(context.Background(), Config{Addresses: []string{s.Address()}, Dial: time.Second})
	if err == nil || errors.Is(err, ErrEviction) {
		t.Errorf("got %v", err)
	}
}

// Somebody wrote something else where a line should be.
func TestNonsenseInRedisCountsAsNothing(t *testing.T) {
	s := redistest.Start(t)
	store := open(t, s)
	c := quota.Claim{Tenant: uuid.New(), Node: "a", Epoch: 1, Sequence: 1, PeriodMs: 250, SlotsMs: 3000, Lines: []quota.LineClaim{
		{Name: "t.c", Kind: quota.RateLine, Limit: 3000, PerSecond: 1000, Ask: 3000},
	}}
	keys, _ := encode(&c)
	for _, field := range []string{"l:t.c", "n:a", "n:b", "at"} {
		s.Do("HSET", keys[0], field, "\xc1nonsense")
	}
	grants, err := store.Exchange(context.Background(), []quota.Claim{c})
	if err != nil || grants[0].Lines[0].Tokens != 1500 {
		t.Errorf("got %+v, %v", grants, err)
	}
	s.Do("DEL", keys[0])
	s.Do("SET", keys[0], "a string")
	if _, err := store.Exchange(context.Background(), []quota.Claim{c}); err == nil {
		t.Error("a key of another type is no error")
	}
}

func TestScriptFlushedIsSentAgain(t *testing.T) {
	s := redistest.Start(t)
	store := open(t, s)
	claim := func(sequence uint64) {
		t.Helper()
		if _, err := store.Exchange(context.Background(), []quota.Claim{
			{Tenant: uuid.New(), Node: "a", Epoch: 1, Sequence: sequence, PeriodMs: 250, SlotsMs: 3000}}); err != nil {
			t.Fatal(err)
		}
	}
	claim(1)
	s.Do("SCRIPT", "FLUSH")
	claim(2)
}

func open(t testing.TB, s *redistest.Server) *Store {
	t.Helper()
	store, err := Open(context.Background(), Config{Addresses: []string{s.Address()}, Dial: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}
