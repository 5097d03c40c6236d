package quota

import (
	"errors"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// leaseWait bounds the wait for a lease, three ticks of the exchange, and
// leasePoll is how often it is looked for.
const (
	leaseWait = 300 * time.Millisecond
	leasePoll = 5 * time.Millisecond
)

// AwaitLease admits a request on a node that shares limits. The node has no
// lease for a tenant that has not come for a while, and may let one request
// through without; those after it wait here until the lease has come, which is
// asked for at once and takes a few milliseconds. Refused, they would be told to
// come back by a node that knows nothing yet of the others.
func AwaitLease(admit func(*kms.AdmitRequest) (kms.Reservation, error), r *kms.AdmitRequest) (kms.Reservation, error) {
	reservation, err := admit(r)
	if !waitsForLease(err) {
		return reservation, err
	}
	began := time.Now()
	for waited := time.Duration(0); waited < leaseWait && waitsForLease(err); waited += leasePoll {
		time.Sleep(leasePoll)
		reservation, err = admit(r)
	}
	reservation.LeaseWait = time.Since(began)
	return reservation, err
}

// waitsForLease tells whether nothing but missing leases refuses a request.
func waitsForLease(err error) bool {
	e, ok := errors.AsType[*kms.Error](err)
	if !ok || len(e.Reasons) == 0 {
		return false
	}
	for _, reason := range e.Reasons {
		if reason.Code != ReasonLease {
			return false
		}
	}
	return true
}
