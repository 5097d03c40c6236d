package wycheproof

import (
	"bytes"
	"testing"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

type kemGroup struct {
	Tests []struct {
		vector
		Seed, EK, DK, C, K hexBytes
	}
}

var kemSpecs = map[string]kms.Spec{"512": kms.SpecMLKEM512, "768": kms.SpecMLKEM768, "1024": kms.SpecMLKEM1024}

// TestMLKEMDecapsulation: keys from their seeds.
func TestMLKEMDecapsulation(t *testing.T) {
	for set, run := range map[string]int{"512": 200, "768": 201, "1024": 202} {
		t.Run(set, func(t *testing.T) {
			file := "mlkem_" + set
			vectors := read[kemGroup](t, file)
			c := count(t, file)
			for _, g := range vectors.Groups {
				for _, v := range g.Tests {
					c.run++
					k, err := engine(t).load(kemSpecs[set], kms.UsageEncapsulateDecapsulate, seedPKCS8(t, kemSpecs[set], v.Seed))
					if err != nil {
						if !v.invalid() || !refused(err) {
							c.wrong(&v.vector, "%v", err)
						}
						continue
					}
					if len(v.EK) > 0 && !bytes.HasSuffix(k.public, v.EK) {
						c.wrong(&v.vector, "the encapsulation key is another one")
					}
					secret, err := k.do(hsm.Call{Verb: kms.VerbDecapsulate, Algorithm: kms.AlgMLKEM, Input: v.C})
					if v.valid() && (err != nil || !bytes.Equal(secret, v.K)) || v.invalid() && !refused(err) {
						c.wrong(&v.vector, "%x, %v", secret, err)
					}
					k.unload(t)
				}
			}
			c.want(vectors.Count, run)
		})
	}
}

func TestMLKEMKeys(t *testing.T) {
	for set, run := range map[string]int{"512": 100, "768": 100, "1024": 100} {
		t.Run(set, func(t *testing.T) {
			file := "mlkem_" + set + "_keygen_seed"
			vectors := read[kemGroup](t, file)
			c := count(t, file)
			for _, g := range vectors.Groups {
				for _, v := range g.Tests {
					c.run++
					g, err := engine(t).token.(hsm.Importer).Import(kemSpecs[set], kms.UsageEncapsulateDecapsulate, seedPKCS8(t, kemSpecs[set], v.Seed))
					if v.valid() && (err != nil || !bytes.Equal(g.PublicKey, quantumSPKI(t, kemSpecs[set], v.EK))) || v.invalid() && !refused(err) {
						c.wrong(&v.vector, "%v", err)
					}
				}
			}
			c.want(vectors.Count, run)
		})
	}
}

// TestMLKEMEncapsulation: encapsulation is random, so what counts is which
// keys it takes.
func TestMLKEMEncapsulation(t *testing.T) {
	for set, run := range map[string]int{"512": 261, "768": 265, "1024": 269} {
		t.Run(set, func(t *testing.T) {
			file := "mlkem_" + set + "_encaps"
			vectors := read[kemGroup](t, file)
			c := count(t, file)
			for _, g := range vectors.Groups {
				for _, v := range g.Tests {
					c.run++
					call := hsm.Call{Verb: kms.VerbEncapsulate, Algorithm: kms.AlgMLKEM, Spec: kemSpecs[set], PublicKey: quantumSPKI(t, kemSpecs[set], v.EK)}
					err := engine(t).session.Do(&call)
					if v.valid() && (err != nil || len(call.Secret) != 32 || len(call.Output) != len(v.C)) || v.invalid() && !refused(err) {
						c.wrong(&v.vector, "%d and %d bytes, %v", len(call.Secret), len(call.Output), err)
					}
				}
			}
			c.want(vectors.Count, run)
		})
	}
}

// TestMLKEMExpandedKeysAreRefused: without its seed a key is not taken, valid
// or not.
func TestMLKEMExpandedKeysAreRefused(t *testing.T) {
	for set, run := range map[string]int{"512": 9, "768": 9, "1024": 9} {
		t.Run(set, func(t *testing.T) {
			file := "mlkem_" + set + "_semi_expanded_decaps"
			vectors := read[kemGroup](t, file)
			c := count(t, file)
			for _, g := range vectors.Groups {
				for _, v := range g.Tests {
					c.run++
					if _, err := engine(t).load(kemSpecs[set], kms.UsageEncapsulateDecapsulate, expandedPKCS8(t, kemSpecs[set], v.DK)); !refused(err) {
						c.wrong(&v.vector, "%v", err)
					}
				}
			}
			c.want(vectors.Count, run)
		})
	}
}
