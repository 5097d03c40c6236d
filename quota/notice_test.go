package quota

import (
	"errors"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// A key is told of while its breaker is open, and not when it is called
// normally again or by nobody any more.
func TestHotKeysAreThoseWhoseBreakerIsOpen(t *testing.T) {
	for name, recovers := range map[string]bool{"it recovers": true, "nobody wants it": false} {
		t.Run(name, func(t *testing.T) {
			key := uuid.New()
			e := newTestEngine(t, kms.TierFree, func(p *Policy) { p.Tiers[kms.TierFree].RequestsPerSecond, p.Tiers[kms.TierFree].BurstRequests = 0, 0 })
			call := func() {
				r := e.costing(10)
				r.Key = key
				if res, err := e.AdmitRequest(r); err == nil {
					e.Settle(res, kms.Settlement{State: kms.Settled, Charged: 10 * kms.Credit, SlotTime: 1})
				}
			}
			for range 50 {
				call()
			}
			if hot := e.HotKeys(); len(hot) != 0 {
				t.Errorf("before the breaker opens: %v", hot)
			}
			for range 51 {
				call()
			}
			for range 2 { // asking changes nothing
				if hot := e.HotKeys(); len(hot) != 1 || hot[0] != (HotKey{testTenant, key}) {
					t.Errorf("while it is open: %v", hot)
				}
			}
			if recovers {
				e.clock.pass(time.Second)
				call() // the probe
			} else {
				e.clock.pass(12 * time.Second)
			}
			if hot := e.HotKeys(); len(hot) != 0 {
				t.Errorf("afterwards: %v", hot)
			}
			for i := range e.shards {
				if n := len(e.shards[i].hot); n != 0 {
					t.Errorf("%d are kept", n)
				}
			}
		})
	}
}

// The share is of the last one to two minutes: what a tenant did before is
// forgotten.
func TestRetryingTenantsAreThoseOfTheLastMinutes(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	for range 300 { // all at once: most are refused, and come too early after that
		if r, err := e.AdmitRequest(e.costing(10)); err == nil {
			e.Settle(r, settledInFull(r))
		}
	}
	list, all := e.Retrying(100, 100)
	if len(list) != 1 || list[0].Tenant != testTenant || list[0].Calls < 200 || list[0].Calls > 300 || list[0].Early < 200 || all.Calls != 300 || all.Early != list[0].Early {
		t.Errorf("retrying are %+v of %+v", list, all)
	}
	if list, _ := e.Retrying(301, 100); len(list) != 0 {
		t.Errorf("too few calls tell of %+v", list)
	}
	if list, _ := e.Retrying(100, 1000); len(list) != 0 {
		t.Errorf("beyond its share are %+v", list)
	}
	e.clock.pass(time.Minute)
	if _, all := e.Retrying(100, 100); all.Calls != 300 {
		t.Errorf("a minute later it is %+v", all)
	}
	e.clock.pass(time.Minute)
	if list, all := e.Retrying(100, 100); len(list) != 0 || all.Calls != 0 {
		t.Errorf("two minutes later it is %+v of %+v", list, all)
	}
	for i := range e.shards {
		if n := len(e.shards[i].early); n != 0 {
			t.Errorf("%d tenants are kept", n)
		}
	}
}

// What a tenant reads of its retries is what is counted, and tells what to do.
func TestTheAccountTellsHowRetryAfterIsObeyed(t *testing.T) {
	e := newTestEngine(t, kms.TierFree, nil)
	retries := func() kms.RetryContract { return e.Account(e.tenant).Retries }
	if r := retries(); r != (kms.RetryContract{}) || r.Note() != "" {
		t.Errorf("before: %+v", r)
	}
	for range 300 {
		if r, err := e.AdmitRequest(e.costing(10)); err == nil {
			e.Settle(r, settledInFull(r))
		}
	}
	r := retries()
	list, _ := e.Retrying(kms.RetryCalls, kms.RetryLine)
	if len(list) != 1 || r.Calls != list[0].Calls || r.Early != list[0].Early || r.Share() <= kms.RetryLine || r.Note() != "many calls come before their Retry-After is over: wait for it, each of them costs a tenth of a credit" {
		t.Errorf("%+v %q, told are %+v", r, r.Note(), list)
	}
	e.clock.pass(3 * time.Minute)
	if r := retries(); r.Note() != "" || r.Early != 0 {
		t.Errorf("minutes later: %+v", r)
	}
}

// Clients that all wait for exactly as long as the last of them was told come
// together; those that spread do not.
func TestCallsThatComeTogetherWhenARetryAfterEndsAreASpike(t *testing.T) {
	for name, tt := range map[string]struct {
		spread time.Duration
		spike  bool
	}{"together": {time.Millisecond, true}, "spread over a minute": {300 * time.Millisecond, false}} {
		t.Run(name, func(t *testing.T) {
			e := newTestEngine(t, kms.TierFree, nil)
			call := func() time.Duration {
				r, err := e.AdmitRequest(e.costing(10))
				if err == nil {
					e.Settle(r, settledInFull(r))
					return 0
				}
				refusal, _ := errors.AsType[*kms.Error](err)
				return refusal.RetryAfter
			}
			for range 60 { // the burst
				call()
			}
			told := call()
			if told == 0 {
				t.Fatal("nobody was refused")
			}
			e.clock.pass(told)
			for range 200 {
				if again := call(); again > 0 {
					// These are told anew and wait for that.
					e.clock.pass(again)
				}
				e.clock.pass(tt.spread)
			}
			r := e.Account(e.tenant).Retries
			t.Logf("%+v", r)
			if spike := r.Spike >= kms.SpikeLine; spike != tt.spike {
				t.Errorf("%+v", r)
			}
			list, _ := e.Retrying(kms.RetryCalls, kms.RetryLine)
			if (len(list) == 1) != tt.spike || (r.Note() != "") != tt.spike {
				t.Errorf("told are %+v, %q", list, r.Note())
			}
		})
	}
}
