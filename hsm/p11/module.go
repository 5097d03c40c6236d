package p11

import (
	"fmt"
	"maps"
	"path/filepath"
	"sync"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
)

// module is an initialised PKCS#11 library. A library has one state in a
// process, so those who open the same file share one module; it is finalised
// when the last of them has released it, and stays loaded: modules crash when
// they are unloaded.
type module struct {
	ctx  *pkcs11.Ctx
	list functionList

	// What it was initialised with.
	env      map[string]string
	initArgs string

	// Guarded by registry.mu.
	users int
	slots map[uint]bool // in use by a Token or a ceremony
}

// registry holds the initialised modules. Its lock is held while a module is
// initialised or finalised, which keeps two users of one library from doing
// so at once, and is never taken under another lock of this package.
var registry = struct {
	mu      sync.Mutex
	modules map[functionList]*module
	// unfinished are modules of ours whose C_Finalize failed, as it does when
	// the device is away: they may still be initialised.
	unfinished map[functionList]*pkcs11.Ctx
}{modules: make(map[functionList]*module), unfinished: make(map[functionList]*pkcs11.Ctx)}

// openModule initialises the library at path, or joins those who use it.
// Opening it with another environment than theirs is an error, since it would
// have no effect.
func openModule(path string, env map[string]string, initArgs string) (*module, error) {
	if !filepath.IsAbs(path) {
		// The loader would search its path and might find another library.
		return nil, driverError(hsm.ClassRequest, "open module", "the module's path is not absolute")
	}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	list, err := loadLibrary(path)
	if err != nil {
		return nil, &hsm.Error{Class: hsm.ClassTokenDown, Call: "open module", Err: err}
	}
	if m := registry.modules[list]; m != nil {
		if !maps.Equal(m.env, env) || m.initArgs != initArgs {
			return nil, driverError(hsm.ClassRequest, "open module", "the module is in use with other settings")
		}
		m.users++
		return m, nil
	}
	ctx := registry.unfinished[list]
	if ctx != nil {
		// Whatever it answers, C_Initialize tells what is true.
		_ = ctx.Finalize()
	} else if ctx = pkcs11.New(path); ctx == nil {
		return nil, driverError(hsm.ClassTokenDown, "open module", "the module cannot be loaded")
	}
	if code := initialize(list, env, initArgs); code != pkcs11.CKR_OK {
		return nil, codeError("C_Initialize", code)
	}
	m := &module{ctx: ctx, list: list, env: maps.Clone(env), initArgs: initArgs, users: 1, slots: make(map[uint]bool)}
	registry.modules[list] = m
	delete(registry.unfinished, list)
	return m, nil
}

// release finalises the module when nobody else uses it. None of the caller's
// calls may be running.
func (m *module) release() error {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	m.users--
	if m.users > 0 {
		return nil
	}
	delete(registry.modules, m.list)
	err := m.ctx.Finalize()
	if err != nil {
		registry.unfinished[m.list] = m.ctx
	}
	return moduleError("C_Finalize", err)
}

// claim reserves a slot for the caller: login and sessions are a slot's, so
// one user's end would be the end of another's.
func (m *module) claim(slot uint) error {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if m.slots[slot] {
		return driverError(hsm.ClassRequest, "open token", "the token is open already")
	}
	m.slots[slot] = true
	return nil
}

// abandon closes all sessions of a claimed slot, which logs out, and gives up
// the claim.
func (m *module) abandon(slot uint) error {
	err := moduleError("C_CloseAllSessions", m.ctx.CloseAllSessions(slot))
	registry.mu.Lock()
	defer registry.mu.Unlock()
	delete(m.slots, slot)
	return err
}

// findSlot returns the slot of the initialised token with the serial, or
// without one with the label, which must then be the only one: NSS gives
// every token the same label, and slot numbers change.
func (m *module) findSlot(label, serial string) (uint, pkcs11.TokenInfo, error) {
	if label == "" && serial == "" {
		return 0, pkcs11.TokenInfo{}, driverError(hsm.ClassRequest, "find token", "neither label nor serial is given")
	}
	slots, err := m.ctx.GetSlotList(true)
	if err != nil {
		return 0, pkcs11.TokenInfo{}, moduleError("C_GetSlotList", err)
	}
	type candidate struct {
		slot uint
		info pkcs11.TokenInfo
	}
	var found []candidate
	for _, slot := range slots {
		info, err := m.ctx.GetTokenInfo(slot)
		if err != nil {
			continue // a broken neighbour is no reason not to open this one
		}
		if info.Flags&pkcs11.CKF_TOKEN_INITIALIZED == 0 ||
			serial != "" && info.SerialNumber != serial || label != "" && info.Label != label {
			continue
		}
		found = append(found, candidate{slot, info})
	}
	switch len(found) {
	case 0:
		return 0, pkcs11.TokenInfo{}, driverError(hsm.ClassTokenDown, "find token", "the module shows no such token")
	case 1:
		return found[0].slot, found[0].info, nil
	}
	return 0, pkcs11.TokenInfo{}, driverError(hsm.ClassRequest, "find token",
		fmt.Sprintf("%d tokens match: name the serial", len(found)))
}
