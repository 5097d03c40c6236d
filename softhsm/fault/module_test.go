package fault_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/required"
	"github.com/sluice-kms/sluice/softhsm"
	"github.com/sluice-kms/sluice/softhsm/fault"
)

// library is built once for all tests, in a folder that TestMain removes.
var (
	libraryDir string
	library    = sync.OnceValues(func() (*fault.Library, error) { return fault.Build(libraryDir) })
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if libraryDir, err = os.MkdirTemp("", "fault"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(libraryDir)
		return m.Run()
	}())
}

// client is a PKCS#11 client of a SoftHSM token behind a fault module.
type client struct {
	*pkcs11.Ctx
	module  *fault.Module
	token   *softhsm.Token
	slot    uint
	session pkcs11.SessionHandle
	key     pkcs11.ObjectHandle
}

func newClient(t *testing.T) *client { return newClientWith(t, func(*fault.Module) {}) }

// newClientWith prepares the module before it is loaded.
func newClientWith(t *testing.T, prepare func(*fault.Module)) *client {
	t.Helper()
	required.Part(t, "softhsm", softhsm.Available())
	library, err := library()
	must(t, err)
	token, err := softhsm.Provision(t.TempDir(), "faulty")
	must(t, err)
	module, err := library.Front(t.TempDir(), token.Module)
	must(t, err)
	prepare(module)
	for name, value := range token.Env {
		t.Setenv(name, value)
	}
	c := &client{Ctx: pkcs11.New(module.Path()), module: module, token: token}
	must(t, c.Initialize())
	t.Cleanup(func() {
		must(t, c.Finalize())
		must(t, module.Close())
	})
	slots, err := c.GetSlotList(true)
	must(t, err)
	c.slot = slots[0]
	c.open(t)
	return c
}

// open opens a session, logs in and makes a key.
func (c *client) open(t *testing.T) {
	t.Helper()
	var err error
	c.session, err = c.OpenSession(c.slot, pkcs11.CKF_SERIAL_SESSION)
	must(t, err)
	pin, err := c.token.UserPIN()
	must(t, err)
	must(t, c.Login(c.session, pkcs11.CKU_USER, string(pin)))
	c.key, err = c.GenerateKey(c.session, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_KEY_GEN, nil)},
		[]*pkcs11.Attribute{
			pkcs11.NewAttribute(pkcs11.CKA_VALUE_LEN, 32), pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
			pkcs11.NewAttribute(pkcs11.CKA_ENCRYPT, true), pkcs11.NewAttribute(pkcs11.CKA_PRIVATE, true),
		})
	must(t, err)
}

// encrypt encrypts a block in a session.
func (c *client) encrypt(session pkcs11.SessionHandle) error {
	if err := c.EncryptInit(session, []*pkcs11.Mechanism{pkcs11.NewMechanism(pkcs11.CKM_AES_ECB, nil)}, c.key); err != nil {
		return err
	}
	_, err := c.Encrypt(session, make([]byte, 16))
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code uint) {
	t.Helper()
	if got, ok := errors.AsType[pkcs11.Error](err); !ok || uint(got) != code {
		t.Fatalf("got %v, want 0x%x", err, code)
	}
}

func TestCallsPassAndAreCounted(t *testing.T) {
	c := newClient(t)
	before := c.module.Calls(fault.EncryptInit)
	for range 3 {
		must(t, c.encrypt(c.session))
	}
	if got := c.module.Calls(fault.EncryptInit) - before; got != 3 {
		t.Errorf("%d calls were counted, 3 were made", got)
	}
	if got := c.module.Calls(fault.Login); got != 1 {
		t.Errorf("%d logins were counted, 1 was made", got)
	}
}

func TestSoManyCallsFailAsWereToldTo(t *testing.T) {
	c := newClient(t)
	c.module.Fail(fault.EncryptInit, pkcs11.CKR_DEVICE_MEMORY, 2)
	for range 2 {
		wantCode(t, c.encrypt(c.session), pkcs11.CKR_DEVICE_MEMORY)
	}
	must(t, c.encrypt(c.session))

	c.module.FailRate(fault.EncryptInit, pkcs11.CKR_GENERAL_ERROR, 0.5)
	failed := 0
	for range 1000 {
		if c.encrypt(c.session) != nil {
			failed++
		}
	}
	// Sixteen standard deviations to either side.
	if failed < 250 || failed > 750 {
		t.Errorf("%d of 1000 calls failed at a rate of one half", failed)
	}
	c.module.FailRate(fault.EncryptInit, 0, 0)
	must(t, c.encrypt(c.session))
}

func TestADeadModuleComesBackWithoutSessions(t *testing.T) {
	c := newClient(t)
	c.module.Die(pkcs11.CKR_DEVICE_REMOVED)
	wantCode(t, c.encrypt(c.session), pkcs11.CKR_DEVICE_REMOVED)
	_, err := c.OpenSession(c.slot, pkcs11.CKF_SERIAL_SESSION)
	wantCode(t, err, pkcs11.CKR_DEVICE_REMOVED)
	c.module.Revive()
	wantCode(t, c.encrypt(c.session), pkcs11.CKR_SESSION_HANDLE_INVALID)
	c.open(t)
	must(t, c.encrypt(c.session))
}

func TestAResetEndsSessionsLoginsAndObjects(t *testing.T) {
	c := newClient(t)
	old := c.key
	c.module.Reset()
	wantCode(t, c.encrypt(c.session), pkcs11.CKR_SESSION_HANDLE_INVALID)
	if got := c.module.Resets(); got != 1 {
		t.Errorf("%d resets, want 1", got)
	}
	session, err := c.OpenSession(c.slot, pkcs11.CKF_SERIAL_SESSION)
	must(t, err)
	c.key = old
	if err := c.encrypt(session); err == nil {
		t.Error("the old handle works without a login")
	}
	must(t, c.CloseSession(session))
	c.open(t)
	must(t, c.encrypt(c.session))
}

func TestHangingCallsReturnLate(t *testing.T) {
	c := newClient(t)
	c.module.Hang()
	result := make(chan error, 1)
	go func() { result <- c.encrypt(c.session) }()
	for c.module.Hanging() == 0 {
		runtime.Gosched()
	}
	select {
	case err := <-result:
		t.Fatalf("the call returned: %v", err)
	default:
	}
	c.module.Release()
	must(t, <-result)
}

func TestEnginesBoundWhatIsServedAtOnce(t *testing.T) {
	const engines, callers, service = 2, 8, 10 * time.Millisecond
	c := newClient(t)
	c.module.SetEngines(engines)
	c.module.SetService(fault.Encrypt, service, 0)
	sessions := make([]pkcs11.SessionHandle, callers)
	for i := range sessions {
		var err error
		sessions[i], err = c.OpenSession(c.slot, pkcs11.CKF_SERIAL_SESSION)
		must(t, err)
	}
	started := time.Now()
	var all sync.WaitGroup
	for _, session := range sessions {
		all.Go(func() {
			if err := c.encrypt(session); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	// A bound from below: a busy machine only takes longer. miekg asks for
	// the length first, which is a call of its own.
	if took, least := time.Since(started), callers/engines*service; took < least {
		t.Errorf("%d calls on %d engines took %v, at least %v is possible", callers, engines, took, least)
	}
	if n := c.module.Working(); n != 0 {
		t.Errorf("%d engines are still held", n)
	}
}

func TestSlowingDownMultipliesTheServiceTime(t *testing.T) {
	c := newClient(t)
	c.module.SetService(fault.Encrypt, time.Millisecond, 0)
	c.module.SlowDown(20)
	started := time.Now()
	must(t, c.encrypt(c.session))
	if took := time.Since(started); took < 20*time.Millisecond {
		t.Errorf("a call took %v, at least 20 ms is possible", took)
	}
}
