package p11

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// aesKey loads a new AES-256 key.
func aesKey(t testing.TB, token *Token) hsm.Handle { return newKey(t, token, kms.SpecAES256) }

// newKey makes and loads a key of the spec for its default usage.
func newKey(t testing.TB, token *Token, spec kms.Spec) hsm.Handle {
	t.Helper()
	return newKeyFor(t, token, spec, spec.Info().Usages[0].Usage).handle
}

// loadedPair is a loaded key and its public half.
type loadedPair struct {
	handle hsm.Handle
	public []byte
}

func newKeyFor(t testing.TB, token *Token, spec kms.Spec, usage kms.Usage) loadedPair {
	t.Helper()
	g, err := token.Generate(spec, usage)
	if err != nil {
		t.Fatal(err)
	}
	h, err := token.Load(g.Material, spec, usage)
	if err != nil {
		t.Fatal(err)
	}
	return loadedPair{h, g.PublicKey}
}

func encryptCall(h hsm.Handle, plaintext []byte) hsm.Call {
	nonce := make([]byte, nonceSize)
	rand.Read(nonce)
	return hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Spec: kms.SpecAES256, Handle: h, Nonce: nonce, Input: plaintext}
}

// mustWork runs a round trip in the session.
func mustWork(t *testing.T, s *session, h hsm.Handle) {
	t.Helper()
	c := encryptCall(h, []byte("still here"))
	ciphertext := do(t, s, c)
	c.Verb, c.Input = kms.VerbDecrypt, ciphertext
	if got := do(t, s, c); string(got) != "still here" {
		t.Errorf("the session decrypts to %q", got)
	}
}

func wantClass(t *testing.T, what string, err error, class hsm.Class) {
	t.Helper()
	if err == nil || hsm.ClassOf(err) != class {
		t.Errorf("%s: %v, want class %s", what, err, class)
	}
}

// A warm operation is one call from Go into C: Crossings counts it, and the
// runtime's own count agrees.
func TestAWarmOperationIsOneCrossing(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	aes := aesKey(t, token)
	sealed := encryptCall(aes, message(64))
	sealed.Input = do(t, s, sealed)
	sealed.Verb = kms.VerbDecrypt
	large := encryptCall(aes, message(1<<20))
	calls := map[string]hsm.Call{
		"AES-GCM encrypt": encryptCall(aes, message(64)),
		"AES-GCM decrypt": sealed,
		"AES-GCM 1 MiB":   large,
		"random":          {Verb: kms.VerbRandom, Length: 32},
	}
	agreement := newKeyFor(t, token, kms.SpecP256, kms.UsageKeyAgreement)
	calls["ECDH"] = hsm.Call{Verb: kms.VerbAgree, Algorithm: kms.AlgECDH, Spec: kms.SpecP256, Handle: agreement.handle, Peer: agreement.public}
	calls["HKDF"] = hsm.Call{Verb: kms.VerbDerive, Algorithm: kms.AlgHKDFSHA256, Spec: kms.SpecHMAC256,
		Handle: newKeyFor(t, token, kms.SpecHMAC256, kms.UsageDerive).handle, Length: kms.MaxDerived}
	wrap := hsm.Call{Verb: kms.VerbWrap, Algorithm: kms.AlgAESKWP, Spec: kms.SpecAES256,
		Handle: newKeyFor(t, token, kms.SpecAES256, kms.UsageWrapUnwrap).handle, Input: message(kms.MaxWrap)}
	calls["KWP wrap"] = wrap
	wrap.Input = do(t, s, wrap)
	wrap.Verb = kms.VerbUnwrap
	calls["KWP unwrap"] = wrap
	cbc := encryptCall(aes, message(64))
	cbc.Algorithm, cbc.Nonce = kms.AlgAESCBC, make([]byte, ivSize)
	calls["CBC encrypt"] = cbc
	for _, spec := range []kms.Spec{kms.SpecP256, kms.SpecRSA2048, kms.SpecHMAC256} {
		c := hsm.Call{Verb: kms.VerbSign, Spec: spec, Handle: newKey(t, token, spec), Input: message(64)}
		if spec == kms.SpecHMAC256 {
			c.Verb = kms.VerbMAC
		}
		for _, c.Algorithm = range spec.Info().Usages[0].Algorithms {
			calls[string(c.Algorithm)] = c
		}
	}
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			const rounds = 20
			cgo, counted := runtime.NumCgoCall(), token.Crossings()
			for range rounds {
				do(t, s, c)
			}
			cgo, counted = runtime.NumCgoCall()-cgo, token.Crossings()-counted
			if cgo != rounds || counted != rounds {
				t.Errorf("%d operations took %d calls into C, counted as %d", rounds, cgo, counted)
			}
		})
	}
}

// with returns a changed call.
func with(c hsm.Call, change func(*hsm.Call)) hsm.Call {
	change(&c)
	return c
}

// What is refused before the call costs no crossing at all.
func TestWhatDoesNotFitTheKeyNeverReachesTheToken(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	aes, ec, hmac := aesKey(t, token), newKey(t, token, kms.SpecP256), newKey(t, token, kms.SpecHMAC256)
	good := encryptCall(aes, []byte("m"))
	agreement := newKeyFor(t, token, kms.SpecP256, kms.UsageKeyAgreement)
	agree := hsm.Call{Verb: kms.VerbAgree, Algorithm: kms.AlgECDH, Spec: kms.SpecP256, Handle: agreement.handle, Peer: agreement.public}
	derive := hsm.Call{Verb: kms.VerbDerive, Algorithm: kms.AlgHKDFSHA256, Spec: kms.SpecHMAC256,
		Handle: newKeyFor(t, token, kms.SpecHMAC256, kms.UsageDerive).handle, Length: 32}
	wrap := hsm.Call{Verb: kms.VerbWrap, Algorithm: kms.AlgAESKWP, Spec: kms.SpecAES256,
		Handle: newKeyFor(t, token, kms.SpecAES256, kms.UsageWrapUnwrap).handle, Input: []byte("m")}
	cbc := with(good, func(c *hsm.Call) { c.Algorithm, c.Nonce = kms.AlgAESCBC, make([]byte, ivSize) })
	sign := hsm.Call{Verb: kms.VerbSign, Algorithm: kms.AlgECDSASHA256, Spec: kms.SpecP256, Handle: ec}
	before := token.Crossings()
	for name, c := range map[string]struct {
		call  hsm.Call
		class hsm.Class
	}{
		"no nonce":                    {with(good, func(c *hsm.Call) { c.Nonce = nil }), hsm.ClassRequest},
		"nonce of 16 bytes":           {with(good, func(c *hsm.Call) { c.Nonce = make([]byte, 16) }), hsm.ClassRequest},
		"more than a session takes":   {with(good, func(c *hsm.Call) { c.Input = make([]byte, maxData+1) }), hsm.ClassRequest},
		"more with additional data":   {with(good, func(c *hsm.Call) { c.Input, c.AAD = make([]byte, maxData), []byte{0} }), hsm.ClassRequest},
		"another algorithm":           {with(good, func(c *hsm.Call) { c.Algorithm = kms.AlgSM4GCM }), hsm.ClassRequest},
		"another spec":                {with(good, func(c *hsm.Call) { c.Spec = kms.SpecAES128 }), hsm.ClassRequest},
		"an EC key to encrypt":        {with(good, func(c *hsm.Call) { c.Handle = ec }), hsm.ClassRequest},
		"an AES key to sign":          {with(sign, func(c *hsm.Call) { c.Handle = aes }), hsm.ClassRequest},
		"RSA algorithm on an EC key":  {with(sign, func(c *hsm.Call) { c.Algorithm = kms.AlgRSAPSSSHA256 }), hsm.ClassRequest},
		"empty digest":                {with(sign, func(c *hsm.Call) { c.Prehashed = true }), hsm.ClassRequest},
		"digest of another hash":      {with(sign, func(c *hsm.Call) { c.Prehashed, c.Input = true, make([]byte, 48) }), hsm.ClassRequest},
		"prehashed MAC":               {hsm.Call{Verb: kms.VerbMAC, Algorithm: kms.AlgHMACSHA256, Spec: kms.SpecHMAC256, Handle: hmac, Prehashed: true, Input: make([]byte, 32)}, hsm.ClassRequest},
		"ciphertext without tag":      {with(good, func(c *hsm.Call) { c.Verb, c.Input = kms.VerbDecrypt, make([]byte, 15) }), hsm.ClassRequest},
		"no random bytes":             {hsm.Call{Verb: kms.VerbRandom}, hsm.ClassRequest},
		"negative random bytes":       {hsm.Call{Verb: kms.VerbRandom, Length: -1}, hsm.ClassRequest},
		"too many random bytes":       {hsm.Call{Verb: kms.VerbRandom, Length: maxData + 1}, hsm.ClassRequest},
		"CBC with a nonce of 12":      {with(cbc, func(c *hsm.Call) { c.Nonce = c.Nonce[:12] }), hsm.ClassRequest},
		"CBC with additional data":    {with(cbc, func(c *hsm.Call) { c.AAD = []byte("a") }), hsm.ClassRequest},
		"CBC of half a block":         {with(cbc, func(c *hsm.Call) { c.Verb, c.Input = kms.VerbDecrypt, make([]byte, 8) }), hsm.ClassRequest},
		"a peer that is none":         {with(agree, func(c *hsm.Call) { c.Peer = nil }), hsm.ClassRequest},
		"a peer off the curve":        {with(agree, func(c *hsm.Call) { c.Peer = append(bytes.Clone(c.Peer[:len(c.Peer)-1]), ^c.Peer[len(c.Peer)-1]) }), hsm.ClassRequest},
		"a signing key to agree":      {with(agree, func(c *hsm.Call) { c.Handle = ec }), hsm.ClassRequest},
		"an agreement key to sign":    {with(sign, func(c *hsm.Call) { c.Handle = agree.Handle }), hsm.ClassRequest},
		"15 derived bytes":            {with(derive, func(c *hsm.Call) { c.Length = 15 }), hsm.ClassRequest},
		"8161 derived bytes":          {with(derive, func(c *hsm.Call) { c.Length = 8161 }), hsm.ClassRequest},
		"a long context":              {with(derive, func(c *hsm.Call) { c.Input = make([]byte, kms.MaxDeriveContext+1) }), hsm.ClassRequest},
		"a MAC key to derive":         {with(derive, func(c *hsm.Call) { c.Handle = hmac }), hsm.ClassRequest},
		"nothing to wrap":             {with(wrap, func(c *hsm.Call) { c.Input = nil }), hsm.ClassRequest},
		"much to wrap":                {with(wrap, func(c *hsm.Call) { c.Input = make([]byte, kms.MaxWrap+1) }), hsm.ClassRequest},
		"half of what was wrapped":    {with(wrap, func(c *hsm.Call) { c.Verb, c.Input = kms.VerbUnwrap, make([]byte, 8) }), hsm.ClassRequest},
		"a wrapping key to encrypt":   {with(good, func(c *hsm.Call) { c.Handle = wrap.Handle }), hsm.ClassRequest},
		"decapsulate":                 {hsm.Call{Verb: kms.VerbDecapsulate, Algorithm: kms.AlgMLKEM, Spec: kms.SpecMLKEM768}, hsm.ClassUnsupported},
		"no handle":                   {with(good, func(c *hsm.Call) { c.Handle = 0 }), hsm.ClassStaleObject},
		"verify":                      {hsm.Call{Verb: kms.VerbVerify, Algorithm: kms.AlgECDSASHA256, Spec: kms.SpecP256}, hsm.ClassUnsupported},
		"encrypt with a public key":   {hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgRSAOAEPSHA256, Spec: kms.SpecRSA2048}, hsm.ClassUnsupported},
		"digest":                      {hsm.Call{Verb: kms.VerbDigest, Digest: kms.DigestSHA256}, hsm.ClassUnsupported},
		"a verb that does not exist":  {hsm.Call{Verb: 99}, hsm.ClassUnsupported},
		"encrypt with a spec unknown": {with(good, func(c *hsm.Call) { c.Spec = "AES_512" }), hsm.ClassUnsupported},
	} {
		call := c.call
		wantClass(t, name, s.Do(&call), c.class)
		if call.Output != nil {
			t.Errorf("%s: left output", name)
		}
	}
	if n := token.Crossings() - before; n != 0 {
		t.Errorf("%d of them reached the token", n)
	}
	mustWork(t, s, aes)
}

// The module's failures after *Init leave no operation behind: the next call
// in the same session works, without another session.
func TestAFailureAfterInitLeavesTheSessionUsable(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	aes := aesKey(t, token)
	object := uint(objectOf(t, aes))
	gcmRequest := func(op operation, input []byte, room int) *request {
		return &request{operation: op, mechanism: gcmMechanism, key: object, nonce: make([]byte, nonceSize), input: input, room: room}
	}
	for name, c := range map[string]struct {
		request *request
		code    uint
	}{
		"bad tag": {gcmRequest(opDecrypt, make([]byte, 64), 128), pkcs11.CKR_GENERAL_ERROR},
		// The standard keeps the operation active for another try.
		"room too small for the ciphertext": {gcmRequest(opEncrypt, make([]byte, 64), 8), pkcs11.CKR_BUFFER_TOO_SMALL},
		"room too small for the plaintext":  {gcmRequest(opDecrypt, make([]byte, 64), 1), pkcs11.CKR_BUFFER_TOO_SMALL},
	} {
		t.Run(name, func(t *testing.T) {
			handle := s.handle
			_, err := s.run(c.request)
			if e, ok := errors.AsType[*hsm.Error](err); !ok || uint(e.Code) != c.code {
				t.Fatalf("got %v, want code 0x%x", err, c.code)
			}
			if err := s.result(err); err == nil || s.broken || s.handle != handle {
				t.Errorf("broken %t, handle %d then %d", s.broken, handle, s.handle)
			}
			mustWork(t, s, aes)
		})
	}
}

// An operation that something else left active costs the caller one error of
// class session, and the next call has a session of its own again.
func TestASessionWithAStuckOperationIsReplaced(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	aes := aesKey(t, token)
	for round := range maxSetAside {
		mech := pkcs11.NewMechanism(pkcs11.CKM_AES_ECB, nil)
		if err := token.conn.mod.ctx.EncryptInit(s.handle, []*pkcs11.Mechanism{mech}, pkcs11.ObjectHandle(objectOf(t, aes))); err != nil {
			t.Fatal(err)
		}
		handle := s.handle
		call := encryptCall(aes, nil)
		wantClass(t, "the call that meets it", s.Do(&call), hsm.ClassSession)
		mustWork(t, s, aes)
		if s.handle == handle {
			t.Fatalf("round %d: the session was kept", round)
		}
	}
	// Sessions are not left behind without end.
	s.broken, s.dirty = true, true
	call := encryptCall(aes, nil)
	wantClass(t, "after too many", s.Do(&call), hsm.ClassTokenDown)
}

func TestASessionThatIsGoneIsReplaced(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	aes := aesKey(t, token)
	if err := token.conn.mod.ctx.CloseSession(s.handle); err != nil {
		t.Fatal(err)
	}
	call := encryptCall(aes, nil)
	wantClass(t, "the call that finds out", s.Do(&call), hsm.ClassSession)
	mustWork(t, s, aes)
	if token.conn.aside != 0 {
		t.Error("a session that is gone was counted as left behind")
	}
}

func TestClosedSessionsServeTheNextWorker(t *testing.T) {
	token := openMember(t, 0)
	aes := aesKey(t, token)
	first, err := token.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	handle := first.(*session).handle
	for range 2 {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
	second := newSession(t, token)
	if second.handle != handle {
		t.Error("another session was opened")
	}
	third := newSession(t, token)
	if third.handle == handle {
		t.Error("one session serves two workers")
	}
	call := encryptCall(aes, nil)
	wantClass(t, "the closed one", first.Do(&call), hsm.ClassSession)
	mustWork(t, second, aes)
}

// residentBytes reads the process's resident set (proc(5), statm).
func residentBytes(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.Fields(string(raw))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n * pageSize
}

// A forged ciphertext costs no memory, however often it comes. (Through
// miekg/pkcs11 it costs its own length each time.)
func TestBadTagsLeaveMemoryFlat(t *testing.T) {
	const (
		rounds = 10_000
		size   = 256 << 10
		// maxGrowth is 20 of the ciphertexts: room for the allocators'
		// rounding, a five-hundredth of what a leak would take.
		maxGrowth = 20 * size
	)
	token := openMember(t, 0)
	s := newSession(t, token)
	aes := aesKey(t, token)
	forged := encryptCall(aes, make([]byte, size))
	forged.Verb = kms.VerbDecrypt
	forge := func(n int) {
		for range n {
			call := forged
			if err := s.Do(&call); err == nil || call.Output != nil {
				t.Fatal("decrypted")
			}
		}
	}
	forge(100) // until the allocators have what they keep
	runtime.GC()
	before := residentBytes(t)
	forge(rounds)
	runtime.GC()
	grown := residentBytes(t) - before
	t.Logf("%d bad tags over %d bytes: resident memory grew by %d bytes", rounds, size, grown)
	if grown > maxGrowth {
		t.Errorf("grew by %d bytes", grown)
	}
	mustWork(t, s, aes)
}

// The pages of a large operation are given back.
func TestMemoryOfALargeOperationIsGivenBack(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	aes := aesKey(t, token)
	for _, size := range []int{1 << 20, 2 << 20} {
		do(t, s, encryptCall(aes, make([]byte, size)))
		// What is kept of input and output, and the request. Nothing has read the
		// pages since, which makes them resident where the kernel has no page of
		// zeros that all share.
		if resident := residentIn(t, s.memory.mapped); resident > 2*keptData+pageSize {
			t.Errorf("%d bytes stay resident after %d", resident, size)
		}
	}
}

// Plaintext does not stay in the session's memory, on success nor on failure.
func TestMemoryIsWiped(t *testing.T) {
	token := openMember(t, 0)
	s := newSession(t, token)
	aes := aesKey(t, token)
	secret := bytes.Repeat([]byte("secret plaintext"), (2<<20)/16)
	for _, size := range []int{32, keptData, 1 << 20, 2 << 20} {
		call := encryptCall(aes, secret[:size])
		call.AAD = secret[:16]
		ciphertext := do(t, s, call)
		wantWiped(t, s, "encryption")
		call.Verb, call.Input = kms.VerbDecrypt, ciphertext
		if got := do(t, s, call); !bytes.Equal(got, secret[:size]) {
			t.Fatalf("%d bytes do not come back", size)
		}
		wantWiped(t, s, "decryption")
		call.AAD = nil
		if err := s.Do(&call); err == nil {
			t.Fatal("decrypted without the additional data")
		}
		wantWiped(t, s, "failed decryption")
	}
	agreement := newKeyFor(t, token, kms.SpecP521, kms.UsageKeyAgreement)
	for name, call := range map[string]hsm.Call{
		"agreement": {Verb: kms.VerbAgree, Algorithm: kms.AlgECDH, Spec: kms.SpecP521, Handle: agreement.handle, Peer: agreement.public},
		"derivation": {Verb: kms.VerbDerive, Algorithm: kms.AlgHKDFSHA512, Spec: kms.SpecHMAC512,
			Handle: newKeyFor(t, token, kms.SpecHMAC512, kms.UsageDerive).handle, Input: secret[:32], Length: kms.MaxDerived - 1},
		"wrapping": {Verb: kms.VerbWrap, Algorithm: kms.AlgAESKWP, Spec: kms.SpecAES256,
			Handle: newKeyFor(t, token, kms.SpecAES256, kms.UsageWrapUnwrap).handle, Input: secret[:kms.MaxWrap]},
	} {
		do(t, s, call)
		wantWiped(t, s, name)
	}
	if _, err := token.Import(kms.SpecAES256, kms.UsageEncryptDecrypt, secret[:32]); err != nil {
		t.Fatal(err)
	}
	wantWiped(t, token.generator, "import")
}

// residentIn reads how much of a mapping is resident (proc(5), smaps). The
// guard page keeps the kernel from merging it with its neighbour.
func residentIn(t *testing.T, mapped []byte) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	start := fmt.Sprintf("%x-", uintptr(unsafe.Pointer(&mapped[0])))
	_, entry, found := strings.Cut(string(raw), "\n"+start)
	_, rss, ok := strings.Cut(entry, "\nRss:")
	if !found || !ok {
		t.Fatal("the mapping is not listed")
	}
	n, err := strconv.Atoi(strings.Fields(rss)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

func wantWiped(t *testing.T, s *session, after string) {
	t.Helper()
	for name, area := range map[string][]byte{"input": s.memory.input, "output": s.memory.output} {
		if bytes.Count(area, []byte{0}) != len(area) {
			t.Errorf("%s is not wiped after %s", name, after)
		}
	}
}
