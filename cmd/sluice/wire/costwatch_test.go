package wire

import (
	"context"
	"log/slog"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// costScene is an engine, a store and receivers of events that do as they are
// told.
type costScene struct {
	events   []quota.CostEvent // of the next look
	open     []quota.CostOpen
	lifted   map[uuid.UUID]time.Time // here
	storeErr error
	stored   []*kms.CostIncident
	lift     map[uuid.UUID]time.Time // in the store
	told     []kms.Event
}

func (s *costScene) WatchCosts() (list []quota.CostEvent) {
	list, s.events = s.events, nil
	return list
}
func (s *costScene) OpenCosts() []quota.CostOpen { return s.open }
func (s *costScene) CostStages() [4]int          { return [4]int{} }
func (s *costScene) LiftCost(tenant uuid.UUID, at time.Time) bool {
	s.lifted[tenant] = at
	return true
}
func (s *costScene) Publish(e kms.Event) { s.told = append(s.told, e) }
func (s *costScene) AddCostIncident(_ context.Context, i *kms.CostIncident) error {
	if s.storeErr == nil {
		s.stored = append(s.stored, i)
	}
	return s.storeErr
}
func (s *costScene) CostIncident(context.Context, uuid.UUID, uuid.UUID) (*kms.CostIncident, error) {
	return nil, kms.ErrNotFound
}
func (s *costScene) ListCostIncidents(context.Context, uuid.UUID, kms.Page) ([]*kms.CostIncident, string, error) {
	return nil, "", nil
}
func (s *costScene) NoteCostLift(context.Context, uuid.UUID) error { return nil }
func (s *costScene) CostLifted(_ context.Context, tenant uuid.UUID) (time.Time, error) {
	return s.lift[tenant], s.storeErr
}

func newCostScene(t *testing.T) (*costScene, *costs) {
	s := &costScene{lifted: map[uuid.UUID]time.Time{}, lift: map[uuid.UUID]time.Time{}}
	return s, &costs{engine: s, store: s, events: s, node: "api-1", log: slog.New(slog.DiscardHandler), running: t.Context()}
}

func TestIncidentsWaitForTheStoreAndAreToldOfWhenTheyAreThere(t *testing.T) {
	s, c := newCostScene(t)
	s.storeErr = kms.Errorf(kms.KindStoreUnavailable, "away")
	for range maxIncidents + 5 {
		s.events = append(s.events, quota.CostEvent{Tenant: uuid.New(), Incident: &kms.CostIncident{}})
	}
	c.look()
	if len(s.told) != 0 || len(c.waiting) != maxIncidents {
		t.Fatalf("%d are told of and %d wait while the store is away", len(s.told), len(c.waiting))
	}
	s.storeErr = nil
	c.look()
	if len(s.stored) != maxIncidents || len(s.told) != maxIncidents || len(c.waiting) != 0 {
		t.Errorf("%d are stored, %d are told of, %d wait", len(s.stored), len(s.told), len(c.waiting))
	}
	ids := map[uuid.UUID]bool{}
	for n, i := range s.stored {
		if ids[i.ID] || i.Node != "api-1" || s.told[n].Type != kms.EventCostRecovered {
			t.Fatalf("%+v is told of as %+v", i, s.told[n])
		}
		ids[i.ID] = true
	}
	s.storeErr = kms.ErrNotFound // the tenant is gone
	s.events = []quota.CostEvent{{Incident: &kms.CostIncident{}}}
	c.look()
	if len(c.waiting) != 0 || len(s.told) != maxIncidents {
		t.Error("what can never be stored waits, or is told of")
	}
}

func TestLiftByAnotherNodeIsFollowed(t *testing.T) {
	s, c := newCostScene(t)
	began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	lifted, earlier, never := uuid.New(), uuid.New(), uuid.New()
	s.open = []quota.CostOpen{{Tenant: lifted, Began: began}, {Tenant: earlier, Began: began}, {Tenant: never, Began: began}}
	s.lift = map[uuid.UUID]time.Time{lifted: began.Add(time.Minute), earlier: began.Add(-time.Minute)}
	c.follow()
	if len(s.lifted) != 1 || s.lifted[lifted].IsZero() {
		t.Errorf("lifted are %v, want %v alone", s.lifted, lifted)
	}
}
