package abuse

import (
	"net/netip"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// ticketOf is the ticket of a usual request.
func ticketOf() *kms.Ticket {
	return &kms.Ticket{By: &kms.Principal{Tenant: &kms.Tenant{ID: testID(1)}, Credential: testID(2)}, Received: monday, Elapsed: time.Millisecond,
		Address: addr("192.0.2.7"), UserAgent: "sluice-go/1.4.7 (linux; amd64)", Op: kms.OpSign, Bytes: 300}
}

func TestARequestIsObservedAsWhatItWas(t *testing.T) {
	h := Hasher{Seed: 1}
	usual := Observation{Tenant: testID(1), Credential: testID(2), At: monday.Add(time.Millisecond), Network: h.Network(testID(2), addr("192.0.2.7")),
		Client: ClientOf("sluice-go/1.4.7 (linux; amd64)"), Operation: opSign, Size: 9}
	for name, tt := range map[string]struct {
		change func(*kms.Ticket)
		err    error
		want   func(*Observation)
	}{
		"fine":             {nil, nil, nil},
		"denied":           {nil, kms.ErrPermissionDenied, func(o *Observation) { o.Outcome = Denied }},
		"missing":          {nil, kms.ErrNotFound, func(o *Observation) { o.Outcome = Denied }},
		"a part is denied": {func(t *kms.Ticket) { t.Denied = 1 }, nil, func(o *Observation) { o.Outcome = Denied }},
		"refused":          {nil, &kms.Error{Kind: kms.KindQuotaExceeded, RetryAfter: time.Second}, func(o *Observation) { o.Outcome, o.RetryAfter = Refused, time.Second }},
		"failed":           {nil, kms.Errorf(kms.KindDecryptionFailed, "x"), func(o *Observation) { o.Outcome = Failed }},
		"flagged": {func(t *kms.Ticket) {
			t.By.Guard = &kms.Guard{Flagged: monday, Cleared: monday.Add(1), Ends: monday.Add(2)}
		}, nil,
			func(o *Observation) { o.Flagged, o.Cleared, o.Ends = monday, monday.Add(1), monday.Add(2) }},
		"without bytes": {func(t *kms.Ticket) { t.Bytes = 0 }, nil, func(o *Observation) { o.Size = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			ticket, want := ticketOf(), usual
			if tt.change != nil {
				tt.change(ticket)
			}
			if tt.want != nil {
				tt.want(&want)
			}
			if got, ok := h.Of(ticket, tt.err); !ok || got != want {
				t.Errorf("%+v\n%+v", got, want)
			}
		})
	}
	job := ticketOf()
	job.Address = netip.Addr{}
	if _, ok := h.Of(job, nil); ok {
		t.Error("an item of a job is observed")
	}
	for name, by := range map[string]*kms.Principal{"nobody": nil, "the service itself": {Tenant: &kms.Tenant{}}, "no tenant": {Credential: uuid.New()}} {
		if _, ok := h.Of(&kms.Ticket{By: by, Address: addr("192.0.2.7")}, nil); ok {
			t.Errorf("%s is observed", name)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	d := NewDetector(MaxCredentials)
	h, t := Hasher{Seed: 1}, ticketOf()
	b.ReportAllocs()
	for i := range b.N {
		t.Received = monday.Add(time.Duration(i) * time.Millisecond)
		if o, ok := h.Of(t, nil); ok {
			d.Observe(&o)
		}
	}
}
