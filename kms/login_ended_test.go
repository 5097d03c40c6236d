package kms

import (
	"encoding/binary"
	"testing"
	"time"
)

func TestEndedLoginsAreBoundedAndForgottenWithTheirTime(t *testing.T) {
	var e endedLogins
	now := time.Unix(1_800_000_000, 0)
	nonce := func(i int) loginNonce { return loginNonce(binary.BigEndian.AppendUint64(nil, uint64(i))) }
	for i := range maxEndedLogins {
		end := now.Add(time.Hour)
		if i%2 == 0 {
			end = now.Add(time.Minute)
		}
		if !e.add(nonce(i), end, now) {
			t.Fatalf("number %d has no room", i)
		}
	}
	if e.add(nonce(maxEndedLogins), now.Add(time.Hour), now) {
		t.Error("there is room for one more")
	}
	if !e.has(nonce(0)) || e.has(nonce(maxEndedLogins)) {
		t.Error("what was noted is not what is known")
	}
	if later := now.Add(time.Minute); !e.add(nonce(maxEndedLogins), now.Add(time.Hour), later) {
		t.Error("there is no room although half of them would have ended")
	}
	if len(e.ends) != maxEndedLogins/2+1 || e.has(nonce(0)) || !e.has(nonce(1)) {
		t.Errorf("%d are remembered", len(e.ends))
	}
}
