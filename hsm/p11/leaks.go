package p11

import (
	"strings"

	"github.com/miekg/pkcs11"
)

// leaks are the modules that are known to lose memory with every key that is
// loaded, until they are finalised, by what their tokens say of themselves.
var leaks = []struct {
	model string
	// bytes lost per key.
	bytes uint64
}{
	// 248 bytes for AES to 341 for EC: C_DestroyObject of a session object
	// frees the key and not the object (SoftHSMv2 issues 562 and 563).
	{"SoftHSM v2", 341},
}

// leakBudget is how much a module may lose in one opening, in bytes: a quarter
// of a GiB is borne by every machine that serves, and opening SoftHSM anew
// every 780,000 loads costs nothing beside them.
const leakBudget = 256 << 20

// maxLoads is how many keys a token's module may load in one opening; 0: no
// leak is known.
func maxLoads(t pkcs11.TokenInfo) uint64 {
	for _, leak := range leaks {
		if strings.TrimSpace(t.Model) == leak.model {
			return leakBudget / leak.bytes
		}
	}
	return 0
}
