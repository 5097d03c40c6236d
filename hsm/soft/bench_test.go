package soft_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

// benchCall runs one call over and over on one session per processor.
func benchCall(b *testing.B, token *soft.Token, call hsm.Call) {
	b.Helper()
	b.SetBytes(int64(len(call.Input)))
	b.ReportAllocs()
	b.ResetTimer() // after what it took to make the call
	b.RunParallel(func(pb *testing.PB) {
		session, err := token.NewSession()
		if err != nil {
			b.Error(err)
			return
		}
		defer session.Close()
		call := call
		for pb.Next() {
			if err := session.Do(&call); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func benchToken(b *testing.B) *soft.Token {
	b.Helper()
	token, err := soft.Open()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { token.Close() })
	return token
}

// benchOnce runs a call once and returns its output.
func benchOnce(b *testing.B, token *soft.Token, call hsm.Call) []byte {
	b.Helper()
	session, err := token.NewSession()
	if err != nil {
		b.Fatal(err)
	}
	defer session.Close()
	if err := session.Do(&call); err != nil {
		b.Fatal(err)
	}
	return call.Output
}

// eachAlgorithm runs bench for every spec, usage and algorithm of a usage,
// with a call that names a loaded key and its public half.
func eachAlgorithm(b *testing.B, usage kms.Usage, bench func(b *testing.B, token *soft.Token, call hsm.Call)) {
	token := benchToken(b)
	for _, info := range kms.Specs() {
		algs := info.Algorithms(usage)
		if algs == nil {
			continue
		}
		g, err := token.Generate(info.Spec, usage)
		if err != nil {
			b.Fatal(err)
		}
		h, err := token.Load(g.Material, info.Spec, usage)
		if err != nil {
			b.Fatal(err)
		}
		for _, alg := range algs {
			call := hsm.Call{Algorithm: alg, Spec: info.Spec, Handle: h, PublicKey: g.PublicKey}
			if alg == kms.AlgSM2DSA {
				call.UserID = []byte("1234567812345678")
			}
			b.Run(fmt.Sprintf("%s/%s", info.Spec, alg), func(b *testing.B) { bench(b, token, call) })
		}
	}
}

func randomBytes(n int) []byte {
	p := make([]byte, n)
	rand.Read(p)
	return p
}

func BenchmarkSign(b *testing.B) {
	eachAlgorithm(b, kms.UsageSignVerify, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call.Verb, call.Input = kms.VerbSign, randomBytes(256)
		benchCall(b, token, call)
	})
}

func BenchmarkVerify(b *testing.B) {
	eachAlgorithm(b, kms.UsageSignVerify, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call.Verb, call.Input = kms.VerbSign, randomBytes(256)
		call.Signature = benchOnce(b, token, call)
		call.Verb = kms.VerbVerify
		benchCall(b, token, call)
	})
}

// forEncryption fits the call to its algorithm.
func forEncryption(call hsm.Call, n int) hsm.Call {
	call.Verb, call.Input = kms.VerbEncrypt, randomBytes(n)
	switch call.Algorithm {
	case kms.AlgAESGCM, kms.AlgSM4GCM:
		call.Nonce = make([]byte, 12)
	case kms.AlgAESCBC, kms.AlgSM4CBC:
		call.Nonce = make([]byte, 16)
	}
	return call
}

func BenchmarkEncrypt(b *testing.B) {
	eachAlgorithm(b, kms.UsageEncryptDecrypt, func(b *testing.B, token *soft.Token, call hsm.Call) {
		sizes := []int{32}
		if call.Spec.Info().Symmetric() {
			sizes = []int{32, 4096, 1 << 20}
		}
		for _, n := range sizes {
			b.Run(fmt.Sprint(n), func(b *testing.B) { benchCall(b, token, forEncryption(call, n)) })
		}
	})
}

func BenchmarkDecrypt(b *testing.B) {
	eachAlgorithm(b, kms.UsageEncryptDecrypt, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call = forEncryption(call, 32)
		call.Input = benchOnce(b, token, call)
		call.Verb = kms.VerbDecrypt
		benchCall(b, token, call)
	})
}

func BenchmarkMAC(b *testing.B) {
	eachAlgorithm(b, kms.UsageGenerateVerifyMAC, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call.Verb, call.Input = kms.VerbMAC, randomBytes(256)
		benchCall(b, token, call)
	})
}

func BenchmarkAgree(b *testing.B) {
	eachAlgorithm(b, kms.UsageKeyAgreement, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call.Verb, call.Peer = kms.VerbAgree, call.PublicKey
		benchCall(b, token, call)
	})
}

func BenchmarkDerive(b *testing.B) {
	eachAlgorithm(b, kms.UsageDerive, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call.Verb, call.Input = kms.VerbDerive, randomBytes(32)
		for _, n := range []int{32, kms.MaxDerived} {
			call.Length = n
			b.Run(fmt.Sprint(n), func(b *testing.B) { benchCall(b, token, call) })
		}
	})
}

func BenchmarkWrap(b *testing.B) {
	eachAlgorithm(b, kms.UsageWrapUnwrap, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call.Verb = kms.VerbWrap
		for _, n := range []int{32, kms.MaxWrap} {
			call.Input = randomBytes(n)
			b.Run(fmt.Sprint(n), func(b *testing.B) { benchCall(b, token, call) })
		}
	})
}

func BenchmarkUnwrap(b *testing.B) {
	eachAlgorithm(b, kms.UsageWrapUnwrap, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call.Verb, call.Input = kms.VerbWrap, randomBytes(32)
		call.Input = benchOnce(b, token, call)
		call.Verb = kms.VerbUnwrap
		benchCall(b, token, call)
	})
}

func BenchmarkEncapsulate(b *testing.B) {
	eachAlgorithm(b, kms.UsageEncapsulateDecapsulate, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call.Verb = kms.VerbEncapsulate
		benchCall(b, token, call)
	})
}

func BenchmarkDecapsulate(b *testing.B) {
	eachAlgorithm(b, kms.UsageEncapsulateDecapsulate, func(b *testing.B, token *soft.Token, call hsm.Call) {
		call.Verb = kms.VerbEncapsulate
		call.Input = benchOnce(b, token, call)
		call.Verb = kms.VerbDecapsulate
		benchCall(b, token, call)
	})
}

func BenchmarkProbe(b *testing.B) {
	token := benchToken(b)
	for b.Loop() {
		if err := token.Probe(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoad measures a cold load: what a node pays for a key that is not
// in its cache.
func BenchmarkLoad(b *testing.B) {
	token := benchToken(b)
	for _, info := range kms.Specs() {
		usage := info.Usages[0].Usage
		g, err := token.Generate(info.Spec, usage)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(string(info.Spec), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h, err := token.Load(g.Material, info.Spec, usage)
				if err != nil {
					b.Fatal(err)
				}
				if err := token.Unload(h); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
