package main

import (
	"context"
	"time"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/bench/servers"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// trouble is something that happens to a token, and its end.
type trouble struct {
	name       string
	begin, end func(*fault.Module)
}

// errorRate is of the calls that fail in "errors now and then".
const errorRate = 0.02

var troubles = []trouble{
	{"slow", func(m *fault.Module) { m.SlowDown(10) }, func(m *fault.Module) { m.SlowDown(1) }},
	{"errors now and then", func(m *fault.Module) { m.FailRate(fault.Sign, pkcs11.CKR_DEVICE_ERROR, errorRate) },
		func(m *fault.Module) { m.FailRate(fault.Sign, pkcs11.CKR_OK, 0) }},
	{"dead", func(m *fault.Module) { m.Die(pkcs11.CKR_DEVICE_REMOVED) }, (*fault.Module).Revive},
	{"restarted", (*fault.Module).Reset, func(*fault.Module) {}},
}

// Service times of the tokens: short, and long enough that "slow" is felt.
const serviceTime = 500 * time.Microsecond

func setTimes(modules servers.HSMs) {
	for _, m := range modules {
		m.SetEngines(engines)
		for _, f := range []fault.Function{fault.Encrypt, fault.Sign} {
			m.SetService(f, serviceTime, serviceTime)
		}
	}
}

// torment gives the tokens trouble, one at a time and another one each time,
// until ctx ends; then all are well. As long as the trouble lasted, all are left
// alone after it, so that a token can come back before the next one goes.
func torment(ctx context.Context, modules servers.HSMs, each time.Duration, tell func(node int, what string)) {
	for i := 0; ; i++ {
		m, t := modules[i%len(modules)], troubles[i/len(modules)%len(troubles)]
		t.begin(m)
		tell(i%len(modules)+1, t.name)
		on := pause(ctx, each)
		t.end(m)
		if !on || !pause(ctx, each) {
			return
		}
	}
}

// pause waits and tells whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
