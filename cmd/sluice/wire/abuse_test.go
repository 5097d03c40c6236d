package wire_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base32"
	"encoding/binary"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/abuse"
	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// watchedService is a service of its own, whose policy says what follows of a
// flag.
type watchedService struct {
	*wiretest.Service
	t       *testing.T
	version uint64
}

func newWatchedService(t *testing.T) *watchedService {
	t.Helper()
	wiretest.Require(t)
	s, err := wiretest.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := &watchedService{Service: s, t: t}
	w.ask(s.Demo, "POST", "/v1/keys", object{"name": "orders", "spec": "AES_256"}).want(201, "")
	return w
}

// reply is an answer.
type reply struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	fields map[string]any
}

func (s *watchedService) ask(credential, method, path string, body any, header ...string) *reply {
	s.t.Helper()
	payload := io.Reader(http.NoBody)
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, s.URL+path, payload)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	r := &reply{t: s.t, what: method + " " + path, status: resp.StatusCode, header: resp.Header}
	if err := json.UnmarshalRead(resp.Body, &r.fields); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// want checks the status and, of a problem, the code and the reasons.
func (r *reply) want(status int, code string, reasons ...string) *reply {
	r.t.Helper()
	var got []string
	list, _ := r.fields["reasons"].([]any)
	for _, reason := range list {
		got = append(got, reason.(map[string]any)["code"].(string))
	}
	problem, _ := r.fields["code"].(string)
	if r.status != status || status >= 400 && (problem != code || !slices.Equal(got, reasons)) {
		r.t.Errorf("%s: %d %s %v, want %d %s %v", r.what, r.status, problem, got, status, code, reasons)
	}
	return r
}

func (r *reply) text(field string) string { s, _ := r.fields[field].(string); return s }

// act puts a policy with an action in force.
func (s *watchedService) act(action kms.AbuseAction, change func(*quota.Policy)) {
	s.t.Helper()
	s.version++
	document := policy(s.t, func(p *quota.Policy) {
		p.Abuse.Action = action
		if change != nil {
			change(p)
		}
	})
	if err := s.App.Policies.Apply(s.version, document); err != nil {
		s.t.Fatal(err)
	}
}

// minted is a new credential of the demo tenant.
func (s *watchedService) minted(scopes ...string) (id, token string) {
	s.t.Helper()
	r := s.ask(s.Demo, "POST", "/v1/credentials", object{"name": "watched", "scopes": scopes}).want(201, "")
	return r.text("id"), r.text("credential")
}

func (s *watchedService) demo() *kms.Tenant {
	s.t.Helper()
	tenant, err := s.App.Store.TenantByRef(context.Background(), wire.DemoTenant)
	if err != nil {
		s.t.Fatal(err)
	}
	return tenant
}

var readings = []kms.AbuseReading{
	{Signal: kms.AbuseNetworks, Value: 3000, Usual: 1000}, {Signal: kms.AbuseOperations, Value: 720, Usual: 210}}

// signals are their reasons.
var signals = []string{"ABUSE_NEW_NETWORKS", "ABUSE_OPERATIONS"}

func (s *watchedService) flag(id string, learnt bool) {
	s.t.Helper()
	if err := s.App.Service.FlagCredential(context.Background(), s.demo().ID, uuid.MustParse(id), readings, learnt); err != nil {
		s.t.Fatal(err)
	}
}

func (s *watchedService) encrypt(token string, header ...string) *reply {
	s.t.Helper()
	return s.ask(token, "POST", "/v1/keys/orders/encrypt", object{"plaintext": "aGVsbG8="}, header...)
}

func (s *watchedService) guard(id string) map[string]any {
	s.t.Helper()
	g, _ := s.ask(s.Demo, "GET", "/v1/credentials/"+id, nil).want(200, "").fields["guard"].(map[string]any)
	return g
}

func because(code string) []string { return append([]string{code}, signals...) }

func TestAFlagIsShownExplainedJournalledAndCleared(t *testing.T) {
	s := newWatchedService(t)
	id, token := s.minted("key:*")
	s.act(kms.AbuseAlert, nil)
	if g := s.guard(id); g != nil {
		t.Errorf("before: %v", g)
	}
	s.flag(id, true)
	s.encrypt(token).want(200, "")
	g := s.guard(id)
	list, _ := g["signals"].([]any)
	if g["open"] != true || g["action"] != "alert" || g["ends_at"] == nil || len(list) != 2 {
		t.Fatalf("%v", g)
	}
	first := list[0].(map[string]any)
	if first["signal"] != "new_networks" || first["value"] != 3.0 || first["usual"] != 1.0 ||
		first["text"] != "in a minute, 3 networks called that the credential does not usually call from, of 1 at most before" {
		t.Errorf("%v", first)
	}
	err := s.App.Service.FlagCredential(t.Context(), s.demo().ID, uuid.MustParse(id), readings, true)
	if kms.KindOf(err) != kms.KindConflict || err == nil {
		t.Errorf("a second flag: %v", err)
	}
	s.ask(s.Demo, "POST", "/v1/credentials/"+id+"/clear", nil).want(200, "")
	if g := s.guard(id); g["open"] != false || g["cleared_at"] == nil {
		t.Errorf("after: %v", g)
	}
	s.ask(s.Demo, "POST", "/v1/credentials/"+id+"/clear", nil).want(409, "conflict")
	_, auditor := s.minted("audit:read")
	within(t, 10*time.Second, "the entry in the trail", func() bool {
		r := s.ask(auditor, "GET", "/v1/audit?operation=keeper-flag-credential", nil).want(200, "")
		for _, e := range r.fields["entries"].([]any) {
			entry := e.(map[string]any)
			if entry["resource"] == id && entry["phase"] == "outcome" && entry["outcome"] == "ok" {
				reasons, _ := entry["reasons"].([]any)
				return len(reasons) == 2
			}
		}
		return false
	})
}

func TestASuspendedCredentialDoesNothingUntilAnotherClearsIt(t *testing.T) {
	s := newWatchedService(t)
	id, token := s.minted("key:*", "tenant:admin", "usage:read")
	s.act(kms.AbuseSuspend, nil)
	s.flag(id, true)
	for _, path := range []string{"/v1/keys", "/v1/quota", "/v1/credentials/" + id, "/v1/keys/nothing"} {
		s.ask(token, "GET", path, nil).want(403, "credential_suspended", because("ABUSE_SUSPENDED")...)
	}
	s.encrypt(token).want(403, "credential_suspended", because("ABUSE_SUSPENDED")...)
	s.ask(token, "POST", "/v1/batch", object{"items": []object{{"op": "random", "bytes": 16}}}).want(403, "credential_suspended", because("ABUSE_SUSPENDED")...)
	s.ask(token, "POST", "/v1/credentials/"+id+"/clear", nil).want(403, "credential_suspended", because("ABUSE_SUSPENDED")...)
	s.ask(s.Operator, "POST", "/v1/tenants/demo/credentials/"+id+"/clear", nil).want(200, "")
	s.encrypt(token).want(200, "")

	// An open flag that lets it go on is not cleared by itself either.
	s.act(kms.AbuseAlert, nil)
	s.flag(id, true)
	s.ask(token, "POST", "/v1/credentials/"+id+"/clear", nil).want(403, "permission_denied")
}

func TestAThrottledCredentialIsToldSoAndHasItsPart(t *testing.T) {
	s := newWatchedService(t)
	id, token := s.minted("key:*")
	s.act(kms.AbuseThrottle, func(p *quota.Policy) {
		p.Abuse.ThrottlePercent = 1
		few := int64(200)
		p.Tenants = map[uuid.UUID]*quota.TenantPolicy{s.demo().ID: {Limits: quota.TierOverride{CreditsPerSecond: &few}}}
	})
	s.flag(id, true)
	passed, began := 0, time.Now()
	var refused *reply
	for refused == nil && passed < 1000 {
		if r := s.encrypt(token); r.status == 200 {
			passed++
		} else {
			refused = r
		}
	}
	if refused == nil {
		t.Fatalf("%d calls passed", passed)
	}
	refused.want(429, "quota_exceeded", because("ABUSE_THROTTLED")...)
	if refused.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	// Two credits a second: a second's worth at first, and one call that owes.
	if most := 4 + int(2*time.Since(began).Seconds()); passed > most {
		t.Errorf("%d calls passed, at most %d may", passed, most)
	}
	s.encrypt(s.Demo).want(200, "") // the others of the tenant are as before
}

// A thief who uses up all that the tenant has does not keep the flag from him.
func TestAFlagNeedsNoQuota(t *testing.T) {
	s := newWatchedService(t)
	id, token := s.minted("key:*")
	s.act(kms.AbuseSuspend, func(p *quota.Policy) {
		one, none := int64(1), int64(0)
		p.Tenants = map[uuid.UUID]*quota.TenantPolicy{s.demo().ID: {Limits: quota.TierOverride{
			CreditsPerSecond: &one, BurstCredits: &one, OverdraftCredits: &none, DayCredits: &one, PoolCredits: &none}}}
	})
	for range 5 {
		s.encrypt(token)
	}
	if r := s.encrypt(token); r.status != 429 && r.status != 402 {
		t.Fatalf("%d: the quota is not used up", r.status)
	}
	s.flag(id, true)
	s.encrypt(token).want(403, "credential_suspended", because("ABUSE_SUSPENDED")...)
}

// oneTimeCode is RFC 6238, written again.
func oneTimeCode(t *testing.T, key string, at time.Time) string {
	t.Helper()
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha1.New, raw)
	binary.Write(mac, binary.BigEndian, at.Unix()/30)
	sum := mac.Sum(nil)
	offset := sum[19] & 15
	return fmt.Sprintf("%06d", (binary.BigEndian.Uint32(sum[offset:])&0x7fffffff)%1_000_000)
}

func TestASecondFactorProvesAFlaggedCredential(t *testing.T) {
	s := newWatchedService(t)
	s.act(kms.AbuseSecondFactor, nil)
	wrong := because("ABUSE_FACTOR_WRONG")

	t.Run("another credential of the tenant", func(t *testing.T) {
		id, token := s.minted("key:*")
		other, second := s.minted("key:verify")
		s.flag(id, true)
		s.encrypt(token).want(403, "second_factor_required", because("ABUSE_SECOND_FACTOR")...)
		s.encrypt(token, "Sluice-Second-Credential", token).want(403, "second_factor_required", wrong...)
		s.encrypt(token, "Sluice-Second-Credential", s.Operator).want(403, "second_factor_required", wrong...)
		s.encrypt(token, "Sluice-Second-Credential", "slk_none").want(403, "second_factor_required", wrong...)
		s.flag(other, true)
		s.encrypt(token, "Sluice-Second-Credential", second).want(403, "second_factor_required", wrong...)
		s.ask(s.Demo, "POST", "/v1/credentials/"+other+"/clear", nil).want(200, "")
		s.ask(token, "POST", "/v1/batch", object{"items": []object{{"op": "random", "bytes": 16}, {"op": "random", "bytes": 16}}},
			"Sluice-Second-Credential", second).want(200, "")
		s.encrypt(token).want(200, "")
		if g := s.guard(id); g["open"] != true || g["proven_until"] == nil {
			t.Errorf("%v", g)
		}
		// What was proven is that flag and no later one.
		s.ask(s.Demo, "POST", "/v1/credentials/"+id+"/clear", nil).want(200, "")
		s.flag(id, true)
		s.encrypt(token).want(403, "second_factor_required", because("ABUSE_SECOND_FACTOR")...)
	})
	t.Run("a one-time code", func(t *testing.T) {
		id, token := s.minted("key:*")
		s.flag(id, true)
		s.ask(s.Demo, "POST", "/v1/credentials/"+id+"/one-time-code", nil).want(409, "conflict")
		s.encrypt(token, "Sluice-One-Time-Code", "123456").want(403, "second_factor_required", wrong...)
		s.ask(s.Demo, "POST", "/v1/credentials/"+id+"/clear", nil).want(200, "")
		key := s.ask(s.Demo, "POST", "/v1/credentials/"+id+"/one-time-code", nil).want(200, "").text("one_time_key")
		s.flag(id, true)
		code := oneTimeCode(t, key, time.Now())
		s.encrypt(token, "Sluice-One-Time-Code", code).want(200, "")
		s.encrypt(token).want(200, "")
		// Once.
		s.ask(s.Demo, "POST", "/v1/credentials/"+id+"/clear", nil).want(200, "")
		s.flag(id, true)
		s.encrypt(token, "Sluice-One-Time-Code", code).want(403, "second_factor_required", wrong...)
	})
	t.Run("few tries", func(t *testing.T) {
		id, token := s.minted("key:*")
		_, second := s.minted("key:verify")
		s.flag(id, true)
		for range 5 {
			s.encrypt(token, "Sluice-One-Time-Code", "123456").want(403, "second_factor_required", wrong...)
		}
		s.encrypt(token, "Sluice-One-Time-Code", "123456").want(403, "second_factor_required", because("ABUSE_FACTOR_TRIES")...)
		var all sync.WaitGroup
		statuses := make(chan int, 20)
		for range cap(statuses) { // clients do not wait for each other
			all.Go(func() {
				statuses <- s.encrypt(token, "Sluice-Second-Credential", second).status
			})
		}
		all.Wait()
		close(statuses)
		for status := range statuses {
			if status != 200 {
				t.Errorf("at the same time: %d", status)
			}
		}
	})
}

// Nobody could clear an operator, and of what was not learnt nothing is known.
func TestNothingButAnAlertFollowsForOperatorsAndOfWhatWasNotLearnt(t *testing.T) {
	s := newWatchedService(t)
	s.act(kms.AbuseSuspend, nil)
	id, token := s.minted("key:*")
	s.flag(id, false)
	s.encrypt(token).want(200, "")
	if g := s.guard(id); g["open"] != true || g["action"] != "alert" {
		t.Errorf("%v", g)
	}
	operator := s.ask(s.Operator, "POST", "/v1/credentials", object{"name": "second", "scopes": []string{"operator:admin"}}).want(201, "")
	if err := s.App.Service.FlagCredential(t.Context(), s.App.System.ID, uuid.MustParse(operator.text("id")), readings, true); err != nil {
		t.Fatal(err)
	}
	s.ask(operator.text("credential"), "GET", "/v1/tenants", nil).want(200, "")

	// A tenant can have another action than all.
	s.act(kms.AbuseAlert, func(p *quota.Policy) {
		strict := kms.AbuseSuspend
		p.Tenants = map[uuid.UUID]*quota.TenantPolicy{s.demo().ID: {AbuseAction: &strict}}
	})
	strictly, token := s.minted("key:*")
	s.flag(strictly, true)
	s.encrypt(token).want(403, "credential_suspended", because("ABUSE_SUSPENDED")...)
}

// From the call to the flag and the tenant's webhook, with the service's own
// clock: a token that two hundred networks use at once.
func TestCallsFromEverywhereAreFlaggedByTheServiceAndToldOnce(t *testing.T) {
	s := newWatchedService(t)
	h := newHook(t)
	_, secret := createHook(t, s.Service, s.Demo, h.URL, `["credential.suspicious"]`)
	id, token := s.minted("key:*")
	s.encrypt(token).want(200, "")
	hasher := abuse.Hasher{Seed: 1}
	for i := range 200 {
		o := abuse.Observation{Tenant: s.demo().ID, Credential: uuid.MustParse(id), At: time.Now(),
			Network: hasher.Network(uuid.MustParse(id), addressOf(i)), Client: abuse.ClientOf("curl/8.5.0"), Operation: abuse.OperationOf(kms.OpDecrypt)}
		s.App.Abuse.Observe(&o)
	}
	within(t, 20*time.Second, "the flag", func() bool { g := s.guard(id); return g != nil && g["open"] == true })
	if g := s.guard(id); g["action"] != "alert" {
		t.Errorf("%v", g)
	}
	var event struct {
		Type   string            `json:"type"`
		Tenant string            `json:"tenant"`
		Data   map[string]string `json:"data"`
	}
	if err := json.Unmarshal([]byte(h.next(t, secret)), &event); err != nil {
		t.Fatal(err)
	}
	if event.Type != "credential.suspicious" || event.Tenant != s.demo().ID.String() || event.Data["credential"] != id || event.Data["action"] != "alert" ||
		event.Data["signals"] != "new_networks" || !strings.Contains(event.Data["text"], "networks called that the credential does not usually call from") {
		t.Errorf("%+v", event)
	}
	if len(h.got) != 0 {
		t.Error("it was told twice")
	}
}

// What was learnt is there after a restart, in the database and not in memory,
// and nothing of addresses or names is in it.
func TestBaselinesSurviveARestart(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	s, err := wiretest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &watchedService{Service: s, t: t}
	w.ask(s.Demo, "POST", "/v1/keys", object{"name": "orders", "spec": "AES_256"}).want(201, "")
	id, token := w.minted("key:*")
	for range 30 {
		w.encrypt(token, "User-Agent", "teller-application/1.2").want(200, "")
	}
	tenant, credential := w.demo().ID, uuid.MustParse(id)
	within(t, 20*time.Second, "that it is known", func() bool { return !waits(s, credential) })
	if stored, err := s.App.Store.Baseline(t.Context(), tenant, credential); err != nil || stored != nil {
		t.Fatalf("before it is stored: %d bytes, %v", len(stored), err)
	}
	// The half of a minute that is under way is learnt when the next call comes.
	s.App.Abuse.Observe(&abuse.Observation{Tenant: tenant, Credential: credential, At: time.Now().Add(2 * time.Minute)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = wiretest.Open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stored, err := s.App.Store.Baseline(t.Context(), tenant, credential)
	if err != nil || len(stored) == 0 || len(stored) > kms.MaxBaseline {
		t.Fatalf("%d bytes, %v", len(stored), err)
	}
	if bytes.Contains(stored, []byte("teller")) || bytes.Contains(stored, []byte{127, 0, 0}) {
		t.Error("a name or an address is stored")
	}
	if err := s.App.Abuse.Merge(credential, stored); err != nil {
		t.Error(err)
	}
}

// waits tells whether a credential waits for what is stored of it.
func waits(s *wiretest.Service, credential uuid.UUID) bool {
	return slices.ContainsFunc(s.App.Abuse.Unknown(1000), func(c abuse.Credential) bool { return c.Credential == credential })
}

func addressOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i), 1, 1}) }

// Two API nodes on one database: a flag of one holds on the other, both cannot
// raise it, and a one-time code that one took is good on none.
func TestAFlagTakesEffectOnTheOtherNodeWithinASecond(t *testing.T) {
	a, b, _ := twoNodes(t)
	nodes := map[string]*watchedService{"a": {Service: a.Service, t: t}, "b": {Service: b.Service, t: t}}
	for name, n := range map[string]*apiNode{"a": a, "b": b} {
		nodes[name].App = n.app
		nodes[name].act(kms.AbuseSecondFactor, nil)
	}
	tenant := nodes["a"].ask(a.Operator, "POST", "/v1/tenants", object{"name": "acme", "tier": "gold"}).want(201, "")
	mint := func(scope string) (id, token string) {
		r := nodes["a"].ask(a.Operator, "POST", "/v1/tenants/acme/credentials", object{"name": "app", "scopes": []string{scope}}).want(201, "")
		return r.text("id"), r.text("credential")
	}
	id, token := mint("key:*")
	key := nodes["a"].ask(a.Operator, "POST", "/v1/tenants/acme/credentials/"+id+"/one-time-code", nil).want(200, "").text("one_time_key")
	random := func(n string, header ...string) *reply {
		return nodes[n].ask(token, "POST", "/v1/random", object{"bytes": 16}, header...)
	}
	random("a").want(200, "")
	random("b").want(200, "")

	tenantID, credential := uuid.MustParse(tenant.text("id")), uuid.MustParse(id)
	errs := make(chan error)
	for _, n := range []*apiNode{a, b} {
		go func() {
			errs <- n.app.Service.FlagCredential(context.Background(), tenantID, credential, readings, true)
		}()
	}
	raised := 0
	for range 2 {
		switch err := <-errs; {
		case err == nil:
			raised++
		case kms.KindOf(err) != kms.KindConflict:
			t.Error(err)
		}
	}
	if raised != 1 {
		t.Errorf("%d nodes raised the flag", raised)
	}
	for n := range nodes {
		within(t, time.Second, "the flag", func() bool { return random(n).status == 403 })
	}
	code := oneTimeCode(t, key, time.Now())
	random("a", "Sluice-One-Time-Code", code).want(200, "")
	within(t, time.Second, "the proof", func() bool { return random("b").status == 200 })
	nodes["b"].ask(a.Operator, "POST", "/v1/tenants/acme/credentials/"+id+"/clear", nil).want(200, "")
	within(t, time.Second, "clearing", func() bool { return random("a").status == 200 })
	if err := a.app.Service.FlagCredential(t.Context(), tenantID, credential, readings, true); err != nil {
		t.Fatal(err)
	}
	within(t, time.Second, "the flag", func() bool { return random("b").status == 403 })
	random("b", "Sluice-One-Time-Code", code).want(403, "second_factor_required", because("ABUSE_FACTOR_WRONG")...)
}
