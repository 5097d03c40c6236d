package wire_test

import (
	"net/http"
	"testing"
	"time"
)

// Announcements make changes prompt; that none is missed rests on polling. A
// node that hears no announcement goes on serving, and a key that was disabled
// elsewhere is refused within the interval of the polls and what two of them
// take.
func TestNodeThatHearsNoAnnouncementsFollowsByPolling(t *testing.T) {
	const (
		interval = time.Second // keystore's pollInterval
		polled   = interval + interval/2
		retry    = 10 * time.Second // more than the longest wait between two attempts to listen
	)
	a, b, toDatabase := twoNodes(t)
	decrypt := ordersOn(t, a, b)
	serves := func() bool {
		status, code := decrypt()
		if status == http.StatusOK {
			return true
		}
		if status != http.StatusConflict && status != http.StatusNotFound {
			t.Fatalf("while it hears nothing: %d %s", status, code)
		}
		return false
	}
	refuses := func() bool { return !serves() }
	within(t, time.Second, "a new key", serves)
	within(t, retry, "listening", func() bool { n, _ := toDatabase.hearing(); return n > 0 })

	if toDatabase.deafen(true) == 0 {
		t.Fatal("no connection listened: this test cuts nothing")
	}
	var slowest time.Duration
	for range 3 {
		began := time.Now()
		must(t, a.Service, "/v1/keys/orders/disable", object{})
		within(t, polled, "disabling the key", refuses)
		slowest = max(slowest, time.Since(began))
		must(t, a.Service, "/v1/keys/orders/enable", object{})
		within(t, polled, "enabling the key", serves)
	}
	listeners, refused := toDatabase.hearing()
	if listeners > 0 || refused == 0 {
		t.Errorf("%d connections listened, %d were kept from it: the node heard announcements", listeners, refused)
	}
	t.Logf("disabled within %v by polling alone; %d attempts to listen were cut", slowest.Round(time.Millisecond), refused)

	toDatabase.deafen(false)
	within(t, retry, "listening again", func() bool { n, _ := toDatabase.hearing(); return n > 0 })
	must(t, a.Service, "/v1/keys/orders/disable", object{})
	within(t, time.Second, "disabling the key after it hears again", refuses)
}
