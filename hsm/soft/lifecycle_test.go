package soft

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

func openToken(t testing.TB) *Token {
	t.Helper()
	token, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := token.Close(); err != nil {
			t.Error(err)
		}
	})
	return token
}

func openSession(t testing.TB, token *Token) hsm.Session {
	t.Helper()
	s, err := token.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newMaterial(t testing.TB, token *Token, spec kms.Spec, usage kms.Usage) []byte {
	t.Helper()
	g, err := token.Generate(spec, usage)
	if err != nil {
		t.Fatal(err)
	}
	return g.Material
}

func wantClass(t testing.TB, err error, want hsm.Class) {
	t.Helper()
	if err == nil || hsm.ClassOf(err) != want {
		t.Errorf("error %v, want class %v", err, want)
	}
}

// slabSpecs are the specs whose keys live in the slab, whatever their usage.
var slabSpecs = []kms.Spec{kms.SpecAES128, kms.SpecAES256, kms.SpecSM4, kms.SpecSecp256k1, kms.SpecHMAC224, kms.SpecHMAC512,
	kms.SpecHMACSM3, kms.SpecMLDSA44, kms.SpecSLHDSASHA2128F, kms.SpecSLHDSASHAKE256F}

func TestLoadedKeyIsInTheSlabAndUnloadWipesIt(t *testing.T) {
	token := openToken(t)
	for _, spec := range slabSpecs {
		for _, u := range spec.Info().Usages {
			material := newMaterial(t, token, spec, u.Usage)
			h, err := token.Load(material, spec, u.Usage)
			if err != nil {
				t.Fatal(err)
			}
			slot := token.slab.slot(int(h & indexMask))
			if !bytes.HasPrefix(slot, material[materialHeader:]) {
				t.Errorf("%s for %s: the key is not in its slot", spec, u.Usage)
			}
			if err := token.Unload(h); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(slot, make([]byte, slotSize)) {
				t.Errorf("%s for %s: Unload left something in the slot", spec, u.Usage)
			}
		}
	}
}

func TestUnloadWipesEd25519Keys(t *testing.T) {
	token := openToken(t)
	h, err := token.Load(newMaterial(t, token, kms.SpecEd25519, kms.UsageSignVerify), kms.SpecEd25519, kms.UsageSignVerify)
	if err != nil {
		t.Fatal(err)
	}
	private := token.lookup(h).use.(ed25519Key).private
	if err := token.Unload(h); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(private, make([]byte, len(private))) {
		t.Error("Unload left the private key")
	}
}

func TestLoadKeepsNothingOfTheMaterial(t *testing.T) {
	token := openToken(t)
	s := openSession(t, token)
	for _, info := range kms.Specs() {
		if info.Family == kms.FamilyRSA && info.Bits > 2048 || info.Family == kms.FamilySLHDSA && info.Bits > 128 {
			continue
		}
		for _, u := range info.Usages {
			g, err := token.Generate(info.Spec, u.Usage)
			if err != nil {
				t.Fatal(err)
			}
			h, err := token.Load(g.Material, info.Spec, u.Usage)
			if err != nil {
				t.Fatal(err)
			}
			call, repeats := privateCall(&info, u, h, g.PublicKey)
			before := call
			if err := s.Do(&before); err != nil {
				t.Fatalf("%s for %s: %v", info.Spec, u.Usage, err)
			}
			clear(g.Material)
			after := call
			if err := s.Do(&after); err != nil {
				t.Errorf("%s for %s: after the material was wiped: %v", info.Spec, u.Usage, err)
			} else if repeats && !bytes.Equal(before.Output, after.Output) {
				t.Errorf("%s for %s: the key changed with the caller's material", info.Spec, u.Usage)
			}
		}
	}
}

// privateCall returns a call that the key serves, and whether its result is
// the same each time. For public-key decryption it is a public encryption:
// the parsers are those of signing keys.
func privateCall(info *kms.SpecInfo, u kms.UsageAlgorithms, h hsm.Handle, public []byte) (call hsm.Call, repeats bool) {
	call = hsm.Call{Algorithm: u.Algorithms[0], Spec: info.Spec, Handle: h, PublicKey: public, Input: []byte("m")}
	switch u.Usage {
	case kms.UsageSignVerify:
		call.Verb = kms.VerbSign
		if info.Family == kms.FamilySM2 {
			call.UserID = []byte("u")
		}
		return call, info.Family == kms.FamilyEd25519
	case kms.UsageEncryptDecrypt:
		call.Verb = kms.VerbEncrypt
		if !info.Symmetric() {
			return call, false
		}
		call.Nonce = make([]byte, nonceSize)
	case kms.UsageGenerateVerifyMAC:
		call.Verb = kms.VerbMAC
	case kms.UsageKeyAgreement:
		call.Verb, call.Input, call.Peer = kms.VerbAgree, nil, public
	case kms.UsageDerive:
		call.Verb, call.Length = kms.VerbDerive, 32
	case kms.UsageWrapUnwrap:
		call.Verb = kms.VerbWrap
	case kms.UsageEncapsulateDecapsulate:
		call.Verb, call.Input = kms.VerbDecapsulate, make([]byte, mlkemSets[info.Spec].ciphertext)
	}
	return call, true
}

func TestOneKeyMoreThanFitsIsACapacityError(t *testing.T) {
	token := openToken(t)
	material := newMaterial(t, token, kms.SpecAES256, kms.UsageEncryptDecrypt)
	load := func() (hsm.Handle, error) {
		return token.Load(material, kms.SpecAES256, kms.UsageEncryptDecrypt)
	}
	seen := make(map[hsm.Handle]bool)
	var last hsm.Handle
	for range MaxKeys {
		h, err := load()
		if err != nil {
			t.Fatalf("after %d keys: %v", len(seen), err)
		}
		if seen[h] {
			t.Fatal("a handle was given twice")
		}
		seen[h], last = true, h
	}
	_, err := load()
	wantClass(t, err, hsm.ClassCapacity)
	if err := token.Probe(); err != nil {
		t.Errorf("a full token fails its probe: %v", err)
	}
	if err := token.Unload(last); err != nil {
		t.Fatal(err)
	}
	h, err := load()
	if err != nil {
		t.Fatalf("after one was unloaded: %v", err)
	}
	if seen[h] {
		t.Error("the handle of an unloaded key was given again")
	}
}

func TestFailedLoadsTakeNoRoom(t *testing.T) {
	token := openToken(t)
	// The scalar zero is refused after a slot was taken for it.
	zero := encodeMaterial(kms.SpecSecp256k1, kms.UsageSignVerify, make([]byte, secp256k1Size))
	for range MaxKeys + 1 {
		_, err := token.Load(zero, kms.SpecSecp256k1, kms.UsageSignVerify)
		wantClass(t, err, hsm.ClassRequest)
	}
	if _, err := token.Load(newMaterial(t, token, kms.SpecSM4, kms.UsageEncryptDecrypt), kms.SpecSM4, kms.UsageEncryptDecrypt); err != nil {
		t.Errorf("after %d failed loads: %v", MaxKeys+1, err)
	}
}

func TestHandlesOfAnotherTokenAreStale(t *testing.T) {
	one, two := openToken(t), openToken(t)
	material := newMaterial(t, one, kms.SpecHMAC256, kms.UsageGenerateVerifyMAC)
	h, err := one.Load(material, kms.SpecHMAC256, kms.UsageGenerateVerifyMAC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Load(material, kms.SpecHMAC256, kms.UsageGenerateVerifyMAC); err != nil {
		t.Fatal(err)
	}
	call := hsm.Call{Verb: kms.VerbMAC, Algorithm: kms.AlgHMACSHA256, Spec: kms.SpecHMAC256, Handle: h}
	wantClass(t, openSession(t, two).Do(&call), hsm.ClassStaleObject)
	wantClass(t, two.Unload(h), hsm.ClassStaleObject)
}

// TestUnloadUnderCallsGivesNoOtherKeysResult breaks the contract on purpose:
// keys are unloaded while calls use them and their slots go to other keys.
// Calls succeed with their own key's result or find the handle stale.
func TestUnloadUnderCallsGivesNoOtherKeysResult(t *testing.T) {
	const keys, rounds, callers = 8, 300, 3
	token := openToken(t)
	call := hsm.Call{Verb: kms.VerbMAC, Algorithm: kms.AlgHMACSHA256, Spec: kms.SpecHMAC256, Input: []byte("m")}
	materials, want := make([][]byte, keys), make([][]byte, keys)
	for i := range keys {
		materials[i] = newMaterial(t, token, kms.SpecHMAC256, kms.UsageGenerateVerifyMAC)
		h, err := token.Load(materials[i], kms.SpecHMAC256, kms.UsageGenerateVerifyMAC)
		if err != nil {
			t.Fatal(err)
		}
		c := call
		c.Handle = h
		if err := openSession(t, token).Do(&c); err != nil {
			t.Fatal(err)
		}
		want[i] = c.Output
		if err := token.Unload(h); err != nil {
			t.Fatal(err)
		}
	}
	for round := range rounds {
		i := round % keys
		h, err := token.Load(materials[i], kms.SpecHMAC256, kms.UsageGenerateVerifyMAC)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				c := call
				c.Handle = h
				switch err := openSession(t, token).Do(&c); {
				case err != nil:
					wantClass(t, err, hsm.ClassStaleObject)
				case !bytes.Equal(c.Output, want[i]):
					t.Error("a call got another key's result")
				}
			})
		}
		if err := token.Unload(h); err != nil {
			t.Fatal(err)
		}
		next, err := token.Load(materials[(i+1)%keys], kms.SpecHMAC256, kms.UsageGenerateVerifyMAC)
		if err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if err := token.Unload(next); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneOfTwoUnloadsWins(t *testing.T) {
	token := openToken(t)
	material := newMaterial(t, token, kms.SpecAES128, kms.UsageEncryptDecrypt)
	for range 200 {
		h, err := token.Load(material, kms.SpecAES128, kms.UsageEncryptDecrypt)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var errs [2]error
		for i := range errs {
			wg.Go(func() { errs[i] = token.Unload(h) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("two Unloads gave %v and %v", errs[0], errs[1])
		}
	}
	if free := len(token.free); free != MaxKeys {
		t.Errorf("%d slots are free, want all %d", free, MaxKeys)
	}
}

func TestClosedTokenRefusesEverything(t *testing.T) {
	token, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	s := openSession(t, token)
	material := newMaterial(t, token, kms.SpecAES256, kms.UsageEncryptDecrypt)
	h, err := token.Load(material, kms.SpecAES256, kms.UsageEncryptDecrypt)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // closing twice is no error
		if err := token.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantClass(t, s.Do(&hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Spec: kms.SpecAES256, Handle: h, Nonce: make([]byte, nonceSize)}), hsm.ClassTokenDown)
	wantClass(t, s.Do(&hsm.Call{Verb: kms.VerbRandom, Length: 1}), hsm.ClassTokenDown)
	_, err = token.Load(material, kms.SpecAES256, kms.UsageEncryptDecrypt)
	wantClass(t, err, hsm.ClassTokenDown)
	_, err = token.Generate(kms.SpecAES256, kms.UsageEncryptDecrypt)
	wantClass(t, err, hsm.ClassTokenDown)
	_, err = token.NewSession()
	wantClass(t, err, hsm.ClassTokenDown)
	wantClass(t, token.Unload(h), hsm.ClassStaleObject)
	wantClass(t, token.Probe(), hsm.ClassTokenDown)
}

func TestSelfTestFindsAWrongAnswer(t *testing.T) {
	for i, k := range knownAnswers {
		wrong := bytes.Clone(k.want)
		wrong[len(wrong)-1] ^= 1
		answers := append([]knownAnswer{}, knownAnswers...)
		answers[i].want = wrong
		if selfTest(answers) == nil {
			t.Errorf("%s: a wrong answer passes", k.name)
		}
	}
	if err := selfTest(knownAnswers); err != nil {
		t.Error(err)
	}
}

// TestConstantTimeSM4FollowsTheEnvironment runs itself in a process of its
// own, since the variable counts at the start only.
func TestConstantTimeSM4FollowsTheEnvironment(t *testing.T) {
	const answer = "SOFT_TEST_TELL_CONSTANT_TIME"
	if os.Getenv(answer) != "" {
		if !ConstantTimeSM4() {
			os.Exit(3)
		}
		os.Exit(0)
	}
	for value, want := range map[string]int{"FORCE_SM4BLOCK_AESNI=1": 0, "FORCE_SM4BLOCK_AESNI=0": 3, "FORCE_SM4BLOCK_AESNI=": 3} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConstantTimeSM4FollowsTheEnvironment$")
		cmd.Env = append(os.Environ(), value, answer+"=1")
		err := cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("with %s the process ended with %d (%v), want %d", value, got, err, want)
		}
	}
}
