package wire_test

import (
	"encoding/base64"
	"encoding/json/v2"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// faultyPool is a service on tokens that stand behind fault modules.
type faultyPool struct {
	app     *wire.App
	url     string
	client  *http.Client
	modules []*fault.Module
	tenants [2]string // credentials
	// operator is an operator's credential.
	operator string
	slots    int
	journal  string // its folder
}

// engines is how many calls a faulty token works on at once, and serviceTime what
// each takes: a small HSM that leaves our processors free.
const (
	engines     = 4
	serviceTime = 2 * time.Millisecond
)

// patient lets requests of the tests wait for a slot for longer than they would:
// what they look for is failures, and the machine may have other things to do.
func patient(p *quota.Policy) {
	for _, tier := range p.Tiers {
		tier.MaxWait.Normal, tier.MaxWait.Bulk = 15_000, max(tier.MaxWait.Bulk, 15_000)
	}
}

// newFaultyPool opens a service on nodes tokens, each configured as options say.
func newFaultyPool(t testing.TB, nodes int, options ...func(*wire.TokenConfig)) *faultyPool {
	t.Helper()
	wiretest.Require(t)
	dir := t.TempDir()
	dev := &wire.Dev{Dir: dir, Nodes: nodes, Log: slog.New(slog.DiscardHandler), SignInterval: time.Hour} // only the tests use the HSMs
	app, config, err := dev.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	demo, err := os.ReadFile(dir + "/" + wire.DemoCredentialFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	library, err := fault.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &faultyPool{tenants: [2]string{strings.TrimSpace(string(demo))}, journal: config.Journal.Dir}
	for d := range config.HSM.Domains {
		for i := range config.HSM.Domains[d].Tokens {
			token := &config.HSM.Domains[d].Tokens[i]
			module, err := library.Front(t.TempDir(), token.Module)
			if err != nil {
				t.Fatal(err)
			}
			token.Module, token.Slots = module.Path(), engines
			for _, option := range options {
				option(token)
			}
			p.slots += engines
			p.modules = append(p.modules, module)
		}
	}
	if p.app, err = wire.Open(t.Context(), config, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	if err := p.app.Policies.Apply(1, policy(t, patient)); err != nil {
		t.Fatal(err)
	}
	wiretest.AwaitSigned(t, p.app, config)
	api, err := p.app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Handler())
	p.url, p.client = server.URL, server.Client()
	p.client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
	t.Cleanup(func() {
		for _, m := range p.modules {
			m.Release()
			m.Revive()
		}
		server.Close()
		if err := p.app.Close(); err != nil {
			t.Errorf("closing the service: %v", err)
		}
		for _, m := range p.modules {
			m.Close()
		}
	})
	operator, err := os.ReadFile(dir + "/" + wire.OperatorCredentialFile)
	if err != nil {
		t.Fatal(err)
	}
	p.operator = strings.TrimSpace(string(operator))
	p.must(t, p.operator, "/v1/tenants", `{"name":"second","tier":"platinum"}`)
	p.tenants[1] = p.must(t, p.operator, "/v1/tenants/second/credentials", `{"name":"app","scopes":["key:*"]}`)["credential"].(string)
	for _, m := range p.modules {
		m.SetEngines(engines)
		for _, f := range []fault.Function{fault.Encrypt, fault.Decrypt, fault.Sign} {
			m.SetService(f, serviceTime, 0)
		}
	}
	return p
}

// post sends a request and returns its status and answer.
func (p *faultyPool) post(credential, path, body string) (int, map[string]any, error) {
	r, err := http.NewRequest("POST", p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+credential)
	r.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	var answer map[string]any
	err = json.Unmarshal(raw, &answer)
	return response.StatusCode, answer, err
}

func (p *faultyPool) must(t testing.TB, credential, path, body string) map[string]any {
	t.Helper()
	status, answer, err := p.post(credential, path, body)
	if err != nil || status > 299 {
		t.Fatalf("%s: %d %v %v", path, status, answer, err)
	}
	return answer
}

// node returns the status of a node by its place.
func (p *faultyPool) node(i int) kms.NodeStatus { return p.app.Device.Status()[i] }

// traffic is load of two tenants that checks what it gets: a key of the other
// tenant, or an old handle that now names another key, would show.
type traffic struct {
	pool     *faultyPool
	stop     chan struct{}
	all      sync.WaitGroup
	slowest  atomic.Int64
	mu       sync.Mutex
	more     sync.Cond // done has grown
	done     int
	failures map[string]int
}

// keysEach is how many keys of each kind a tenant has in the load.
const keysEach = 16

func (p *faultyPool) load(t *testing.T, callers int) *traffic {
	t.Helper()
	l := &traffic{pool: p, stop: make(chan struct{}), failures: map[string]int{}}
	l.more.L = &l.mu
	type message struct{ credential, key, plaintext, ciphertext string }
	var messages []message
	for tenant, credential := range p.tenants {
		for i := range keysEach {
			name := fmt.Sprintf("aes-%d", i)
			p.post(credential, "/v1/keys", fmt.Sprintf(`{"name":%q,"spec":"AES_256"}`, name)) // there already, in a second load
			m := message{credential: credential, key: name,
				plaintext: base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "of tenant %d under key %d", tenant, i))}
			m.ciphertext = p.must(t, credential, "/v1/keys/"+name+"/encrypt", `{"plaintext":"`+m.plaintext+`"}`)["ciphertext"].(string)
			messages = append(messages, m)
		}
	}
	for caller := range callers {
		l.all.Go(func() {
			for i := caller; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				m := messages[i%len(messages)]
				started := time.Now()
				if i%2 == 0 {
					l.check(m.credential, "/v1/keys/"+m.key+"/decrypt", `{"ciphertext":"`+m.ciphertext+`"}`, m.plaintext)
				} else {
					l.check(m.credential, "/v1/keys/"+m.key+"/encrypt", `{"plaintext":"`+m.plaintext+`"}`, "")
				}
				took := int64(time.Since(started))
				for old := l.slowest.Load(); took > old && !l.slowest.CompareAndSwap(old, took); old = l.slowest.Load() {
				}
				l.mu.Lock()
				l.done++
				l.mu.Unlock()
				l.more.Broadcast()
			}
		})
	}
	return l
}

func (l *traffic) check(credential, path, body, want string) {
	status, answer, err := l.pool.post(credential, path, body)
	if err == nil && status == 200 && (want == "" || answer["plaintext"] == want) {
		return
	}
	what := fmt.Sprintf("%s: %d %v %v", path[strings.LastIndex(path, "/")+1:], status, answer["detail"], err)
	if status == 200 {
		what = "a wrong plaintext"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures[what]++
}

// end stops the load and fails the test when a request failed.
func (l *traffic) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.all.Wait()
	for _, what := range slices.Sorted(maps.Keys(l.failures)) {
		t.Errorf("%d times %s", l.failures[what], what)
	}
	t.Logf("%d requests, the slowest took %v", l.done, time.Duration(l.slowest.Load()).Round(time.Millisecond))
}

// after waits until the load has done n requests more.
func (l *traffic) after(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for target := l.done + n; l.done < target; {
		l.more.Wait()
	}
}

// await waits until the first node is as wanted, looking after each request,
// and returns how long that took.
func (l *traffic) await(t *testing.T, what string, wanted func() bool) time.Duration {
	t.Helper()
	for started := time.Now(); ; l.after(1) {
		took := time.Since(started)
		if wanted() {
			return took.Round(time.Millisecond)
		}
		if took > recovery {
			l.end(t)
			t.Fatalf("the node is not %s after %v: %+v", what, recovery, l.pool.node(0))
		}
	}
}

// recovery is how soon after a fault's end a node must be back.
const recovery = 10 * time.Second

// stretch is how many requests pass between two events of the fault matrix:
// SLUICE_CHAOS=full asks for the long one, some twenty minutes.
func stretch() int {
	if os.Getenv("SLUICE_CHAOS") == "full" {
		return 3000
	}
	return 200
}

func TestFaultOfANodeFailsNoRequest(t *testing.T) {
	faults := []struct {
		name  string
		begin func(*fault.Module)
		end   func(*fault.Module)
		// leaves tells whether the node is out of service until the end, anew
		// whether the token has to be opened anew.
		leaves, anew bool
	}{
		{"death", func(m *fault.Module) { m.Die(pkcs11.CKR_DEVICE_ERROR) }, (*fault.Module).Revive, true, true},
		{"removal and return", func(m *fault.Module) { m.Die(pkcs11.CKR_TOKEN_NOT_PRESENT) }, (*fault.Module).Revive, true, true},
		{"hang and late return", (*fault.Module).Hang, (*fault.Module).Release, true, true},
		{"loss of all sessions", (*fault.Module).Reset, func(*fault.Module) {}, false, true},
		{"loss of the login", func(m *fault.Module) {
			m.Fail(fault.EncryptInit, pkcs11.CKR_USER_NOT_LOGGED_IN, 1)
			m.Fail(fault.DecryptInit, pkcs11.CKR_USER_NOT_LOGGED_IN, 1)
		}, func(*fault.Module) {}, false, true},
		{"a function that fails", func(m *fault.Module) { m.FailRate(fault.Decrypt, pkcs11.CKR_DEVICE_ERROR, 1) },
			func(m *fault.Module) { m.FailRate(fault.Decrypt, 0, 0) }, true, true},
		{"errors now and then", func(m *fault.Module) { m.FailRate(fault.Encrypt, pkcs11.CKR_DEVICE_ERROR, 0.02) },
			func(m *fault.Module) { m.FailRate(fault.Encrypt, 0, 0) }, false, false},
		{"a slow-down by ten", func(m *fault.Module) { m.SlowDown(10) }, func(m *fault.Module) { m.SlowDown(1) }, false, false},
	}
	for _, nodes := range []int{2, 4} {
		p := newFaultyPool(t, nodes)
		for _, percent := range []int{50, 90} {
			for _, f := range faults {
				t.Run(fmt.Sprintf("%d nodes/%d%%/%s", nodes, percent, f.name), func(t *testing.T) {
					l := p.load(t, p.slots*percent/100)
					l.after(stretch())
					before := p.node(0).Epoch
					f.begin(p.modules[0])
					defer f.end(p.modules[0]) // for the next fault, if this one fails the test
					if f.leaves {
						t.Logf("out of service after %v", l.await(t, "down", func() bool { return p.node(0).State == "down" }))
					}
					l.after(stretch())
					f.end(p.modules[0])
					t.Logf("back after %v", l.await(t, "up again", func() bool {
						n := p.node(0)
						return n.State == "up" && (n.Epoch > before || !f.anew)
					}))
					l.after(stretch())
					if now := p.node(0).Epoch; !f.anew && now != before {
						t.Errorf("the token was opened anew: epoch %d after %d", now, before)
					}
					l.end(t)
				})
			}
		}
	}
}

func TestWrongPINIsTriedOnce(t *testing.T) {
	p := newFaultyPool(t, 2)
	l := p.load(t, 4)
	l.after(50)
	before := p.modules[0].Calls(fault.Login)
	p.modules[0].Fail(fault.Login, pkcs11.CKR_PIN_INCORRECT, 1000)
	p.modules[0].Reset()
	l.await(t, "out", func() bool { return p.node(0).State == "out" })
	l.after(500)
	if got := p.modules[0].Calls(fault.Login) - before; got != 1 {
		t.Errorf("the PIN was tried %d times", got)
	}
	l.end(t)
}

func TestNothingIsSearchedOpenedOrClosedInTraffic(t *testing.T) {
	p := newFaultyPool(t, 2)
	l := p.load(t, 4)
	l.after(100) // all keys are loaded
	still := []fault.Function{fault.OpenSession, fault.CloseSession, fault.FindObjectsInit, fault.Login,
		fault.GetTokenInfo, fault.GetSlotList, fault.GetSessionInfo, fault.UnwrapKey, fault.CreateObject, fault.DestroyObject}
	before := map[fault.Function]uint64{}
	for _, f := range still {
		before[f] = p.modules[0].Calls(f) + p.modules[1].Calls(f)
	}
	l.after(500)
	for _, f := range still {
		if got := p.modules[0].Calls(f) + p.modules[1].Calls(f); got != before[f] {
			t.Errorf("function %d was called %d times in warm traffic", f, got-before[f])
		}
	}
	l.end(t)
}

func TestBadInputOfATenantTripsNoNode(t *testing.T) {
	p := newFaultyPool(t, 2)
	l := p.load(t, p.slots/2)
	hostile := p.must(t, p.tenants[1], "/v1/keys", `{"name":"hostile","spec":"AES_256"}`)["name"].(string)
	p.must(t, p.tenants[1], "/v1/keys", `{"name":"hostile-rsa","spec":"RSA_2048","usage":"ENCRYPT_DECRYPT"}`)
	p.must(t, p.tenants[1], "/v1/keys", `{"name":"hostile-ec","spec":"ECC_NIST_P256"}`)
	sealed, err := base64.StdEncoding.DecodeString(p.must(t, p.tenants[1], "/v1/keys/"+hostile+"/encrypt", `{"plaintext":"AAAA"}`)["ciphertext"].(string))
	if err != nil {
		t.Fatal(err)
	}
	tampered := slices.Clone(sealed)
	tampered[len(tampered)-1] ^= 1
	attacks := []struct{ path, body string }{
		{"hostile/decrypt", `{"ciphertext":"` + base64.StdEncoding.EncodeToString(tampered) + `"}`},
		{"hostile/decrypt", `{"ciphertext":"` + base64.StdEncoding.EncodeToString(sealed[:len(sealed)-20]) + `"}`},
		{"hostile/decrypt", `{"ciphertext":"` + base64.StdEncoding.EncodeToString(sealed) + `","aad":"AAAA"}`},
		{"hostile-rsa/decrypt", `{"ciphertext":"` + base64.StdEncoding.EncodeToString(make([]byte, 256)) + `"}`},
		{"hostile-ec/sign", `{"digest":"AAAA"}`},
		{"hostile-ec/encrypt", `{"plaintext":"AAAA"}`},
	}
	stop := make(chan struct{})
	var attackers sync.WaitGroup
	var refused atomic.Int64
	for i := range p.slots {
		attackers.Go(func() {
			for ; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				a := attacks[i%len(attacks)]
				status, _, err := p.post(p.tenants[1], "/v1/keys/"+a.path, a.body)
				if err != nil || status < 400 || status > 499 {
					t.Errorf("%s: %d %v", a.path, status, err)
					return
				}
				refused.Add(1)
			}
		})
	}
	l.after(1000)
	close(stop)
	attackers.Wait()
	l.end(t)
	for i := range p.modules {
		if n := p.node(i); n.State != "up" || n.Epoch != 1 || n.Errors != 0 {
			t.Errorf("node %s is %s in epoch %d with %d errors of its own: %s", n.ID, n.State, n.Epoch, n.Errors, n.LastError)
		}
	}
	t.Logf("%d requests were refused beside it", refused.Load())
}
