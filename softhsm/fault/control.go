package fault

import (
	"sync/atomic"
	"time"
)

// The layout of the control file; module/fault.c has the same.
const (
	controlMagic = 0x31544c5541464c53 // "SLFAULT1"
	pathSize     = 1024
)

// Function is a PKCS#11 function that the module stands before.
type Function int

// The functions, in the order of the control file.
const (
	Initialize Function = iota
	Finalize
	GetSlotList
	GetTokenInfo
	OpenSession
	CloseSession
	CloseAllSessions
	GetSessionInfo
	Login
	Logout
	CreateObject
	CopyObject
	DestroyObject
	GetAttributeValue
	SetAttributeValue
	FindObjectsInit
	FindObjects
	FindObjectsFinal
	EncryptInit
	Encrypt
	DecryptInit
	Decrypt
	DigestInit
	Digest
	SignInit
	Sign
	VerifyInit
	Verify
	GenerateKey
	GenerateKeyPair
	WrapKey
	UnwrapKey
	DeriveKey
	GenerateRandom
	functions
)

// control is the control file. Words are atomic, since the module reads them
// while calls run.
type control struct {
	magic     uint64
	module    [pathSize]byte
	sm        uint64
	engines   atomic.Uint64
	slowdown  atomic.Uint64
	dead      atomic.Uint64
	hanging   atomic.Uint64
	reset     atomic.Uint64
	waiting   atomic.Uint64
	resets    atomic.Uint64
	working   atomic.Uint64
	functions [functions]functionControl
}

type functionControl struct {
	calls   atomic.Uint64
	active  atomic.Uint64
	service atomic.Uint64
	jitter  atomic.Uint64
	code    atomic.Uint64
	next    atomic.Uint64
	rate    atomic.Uint64
	_       uint64
}

// Calls returns how often the function was called so far, refused calls
// included.
func (m *Module) Calls(f Function) uint64 { return m.control.functions[f].calls.Load() }

// SetEngines sets how many calls the module works on at once; 0: any number.
// The others wait inside the module, as they do in hardware.
func (m *Module) SetEngines(n int) { m.control.engines.Store(uint64(n)) }

// SetService sets how long a call of the function takes at least, and how
// much longer at most: the time is even between the two. The caller sleeps,
// so that the processor stays free.
func (m *Module) SetService(f Function, d, jitter time.Duration) {
	m.control.functions[f].service.Store(uint64(d))
	m.control.functions[f].jitter.Store(uint64(jitter))
}

// SlowDown multiplies all service times; 1 ends it.
func (m *Module) SlowDown(factor int) { m.control.slowdown.Store(uint64(factor)) }

// Fail lets the next n calls of the function return the code (CKR_*).
func (m *Module) Fail(f Function, code uint, n int) {
	m.control.functions[f].code.Store(uint64(code))
	m.control.functions[f].next.Store(uint64(n))
}

// FailRate lets calls of the function return the code with a probability; 0
// ends it.
func (m *Module) FailRate(f Function, code uint, probability float64) {
	m.control.functions[f].code.Store(uint64(code))
	m.control.functions[f].rate.Store(uint64(probability * (1 << 32)))
}

// Die lets every call return the code from now on, e.g. CKR_DEVICE_REMOVED.
// Sessions, logins and session objects are gone when the module lives again.
func (m *Module) Die(code uint) {
	m.control.dead.Store(uint64(code))
	m.control.reset.Add(1)
}

// Revive ends Die.
func (m *Module) Revive() { m.control.dead.Store(0) }

// Hang lets every call wait; those that hang when Release comes go on then,
// so they return late.
func (m *Module) Hang() { m.control.hanging.Store(1) }

// Release ends Hang.
func (m *Module) Release() { m.control.hanging.Store(0) }

// Hanging returns how many calls hang now.
func (m *Module) Hanging() int { return int(m.control.waiting.Load()) }

// Reset ends all sessions before the next call, as a token does that was
// restarted: logins and session objects go with them.
func (m *Module) Reset() { m.control.reset.Add(1) }

// Resets returns how often the sessions were ended.
func (m *Module) Resets() uint64 { return m.control.resets.Load() }

// Working returns how many calls hold an engine now.
func (m *Module) Working() int { return int(m.control.working.Load()) }
