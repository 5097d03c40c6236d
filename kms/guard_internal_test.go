package kms

import (
	"testing"
	"time"
	"uuid"
)

// RFC 6238, appendix B, of which six digits are the last.
func TestOneTimeCodesAreThoseOfRFC6238(t *testing.T) {
	key := []byte("12345678901234567890")
	for at, want := range map[int64]string{
		59: "287082", 1111111109: "081804", 1111111111: "050471", 1234567890: "005924", 2000000000: "279037", 20000000000: "353130",
	} {
		code := oneTimeCode(key, uint64(at)/oneTimePeriod)
		if string(code[:]) != want {
			t.Errorf("at %d: %s, want %s", at, code, want)
		}
	}
}

func TestAOneTimeCodeIsGoodAMinuteAndOnce(t *testing.T) {
	key := newOneTimeKey()
	now := time.Unix(1_800_000_010, 0)
	step := uint64(now.Unix()) / oneTimePeriod
	for skew := -3; skew <= 3; skew++ {
		code := oneTimeCode(key, step+uint64(skew))
		got := oneTimeStep(key, string(code[:]), now, 0)
		if want := step + uint64(skew); skew >= -1 && skew <= 1 && got != want || (skew < -1 || skew > 1) && got == want {
			t.Errorf("%d periods away: step %d", skew, got)
		}
	}
	code := oneTimeCode(key, step)
	if got := oneTimeStep(key, string(code[:]), now, step); got != 0 {
		t.Error("a code is good twice")
	}
	earlier := oneTimeCode(key, step-1)
	if got := oneTimeStep(key, string(earlier[:]), now, step); got == step-1 {
		t.Error("a code from before the last one is good")
	}
	for _, text := range []string{"", "12345", "1234567", "12345a", "+12345", "-12345", "１23"} {
		if validOneTimeCode(text) {
			t.Errorf("%q is a code", text)
		}
	}
}

func TestAThrottledCredentialGetsItsPartOfTheRate(t *testing.T) {
	var b guardBook
	id, now := uuid.NewV7(), time.Unix(1_800_000_000, 0)
	const perSecond, cost = 20 * Credit, 5 * Credit
	admitted := 0
	for range 10 * 100 { // ten seconds, in hundredths
		now = now.Add(10 * time.Millisecond)
		if b.wait(id, perSecond, now) == 0 {
			b.charge(id, cost)
			admitted++
		}
	}
	// The bucket is full at first and may owe one call at the end.
	if used := Credits(admitted) * cost; used < 10*perSecond-cost || used > 11*perSecond+cost {
		t.Errorf("%d credits in 10 s", used/Credit)
	}
	b.charge(id, 100*Credit)
	wait := b.wait(id, perSecond, now)
	if wait <= 0 || b.wait(id, perSecond, now.Add(wait-10*time.Millisecond)) == 0 || b.wait(id, perSecond, now.Add(wait+time.Microsecond)) != 0 {
		t.Errorf("who waits for %v does not get on then, or gets on before", wait)
	}
}

func TestWrongSecondFactorsAreFew(t *testing.T) {
	var b guardBook
	id, now := uuid.NewV7(), time.Unix(1_800_000_000, 0)
	tries := 0
	for range 24 * 60 {
		now = now.Add(time.Minute)
		if ok, wait := b.mayTry(id, now); ok {
			tries++
		} else if wait <= 0 || wait > factorWindow {
			t.Fatalf("wait %v", wait)
		}
	}
	if want := factorTries * 24 * int(time.Hour/factorWindow); tries != want {
		t.Errorf("%d tries in a day, want %d", tries, want)
	}
}

func TestTheBookOfFlaggedCredentialsIsBounded(t *testing.T) {
	var b guardBook
	now := time.Unix(1_800_000_000, 0)
	for range maxGuarded + 10 {
		b.wait(uuid.NewV7(), Credit, now)
	}
	if len(b.all) > maxGuarded {
		t.Errorf("%d are kept", len(b.all))
	}
}
