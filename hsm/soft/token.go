package soft

import (
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// MaxKeys bounds the keys that are loaded at the same time. Their slab takes
// 1.5 MiB, a fifth of the memory that a process may usually lock (systemd's
// DefaultLimitMEMLOCK, 8 MiB); ML-KEM-1024 keys, the largest, would take some
// 220 MiB of heap.
const MaxKeys = 1 << indexBits

const (
	indexBits = 14
	indexMask = MaxKeys - 1
)

// sequence numbers loaded keys for all tokens of the process, so that no
// handle ever names two keys. A handle is sequence<<indexBits | index.
var sequence atomic.Uint64

// constantTimeSM4 is read here, before main and before anything could change
// the environment after gmsm read the same variable.
var constantTimeSM4 = os.Getenv("FORCE_SM4BLOCK_AESNI") == "1"

// ConstantTimeSM4 tells whether FORCE_SM4BLOCK_AESNI=1 was in the environment
// when the process started. Without it gmsm encrypts single SM4 blocks, which
// GCM does for its hash key and its tag, with table look-ups whose time
// depends on the key. gmsm reads the variable while packages initialise, so a
// process that finds it missing has to start itself anew with it. It has no
// effect on processors without AES instructions (or ARM's for SM4), where SM4
// is never constant-time (or always).
func ConstantTimeSM4() bool { return constantTimeSM4 }

// Token is the in-process engine. It implements hsm.Token.
//
// It starts no goroutines. No two of its locks are ever held together.
type Token struct {
	slab   *slab
	closed atomic.Bool
	// keys holds the loaded key of each index; calls read it without a lock.
	keys [MaxKeys]atomic.Pointer[loadedKey]

	mu   sync.Mutex
	free []uint16 // indices without a key
}

var (
	_ hsm.Token    = (*Token)(nil)
	_ hsm.Importer = (*Token)(nil)
)

// loadedKey is a key between Load and Unload.
type loadedKey struct {
	handle     hsm.Handle
	spec       kms.Spec
	algorithms []kms.Algorithm // of its usage

	// mu is held for reading by calls that use the key, for writing to end
	// it. hsm.Token forbids Unload under a running call; this makes sure that
	// one that comes all the same waits instead of handing the call's slot to
	// another key.
	mu  sync.RWMutex
	use privateKey // nil once unloaded
}

// Open makes an engine with no keys, after its self-test (see Probe).
func Open() (*Token, error) {
	if err := selfTest(knownAnswers); err != nil {
		return nil, &hsm.Error{Class: hsm.ClassTokenDown, Call: "open", Err: err}
	}
	s, err := newSlab(MaxKeys)
	if err != nil {
		return nil, &hsm.Error{Class: hsm.ClassCapacity, Call: "open", Err: err}
	}
	t := &Token{slab: s, free: make([]uint16, 0, MaxKeys)}
	for i := range MaxKeys {
		t.free = append(t.free, uint16(MaxKeys-1-i))
	}
	return t, nil
}

// Locked tells whether the memory of the slab's keys is locked against
// swapping and left out of core dumps.
func (t *Token) Locked() bool { return t.slab.locked }

// Info describes the engine, which can hold keys of every family.
func (t *Token) Info() hsm.TokenInfo {
	info := hsm.TokenInfo{Driver: "soft", Model: "in-process engine", Label: "cpu"}
	for _, s := range kms.Specs() {
		if !slices.Contains(info.Wraps, s.Family) {
			info.Wraps = append(info.Wraps, s.Family)
		}
	}
	return info
}

// NewSession opens a session. Sessions cost nothing and are not bounded.
func (t *Token) NewSession() (hsm.Session, error) {
	if t.closed.Load() {
		return nil, errClosed
	}
	return &session{token: t}, nil
}

// Load makes a key usable. It fails with ClassRequest when the material is
// not one of the spec and usage, and with ClassCapacity beyond MaxKeys.
func (t *Token) Load(material []byte, spec kms.Spec, usage kms.Usage) (hsm.Handle, error) {
	if t.closed.Load() {
		return 0, errClosed
	}
	info := spec.Info()
	if info == nil || info.Algorithms(usage) == nil {
		return 0, errNoSuchSpec
	}
	raw, err := decodeMaterial(material, spec, usage)
	if err != nil {
		return 0, err
	}
	index, ok := t.takeIndex()
	if !ok {
		return 0, errFull
	}
	use, err := newPrivateKey(info, usage, raw, t.slab.slot(index))
	if err != nil {
		clear(t.slab.slot(index))
		t.returnIndex(index)
		return 0, err
	}
	k := &loadedKey{
		handle:     hsm.Handle(sequence.Add(1)<<indexBits | uint64(index)),
		spec:       spec,
		algorithms: info.Algorithms(usage),
		use:        use,
	}
	t.keys[index].Store(k)
	return k.handle, nil
}

// Unload ends a key and wipes what can be wiped of it.
func (t *Token) Unload(h hsm.Handle) error {
	index := int(h & indexMask)
	k := t.keys[index].Load()
	// The swap makes sure that one of two Unloads of a handle ends the key.
	if k == nil || k.handle != h || !t.keys[index].CompareAndSwap(k, nil) {
		return errStale
	}
	k.end()
	clear(t.slab.slot(index))
	t.returnIndex(index)
	return nil
}

// end waits for calls that use the key, after which none will, and wipes what
// is not in its slot.
func (k *loadedKey) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w, ok := k.use.(wiper); ok {
		w.wipe()
	}
	k.use = nil
}

// lookup returns the key of a handle, nil when it is not loaded.
func (t *Token) lookup(h hsm.Handle) *loadedKey {
	if k := t.keys[h&indexMask].Load(); k != nil && k.handle == h {
		return k
	}
	return nil
}

func (t *Token) takeIndex() (int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		return 0, false
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	return int(i), true
}

func (t *Token) returnIndex(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, uint16(i))
}

// GenerateSealingKey fails with ClassUnsupported: tenants' sealing keys are
// made under a root, and roots live in HSMs only.
func (t *Token) GenerateSealingKey() ([]byte, error) { return nil, errNoRoots }

// LoadSealingKey fails with ClassUnsupported, like GenerateSealingKey.
func (t *Token) LoadSealingKey([]byte) (hsm.Handle, error) { return 0, errNoRoots }

// Enforces is false: this process can read every key that it holds.
func (t *Token) Enforces() (bool, error) { return false, nil }

// Probe runs the self-test: a known answer of each code base that the engine
// computes with, some milliseconds in all.
func (t *Token) Probe() error {
	if t.closed.Load() {
		return errClosed
	}
	if err := selfTest(knownAnswers); err != nil {
		return &hsm.Error{Class: hsm.ClassTokenDown, Call: "probe", Err: err}
	}
	return nil
}

// Close ends all keys and releases their memory. Sessions fail afterwards.
func (t *Token) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	for i := range t.keys {
		if k := t.keys[i].Swap(nil); k != nil {
			k.end()
		}
	}
	if err := t.slab.close(); err != nil {
		return failed("close", err)
	}
	return nil
}
