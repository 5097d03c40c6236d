package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/sluice-kms/sluice/egress"
	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/keystore/postgres"
	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
	"github.com/sluice-kms/sluice/keystore/sqlite"
	"github.com/sluice-kms/sluice/keystore/storetest"
	"github.com/sluice-kms/sluice/kms"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := pgtest.Stop(); err != nil {
		panic(err)
	}
	if err := goleak.Find(); err != nil && code == 0 {
		panic(err)
	}
	if code != 0 {
		panic("tests failed")
	}
}

// canary stands for every webhook's secret.
const canary = "the-canary-secret-of-a-webhook!!"

// sealing seals by turning the bytes round.
type sealing struct{}

func (sealing) Unseal(_ context.Context, k kms.SealingKey, name string, version uint32, blob []byte) ([]byte, error) {
	if version != 1 || !strings.HasPrefix(name, "webhook ") {
		return nil, errors.New("another name")
	}
	blob = slices.Clone(blob)
	slices.Reverse(blob)
	return blob, nil
}

func sealed() []byte {
	b := []byte(canary)
	slices.Reverse(b)
	return b
}

// stage is a store on a real database, with a clock that stands still until it
// is set.
type stage struct {
	t      *testing.T
	store  *keystore.Store
	system uuid.UUID
	logs   *bytes.Buffer
	log    *slog.Logger

	mu  sync.Mutex
	now time.Time
}

func (s *stage) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// onEach runs a test on every database.
func onEach(t *testing.T, test func(*testing.T, *stage)) {
	t.Run("SQLite", func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sluice.db"))
		if err != nil {
			t.Fatal(err)
		}
		test(t, newStage(t, db))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		urls := pgtest.Require(t).EmptyDatabase(t)
		db, err := postgres.Open(t.Context(), postgres.Config{URL: urls.Service, OwnerURL: urls.Owner})
		if err != nil {
			t.Fatal(err)
		}
		test(t, newStage(t, db))
	})
}

// lockedLog is a log that several goroutines write.
type lockedLog struct {
	mu sync.Mutex
	b  *bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func newStage(t *testing.T, driver keystore.Driver) *stage {
	t.Helper()
	s := &stage{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), logs: &bytes.Buffer{}}
	s.log = slog.New(slog.NewJSONHandler(&lockedLog{b: s.logs}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.store = keystore.New(driver, keystore.Options{Now: s.clock})
	t.Cleanup(func() {
		if err := s.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := storetest.Bootstrap(t.Context(), s.store, nil); err != nil {
		t.Fatal(err)
	}
	system, err := s.store.TenantByRef(t.Context(), kms.SystemTenantName)
	if err != nil {
		t.Fatal(err)
	}
	s.system = system.ID
	return s
}

func (s *stage) tenant(name string) uuid.UUID {
	s.t.Helper()
	id := uuid.NewV7()
	err := s.store.CreateTenant(s.t.Context(), &kms.Tenant{ID: id, Name: name, Tier: kms.TierFree, State: kms.TenantActive, Revision: 1, Created: s.clock(),
		Sealing: kms.SealingKey{ID: uuid.NewV7(), Tenant: id, Domain: uuid.NewV7(), RootGeneration: 1, Wrapped: []byte("wrapped")}})
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s *stage) webhook(tenant uuid.UUID, url string, types ...kms.EventType) *kms.Webhook {
	s.t.Helper()
	w := &kms.Webhook{ID: uuid.NewV7(), Tenant: tenant, URL: url, Types: types, Secret: sealed(), State: kms.WebhookActive, Created: s.clock(), Revision: 1}
	if err := s.store.CreateWebhook(s.t.Context(), w); err != nil {
		s.t.Fatal(err)
	}
	return w
}

// notifier starts one of several API nodes.
func (s *stage) notifier(change ...func(*Config)) *Notifier {
	s.t.Helper()
	guard := &egress.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	c := Config{
		Webhooks: s.store, Deliveries: s.store, Tenants: s.store, Secrets: sealing{}, System: s.system,
		Post:   func(r *http.Request) (*http.Response, error) { return guard.RoundTrip(r, nil) },
		GiveUp: 72 * time.Hour, DisableAfter: 120 * time.Hour, Log: s.log, Clock: s.clock, Registerer: prometheus.NewRegistry(),
	}
	for _, f := range change {
		f(&c)
	}
	n := New(c)
	s.t.Cleanup(func() {
		if n.running.Err() == nil {
			n.Close()
		}
	})
	return n
}

// pass lets time go by and has the sender look.
func (s *stage) pass(d time.Duration, n *Notifier) {
	s.mu.Lock()
	s.now = s.now.Add(d)
	s.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func quotaEvent(tenant uuid.UUID) kms.Event {
	return kms.Event{Type: kms.EventDaySoft, Tenant: tenant, Fields: []kms.EventField{
		{Name: "window", Value: "20260301"}, {Name: "used", Value: "800"}, {Name: "limit", Value: "1000"}}}
}

// received is one delivery as it came.
type received struct {
	header http.Header
	body   []byte
}

// receiver is a server that takes deliveries, or answers as it is told.
type receiver struct {
	*httptest.Server
	got    chan received
	status func() int
}

func newReceiver(t *testing.T, status func() int) *receiver {
	r := &receiver{got: make(chan received, 1000), status: status}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil || q.Method != http.MethodPost {
			t.Errorf("%s, %v", q.Method, err)
		}
		r.got <- received{q.Header.Clone(), body}
		if r.status != nil {
			w.WriteHeader(r.status())
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// patience bounds what is expected to happen at once.
const patience = 30 * time.Second

func (r *receiver) next(t *testing.T) received {
	t.Helper()
	select {
	case got := <-r.got:
		return got
	case <-time.After(patience):
		t.Fatal("nothing was delivered")
		panic("unreachable")
	}
}

// until waits for something that happens at once but in another goroutine.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("it did not come to %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// The signature is computed as the specification says, apart from the code.
func checkSignature(t *testing.T, d received) {
	t.Helper()
	id, timestamp := d.header.Get("webhook-id"), d.header.Get("webhook-timestamp")
	if _, err := strconv.ParseInt(timestamp, 10, 64); err != nil || id == "" {
		t.Errorf("id %q, timestamp %q", id, timestamp)
	}
	mac := hmac.New(sha256.New, []byte(canary))
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, d.body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); d.header.Get("webhook-signature") != want {
		t.Errorf("the signature is %q, want %q", d.header.Get("webhook-signature"), want)
	}
}

// The vector of the specification's own documentation.
func TestSignatureIsThatOfStandardWebhooks(t *testing.T) {
	secret, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	sign(h, secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got := h.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("the signature is %s", got)
	}
}

func TestEventReachesWhoWantsItSignedAndOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		acme, rival := s.tenant("acme"), s.tenant("rival")
		wants, operators, other, nodes := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil)
		s.webhook(acme, wants.URL, kms.EventDaySoft)
		s.webhook(s.system, operators.URL)
		s.webhook(acme, other.URL, kms.EventMonthSoft)
		s.webhook(rival, other.URL)
		s.webhook(acme, nodes.URL, kms.EventNodeDown) // not theirs to have
		n := s.notifier()
		n.Publish(quotaEvent(acme))
		d := wants.next(t)
		checkSignature(t, d)
		checkSignature(t, operators.next(t))
		var body struct {
			ID, Type, Severity, Tenant string
			Timestamp                  time.Time
			Data                       map[string]string
		}
		if err := json.Unmarshal(d.body, &body, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatalf("%v in %s", err, d.body)
		}
		if body.ID != d.header.Get("webhook-id") || body.Type != "quota.day_soft_limit" || body.Severity != "warning" || body.Tenant != acme.String() ||
			!body.Timestamp.Equal(s.clock()) || body.Data["used"] != "800" || body.Data["limit"] != "1000" || body.Data["window"] != "20260301" {
			t.Errorf("the body is %s", d.body)
		}
		if id, err := uuid.Parse(body.ID); err != nil || id[6]>>4 != 7 {
			t.Errorf("the id is %s", body.ID)
		}
		n.Publish(kms.Event{Type: kms.EventNodeDown, Fields: []kms.EventField{{Name: "node", Value: "node-1"}}})
		if got := operators.next(t); !strings.Contains(string(got.body), "node.down") {
			t.Errorf("operators get %s", got.body)
		}
		until(t, "the ends of deliveries", func() bool {
			w, _, err := s.store.ListWebhooks(t.Context(), acme, kms.Page{Size: 1})
			return err == nil && w[0].Delivered.Equal(s.clock())
		})
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if len(wants.got)+len(operators.got)+len(other.got)+len(nodes.got) != 0 {
			t.Errorf("more was delivered: %d %d %d %d", len(wants.got), len(operators.got), len(other.got), len(nodes.got))
		}
		if logs := s.logs.String(); strings.Contains(logs, canary) || strings.Contains(logs, wants.URL) || !strings.Contains(logs, `"event":"quota.day_soft_limit"`) {
			t.Errorf("the log is %s", logs)
		}
	})
}

// noted is a queue on which the end of a delivery is not noted, as when the
// process is killed between sending and noting.
type noted struct {
	*keystore.Store
	ended chan struct{}
}

func (q noted) EndDelivery(context.Context, *kms.Delivery) error {
	close(q.ended)
	return errors.New("the process is gone")
}

func TestDeliveryThatWasNotNotedIsMadeAgainWithTheSameID(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		acme := s.tenant("acme")
		r := newReceiver(t, nil)
		s.webhook(acme, r.URL)
		q := noted{s.store, make(chan struct{})}
		first := s.notifier(func(c *Config) { c.Deliveries = q })
		first.Publish(quotaEvent(acme))
		one := r.next(t)
		<-q.ended
		first.Close()
		second := s.notifier()
		s.pass(lease-time.Second, second)
		if list, err := s.store.ClaimDeliveries(t.Context(), lease, nil, 10); err != nil || len(list) != 0 {
			t.Errorf("before the lease is over: %v, %v", list, err)
		}
		s.pass(time.Second, second)
		two := r.next(t)
		checkSignature(t, two)
		if one.header.Get("webhook-id") != two.header.Get("webhook-id") || !bytes.Equal(one.body, two.body) {
			t.Errorf("first %v %s\nthen %v %s", one.header, one.body, two.header, two.body)
		}
		if one.header.Get("webhook-timestamp") == two.header.Get("webhook-timestamp") {
			t.Error("the second attempt has the time of the first")
		}
	})
}

func TestReceiversThatHangKeepNobodyElsesEventsWaiting(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		release := make(chan struct{})
		hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
		t.Cleanup(hanging.Close)
		t.Cleanup(func() { close(release) })
		dead, alive := s.tenant("dead"), s.tenant("alive")
		for range kms.MaxWebhooks {
			s.webhook(dead, hanging.URL)
		}
		r := newReceiver(t, nil)
		s.webhook(alive, r.URL)
		n := s.notifier()
		n.Publish(quotaEvent(dead))
		until(t, "hanging", func() bool { return len(n.busyTenants()) == kms.MaxClaims })
		for range 5 {
			n.Publish(quotaEvent(alive))
			checkSignature(t, r.next(t))
			if busy := len(n.busyTenants()); busy > 2*kms.MaxClaims {
				t.Errorf("%d deliveries are under way", busy)
			}
		}
	})
}

func TestCloseEndsWhatIsUnderWayAndBlamesNobody(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		arrived, release := make(chan struct{}, 1), make(chan struct{})
		hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release }))
		t.Cleanup(hanging.Close)
		t.Cleanup(func() { close(release) })
		acme := s.tenant("acme")
		w := s.webhook(acme, hanging.URL)
		n := s.notifier()
		n.Publish(quotaEvent(acme))
		<-arrived
		began := time.Now()
		if err := n.Close(); err != nil || time.Since(began) > attemptTimeout/2 {
			t.Errorf("closing took %v, %v", time.Since(began), err)
		}
		if got, err := s.store.Webhook(t.Context(), acme, w.ID); err != nil || !got.FailingSince.IsZero() {
			t.Errorf("the end of the sender counts as the receiver's failure: %+v, %v", got, err)
		}
		if list, err := s.store.ClaimDeliveries(t.Context(), lease, nil, 10); err != nil || len(list) != 1 {
			t.Errorf("it is not due at once: %v, %v", list, err)
		}
	})
}

func TestReceiverThatComesBackGetsEverything(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		acme := s.tenant("acme")
		var mu sync.Mutex
		status := http.StatusInternalServerError
		r := newReceiver(t, func() int { mu.Lock(); defer mu.Unlock(); return status })
		w := s.webhook(acme, r.URL)
		n := s.notifier()
		for range 3 {
			n.Publish(quotaEvent(acme))
		}
		attempts := map[string]int{}
		for range 6 { // two of each, at least
			attempts[r.next(t).header.Get("webhook-id")]++
			s.pass(2*firstPause, n)
		}
		failing := func() time.Time {
			got, err := s.store.Webhook(t.Context(), acme, w.ID)
			if err != nil {
				t.Fatal(err)
			}
			return got.FailingSince
		}
		until(t, "failing", func() bool { return !failing().IsZero() })
		mu.Lock()
		status = http.StatusNoContent
		mu.Unlock()
		until(t, "all being taken", func() bool {
			s.pass(time.Minute, n)
			return testutil.ToFloat64(n.deliveries.WithLabelValues("taken")) == 3
		})
		if len(attempts) != 3 {
			t.Errorf("attempts %v: one that fails keeps the others back", attempts)
		}
		until(t, "being well", func() bool { return failing().IsZero() })
	})
}

func TestWebhookThatFailsTooLongIsDisabledAndThatIsTold(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		acme := s.tenant("acme")
		bad := newReceiver(t, func() int { return http.StatusFound })
		good := newReceiver(t, nil)
		w := s.webhook(acme, bad.URL, kms.EventDaySoft)
		s.webhook(acme, good.URL, kms.EventWebhookDisabled)
		n := s.notifier()
		n.Publish(quotaEvent(acme))
		bad.next(t)
		until(t, "failing", func() bool {
			got, err := s.store.Webhook(t.Context(), acme, w.ID)
			return err == nil && !got.FailingSince.IsZero()
		})
		s.pass(72*time.Hour, n) // the event is given up
		bad.next(t)
		until(t, "giving up", func() bool { return testutil.ToFloat64(n.deliveries.WithLabelValues("given_up")) == 1 })
		s.pass(48*time.Hour, n)
		n.Publish(quotaEvent(acme))
		bad.next(t)
		told := good.next(t)
		if !strings.Contains(string(told.body), w.ID.String()) || !strings.Contains(string(told.body), "webhook.disabled") {
			t.Errorf("told %s", told.body)
		}
		if got, err := s.store.Webhook(t.Context(), acme, w.ID); err != nil || got.State != kms.WebhookDisabled {
			t.Errorf("the webhook is %+v, %v", got, err)
		}
		n.Publish(quotaEvent(acme))
		s.pass(time.Hour, n)
		n.Close()
		if len(bad.got) != 0 {
			t.Error("a disabled webhook gets events")
		}
	})
}

func TestWhatSeveralNodesNoticeIsToldOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *stage) {
		acme := s.tenant("acme")
		r := newReceiver(t, nil)
		s.webhook(acme, r.URL)
		nodes := []*Notifier{s.notifier(), s.notifier(), s.notifier()}
		for _, n := range nodes {
			e := quotaEvent(acme)
			e.Once = "quota.day_soft_limit/20260301"
			n.Publish(e)
		}
		r.next(t)
		for _, n := range nodes {
			n.Close() // flushes
		}
		last := s.notifier()
		e := quotaEvent(acme)
		e.Once = "quota.day_soft_limit/20260302"
		last.Publish(e)
		r.next(t)
		last.Close()
		if n := len(r.got); n != 0 {
			t.Errorf("%d more were delivered", n)
		}
	})
}

// away is a queue that cannot be written to.
type away struct{ *keystore.Store }

func (away) Enqueue(context.Context, uuid.UUID, []kms.Delivery) (int, error) {
	return 0, kms.Errorf(kms.KindStoreUnavailable, "away")
}

func TestPublishNeverWaitsAndCountsWhatIsLost(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sluice.db"))
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t, db)
	acme := s.tenant("acme")
	s.webhook(acme, "http://127.0.0.1:1/")
	n := s.notifier(func(c *Config) { c.Deliveries = away{s.store} })
	const all = maxEvents + 100
	for range all {
		n.Publish(quotaEvent(acme))
	}
	if lost := testutil.ToFloat64(n.lost); lost < 90 || lost > 100 {
		t.Errorf("%v are lost, want all that do not fit", lost)
	}
	n.Close()
	if lost := testutil.ToFloat64(n.lost); lost != all {
		t.Errorf("at the end %v of %d are counted", lost, all)
	}
	if told := strings.Count(s.logs.String(), `"msg":"event"`); told != all {
		t.Errorf("%d of %d are in the log", told, all)
	}
}

func TestPausesDoubleUpToADayAndDiffer(t *testing.T) {
	seen := map[time.Duration]bool{}
	for attempts := range 64 {
		full := min(float64(firstPause)*float64(uint64(1)<<min(max(attempts-1, 0), 40)), float64(longestPause))
		for range 50 {
			p := pause(attempts)
			if float64(p) < full/2 || float64(p) > full {
				t.Fatalf("after %d attempts %v, want %v to %v", attempts, p, time.Duration(full/2), time.Duration(full))
			}
			seen[p] = true
		}
	}
	if len(seen) < 1000 {
		t.Errorf("only %d pauses differ", len(seen))
	}
}

func TestEveryTypeOfEventIsDocumented(t *testing.T) {
	document, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[kms.EventType]bool{}
	for _, e := range kms.EventTypes() {
		to := "tenant, operators"
		if e.Operators {
			to = "operators"
		}
		row := fmt.Sprintf("| `%s` | %s | %s | `%s` | %s |\n", e.Type, e.Severity, to, strings.Join(e.Fields, "`, `"), e.Doc)
		if !strings.Contains(string(document), row) {
			t.Errorf("docs/operations.md lacks %s", row)
		}
		if e.Doc == "" || e.Severity == "" || len(e.Fields) == 0 || seen[e.Type] || !strings.Contains(string(e.Type), ".") {
			t.Errorf("%+v", e)
		}
		seen[e.Type] = true
	}
}
