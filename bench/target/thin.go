package target

import (
	"fmt"

	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/bench/scenarios"
)

// thinRequests are those of the thin wrapper, which has one key of each kind
// however many a stream has.
func thinRequests(st *scenarios.Stream) ([]load.Request, error) {
	for _, has := range []struct {
		operation         scenarios.Operation
		spec, path, field string
	}{
		{scenarios.Encrypt, "AES_256", "/encrypt", "plaintext"},
		{scenarios.Sign, "ECC_NIST_P256", "/sign/ec", "message"},
		{scenarios.Sign, "RSA_2048", "/sign/rsa", "message"},
	} {
		if has.operation == st.Operation && has.spec == st.Spec {
			return []load.Request{{Path: has.path, Body: `{"` + has.field + `":"` + input(st) + `"}`}}, nil
		}
	}
	return nil, fmt.Errorf("the thin wrapper cannot %s with %s", st.Operation, st.Spec)
}
