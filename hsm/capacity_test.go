package hsm

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// A token that is out of something gets less work at once, at least one call at
// a time, and more again as it bears it.
func TestCapacityErrorsShrinkTheSlotsAndTheyGrowBack(t *testing.T) {
	var told []int
	now := time.Now()
	c := newCapacity(16, func(n int) { told = append(told, n) })
	c.shrink(now)
	c.shrink(now.Add(shrinkPause / 2)) // of the same shortage
	if got := c.slots(); got != 12 {
		t.Fatalf("%d slots after one shortage of 16, want 12", got)
	}
	for range 500 { // errors without a pause between them
		now = now.Add(shrinkPause / 10)
		c.shrink(now)
	}
	if got := c.slots(); got != 1 {
		t.Fatalf("%d slots after many shortages, want 1", got)
	}
	c.grow(now.Add(growPause / 2))
	if got := c.slots(); got != 1 {
		t.Fatalf("%d slots half a pause after a shortage, want 1", got)
	}
	for i := range 20 {
		now = now.Add(growPause)
		c.grow(now)
		if want := min(16, 2+i); c.slots() != want {
			t.Fatalf("%d slots after %d pauses, want %d", c.slots(), i+1, want)
		}
	}
	if !slices.Equal(told[:3], []int{12, 9, 7}) || told[len(told)-1] != 16 {
		t.Errorf("told %v", told)
	}
}

// fewSessions is a token that grants only so many sessions.
type fewSessions struct {
	canaryToken
	left int
}

func (t *fewSessions) NewSession() (Session, error) {
	if t.left == 0 {
		return nil, &Error{Class: ClassCapacity, Call: "C_OpenSession", Code: 0xb1}
	}
	t.left--
	return t.canaryToken.NewSession()
}

// A token that grants fewer sessions than the configuration hopes for serves
// with what it grants; one without room for a single slot does not join.
func TestTokenWithFewSessionsServesWithFewSlots(t *testing.T) {
	seatOf := func() *seat {
		return &seat{config: NodeConfig{ID: "n", Slots: 8}, device: &Device{}, log: slog.New(slog.DiscardHandler), clock: time.Now}
	}
	n, err := newNode(seatOf(), &fewSessions{left: 2 + 3})
	if err != nil {
		t.Fatal(err)
	}
	if n.slots != 3 || n.capacity.slots() != 3 {
		t.Errorf("%d slots, %d given out, want 3", n.slots, n.capacity.slots())
	}
	n.close()
	if _, err := newNode(seatOf(), &fewSessions{left: 2}); ClassOf(err) != ClassCapacity {
		t.Errorf("a token without room for a slot: %v", err)
	}
}

// Utilisation is slot time over time and slots, and what it was in the last
// second.
func TestUtilisationIsTheShareOfSlotTimeUsed(t *testing.T) {
	s := &seat{}
	now := time.Now()
	read := func(after, busy time.Duration) float64 {
		now = now.Add(after)
		s.meter.read(now, int64(busy), 4)
		return s.utilisation()
	}
	if got := read(0, 10*time.Second); got != 0 {
		t.Errorf("%v before anything was measured", got)
	}
	if got := read(time.Second, 12*time.Second); got != 0.5 {
		t.Errorf("2 s of 4 slots in a second are %v", got)
	}
	if got := read(time.Second/2, 14*time.Second); got != 0.5 {
		t.Errorf("half a second later it is %v", got)
	}
	if got := read(time.Second/2, 30*time.Second); got != 1 {
		t.Errorf("more than there is, as for calls longer than a second, is %v", got)
	}
}

// What is counted of a node outlives its epochs, by class of error.
func TestFaultsAreCountedByClass(t *testing.T) {
	var c tally
	c.fault(ClassTokenDown)
	c.fault(ClassTokenDown)
	c.fault(ClassOf(errors.New("no class")))
	got := c.faultsByClass()
	if got["token down"] != 2 || got["ambiguous"] != 1 || len(got) != 2 || c.errors.Load() != 3 {
		t.Errorf("%v of %d", got, c.errors.Load())
	}
	c.loaded("EC", 800)
	c.loaded("EC", 1600)
	if cost := c.loadCosts()["EC"]; cost != 900 {
		t.Errorf("the average of 800 and 1600, weighed an eighth, is %d", cost)
	}
}
