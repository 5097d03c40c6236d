package p11

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
)

// place says where a token is and how to log in there.
type place struct {
	module        string
	env           map[string]string
	initArgs      string
	label, serial string
	userPIN       func() ([]byte, error)
	profile       *Profile // nil: none
}

// connection is a claimed slot where the user is logged in. Its own session,
// the anchor, keeps the login: a token logs out with its last session.
type connection struct {
	objects // through the anchor
	slot    uint
	flags   uint // of sessions: CKF_RW_SESSION or none
	token   pkcs11.TokenInfo
	mechs   []uint // that the token offers
	vendor  vendor

	crossings atomic.Uint64
	rawOAEP   atomic.Bool // the token's OAEP does not take SHA-256

	sessionMu sync.Mutex
	closed    bool
	idle      []*session // closed by their workers
	aside     int        // replaced and still open
}

// maxSetAside bounds the sessions with a stuck operation that are left open. A
// token that leaves so many behind has a fault that only its initialisation
// can mend.
const maxSetAside = 64

// connect opens the module, claims the token's slot and logs in.
func connect(p place, flags uint) (*connection, error) {
	mod, err := openModule(p.module, p.env, p.initArgs)
	if err != nil {
		return nil, err
	}
	slot, token, err := mod.findSlot(p.label, p.serial)
	if err == nil {
		err = mod.claim(slot)
	}
	if err != nil {
		return nil, errors.Join(err, mod.release())
	}
	c := &connection{objects: objects{mod: mod}, slot: slot, flags: flags, token: token, vendor: newVendor(p.profile)}
	if err := c.open(p); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *connection) open(p place) error {
	mechs, err := c.mod.ctx.GetMechanismList(c.slot)
	if err != nil {
		return moduleError("C_GetMechanismList", err)
	}
	for _, m := range mechs {
		c.mechs = append(c.mechs, m.Mechanism)
	}
	if c.session, err = c.openSession(); err != nil {
		return err
	}
	return c.login(pkcs11.CKU_USER, p.userPIN)
}

// login asks for the PIN once: a wrong one must not be tried again, as tokens
// lock themselves.
func (c *connection) login(user uint, pin func() ([]byte, error)) error {
	secret, err := pin()
	if err != nil {
		return &hsm.Error{Class: hsm.ClassPIN, Call: "C_Login", Err: err}
	}
	defer clear(secret)
	if code := login(c.mod.list, c.session, user, secret); code != pkcs11.CKR_OK {
		return codeError("C_Login", code)
	}
	return nil
}

func (c *connection) offers(mechs ...uint) bool {
	for _, m := range mechs {
		if !slices.Contains(c.mechs, m) {
			return false
		}
	}
	return true
}

func (c *connection) openSession() (pkcs11.SessionHandle, error) {
	handle, err := c.mod.ctx.OpenSession(c.slot, pkcs11.CKF_SERIAL_SESSION|c.flags)
	return handle, moduleError("C_OpenSession", err)
}

// newSession returns a session that a worker has closed, or a new one.
func (c *connection) newSession() (*session, error) {
	c.sessionMu.Lock()
	if n := len(c.idle); n > 0 {
		s := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.sessionMu.Unlock()
		return s, nil
	}
	c.sessionMu.Unlock()
	memory, err := newMemory()
	if err != nil {
		return nil, err
	}
	handle, err := c.openSession()
	if err != nil {
		memory.unmap()
		return nil, err
	}
	return &session{conn: c, handle: handle, memory: memory}, nil
}

// giveBack takes a session that its worker does not need any more.
func (c *connection) giveBack(s *session) {
	c.sessionMu.Lock()
	defer c.sessionMu.Unlock()
	if c.closed {
		s.memory.unmap()
		return
	}
	c.idle = append(c.idle, s)
}

// setAside counts a session that is replaced without having been closed.
func (c *connection) setAside() error {
	c.sessionMu.Lock()
	defer c.sessionMu.Unlock()
	if c.aside >= maxSetAside {
		return driverError(hsm.ClassTokenDown, "C_OpenSession",
			fmt.Sprintf("%d sessions have operations that do not end", c.aside))
	}
	c.aside++
	return nil
}

// close logs out, ends all sessions and gives slot and module back.
func (c *connection) close() error {
	c.sessionMu.Lock()
	c.closed = true
	for _, s := range c.idle {
		s.memory.unmap()
	}
	c.idle = nil
	c.sessionMu.Unlock()
	return errors.Join(c.mod.abandon(c.slot), c.mod.release())
}
