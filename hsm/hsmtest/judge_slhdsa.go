package hsmtest

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/emmansun/gmsm/slhdsa"

	"github.com/sluice-kms/sluice/kms"
)

// The judge of SLH-DSA signatures is FIPS 205's verification, written out
// here, since the engine uses the one library that there is; that library
// makes the judge's own signatures.

// slhdsaName names the parameter set as FIPS 205 does.
func slhdsaName(spec kms.Spec) string {
	name := strings.ReplaceAll(string(spec), "_", "-")
	return name[:len(name)-1] + strings.ToLower(name[len(name)-1:])
}

// slhdsaSigner expands a key and returns it with its public half.
func (k quantumSeed) slhdsaSigner() (*slhdsa.PrivateKey, encoder, error) {
	params, ok := slhdsa.GetParameterSet(slhdsaName(k.spec))
	if !ok {
		return nil, nil, fmt.Errorf("no parameter set %s", k.spec)
	}
	private, err := slhdsa.GenerateKey(bytes.NewReader(k.seed), params)
	if err != nil {
		return nil, nil, err
	}
	return private, private.Public().(encoder), nil
}

func (k quantumSeed) signSLHDSA(message []byte) ([]byte, error) {
	private, _, err := k.slhdsaSigner()
	if err != nil {
		return nil, err
	}
	random := make([]byte, len(k.seed)/3)
	rand.Read(random)
	return private.SignMessage(nil, message, &slhdsa.Options{AddRand: random})
}

// slhdsaVerifier verifies under one key. Names are those of FIPS 205.
type slhdsaVerifier struct {
	n, h, d, a, k, m int
	shake            bool
	seed, root       []byte // PK.seed, PK.root
}

// slhdsaSets holds n, h, d, a, k and m of FIPS 205, table 2, which SHA-2 and
// SHAKE have in common.
var slhdsaSets = map[string][6]int{
	"128S": {16, 63, 7, 12, 14, 30}, "128F": {16, 66, 22, 6, 33, 34},
	"192S": {24, 63, 7, 14, 17, 39}, "192F": {24, 66, 22, 8, 33, 42},
	"256S": {32, 64, 8, 14, 22, 47}, "256F": {32, 68, 17, 9, 35, 49},
}

// The types of addresses (FIPS 205, section 4.2).
const (
	wotsHash = iota
	wotsPK
	treeNode
	forsTree
	forsRoots
)

// address is ADRS: layer, tree (12 bytes), type, then three words.
type address struct {
	layer   uint32
	tree    uint64
	kind    uint32
	words   [3]uint32 // key pair; chain or height; hash or index
	shorten bool      // to 22 bytes (section 11.2)
}

func (a address) bytes() []byte {
	var b []byte
	if a.shorten {
		b = append(b, byte(a.layer))
		b = binary.BigEndian.AppendUint64(b, a.tree)
		b = append(b, byte(a.kind))
	} else {
		b = binary.BigEndian.AppendUint32(b, a.layer)
		b = append(b, 0, 0, 0, 0)
		b = binary.BigEndian.AppendUint64(b, a.tree)
		b = binary.BigEndian.AppendUint32(b, a.kind)
	}
	for _, w := range a.words {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return b
}

func verifySLHDSA(pub quantumKey, message, sig []byte) bool {
	name := string(pub.spec)
	p, ok := slhdsaSets[name[strings.LastIndexByte(name, '_')+1:]]
	v := slhdsaVerifier{n: p[0], h: p[1], d: p[2], a: p[3], k: p[4], m: p[5], shake: strings.Contains(name, "SHAKE")}
	wots := 2*v.n + 3
	if !ok || len(pub.octets) != 2*v.n || len(sig) != v.n*(1+v.k*(1+v.a)+v.h+v.d*wots) {
		return false
	}
	v.seed, v.root = pub.octets[:v.n], pub.octets[v.n:]
	return v.verify(slices.Concat([]byte{0, 0}, message), sig)
}

// verify is algorithm 20.
func (v *slhdsaVerifier) verify(message, sig []byte) bool {
	take := func(count int) []byte {
		part := sig[:count*v.n]
		sig = sig[count*v.n:]
		return part
	}
	r := take(1)
	digest := v.hashMessage(r, message)
	mdSize, treeBits, leafBits := (v.k*v.a+7)/8, v.h-v.h/v.d, v.h/v.d
	md := digest[:mdSize]
	tree := number(digest[mdSize:mdSize+(treeBits+7)/8], treeBits)
	leaf := uint32(number(digest[mdSize+(treeBits+7)/8:], leafBits))

	node := v.forsKey(md, take(v.k*(1+v.a)), tree, leaf)
	for layer := range v.d { // algorithm 13
		node = v.xmssKey(node, take(2*v.n+3+leafBits), uint32(layer), tree, leaf)
		leaf = uint32(tree & (1<<leafBits - 1))
		tree >>= leafBits
	}
	return bytes.Equal(node, v.root)
}

// number reads the lowest bits of big-endian bytes.
func number(b []byte, bits int) uint64 {
	var n uint64
	for _, x := range b[:(bits+7)/8] {
		n = n<<8 | uint64(x)
	}
	if bits == 64 {
		return n
	}
	return n & (1<<bits - 1)
}

// forsKey is algorithm 17.
func (v *slhdsaVerifier) forsKey(md, sig []byte, tree uint64, leaf uint32) []byte {
	adrs := address{tree: tree, kind: forsTree, words: [3]uint32{leaf}, shorten: !v.shake}
	var roots []byte
	for i, index := range digits(md, v.a, v.k) {
		adrs.words[1], adrs.words[2] = 0, uint32(i)<<v.a+index
		node := v.tweak(adrs, sig[:v.n])
		roots = append(roots, v.climb(adrs, node, sig[v.n:v.n*(1+v.a)], index)...)
		sig = sig[v.n*(1+v.a):]
	}
	return v.tweak(address{tree: tree, kind: forsRoots, words: [3]uint32{leaf}, shorten: !v.shake}, roots)
}

// climb hashes a node with its authentication path up to the root. The
// address holds the node's index in its layer.
func (v *slhdsaVerifier) climb(adrs address, node, path []byte, index uint32) []byte {
	for height := 0; len(path) > 0; height++ {
		sibling := path[:v.n]
		path = path[v.n:]
		pair := slices.Concat(node, sibling)
		if index&1 == 1 {
			pair = slices.Concat(sibling, node)
		}
		index >>= 1
		adrs.words[1], adrs.words[2] = uint32(height)+1, adrs.words[2]>>1
		node = v.tweak(adrs, pair)
	}
	return node
}

// xmssKey is algorithm 11.
func (v *slhdsaVerifier) xmssKey(message, sig []byte, layer uint32, tree uint64, leaf uint32) []byte {
	adrs := address{layer: layer, tree: tree, kind: treeNode, words: [3]uint32{0, 0, leaf}, shorten: !v.shake}
	wots := v.n * (2*v.n + 3)
	return v.climb(adrs, v.wotsKey(message, sig[:wots], adrs, leaf), sig[wots:], leaf)
}

// wotsKey is algorithm 8, with w = 16.
func (v *slhdsaVerifier) wotsKey(message, sig []byte, adrs address, leaf uint32) []byte {
	values := digits(message, 4, 2*v.n)
	sum := uint32(0)
	for _, x := range values {
		sum += 15 - x
	}
	values = append(values, sum>>8&15, sum>>4&15, sum&15)
	adrs.kind = wotsHash
	var ends []byte
	for i, x := range values {
		node := sig[i*v.n : (i+1)*v.n]
		for step := x; step < 15; step++ {
			adrs.words = [3]uint32{leaf, uint32(i), step}
			node = v.tweak(adrs, node)
		}
		ends = append(ends, node...)
	}
	adrs.kind, adrs.words = wotsPK, [3]uint32{leaf}
	return v.tweak(adrs, ends)
}

// digits splits bytes into numbers of so many bits (algorithm 4).
func digits(b []byte, bits, count int) []uint32 {
	out := make([]uint32, count)
	for i := range out {
		for j := i * bits; j < (i+1)*bits; j++ {
			out[i] = out[i]<<1 | uint32(b[j/8]>>(7-j%8)&1)
		}
	}
	return out
}

// tweak is F, H and T (sections 11.1 and 11.2), which differ by the length of
// what they hash: with SHA-2, F is always SHA-256.
func (v *slhdsaVerifier) tweak(adrs address, data []byte) []byte {
	if v.shake {
		return sha3.SumSHAKE256(slices.Concat(v.seed, adrs.bytes(), data), v.n)
	}
	newHash := sha256.New
	if v.n > 16 && len(data) > v.n {
		newHash = sha512.New
	}
	h := newHash()
	h.Write(v.seed)
	h.Write(make([]byte, h.BlockSize()-v.n))
	h.Write(adrs.bytes())
	h.Write(data)
	return h.Sum(nil)[:v.n]
}

// hashMessage is H_msg.
func (v *slhdsaVerifier) hashMessage(r, message []byte) []byte {
	if v.shake {
		return sha3.SumSHAKE256(slices.Concat(r, v.seed, v.root, message), v.m)
	}
	newHash := sha256.New
	if v.n > 16 {
		newHash = sha512.New
	}
	h := newHash()
	h.Write(slices.Concat(r, v.seed, v.root, message))
	return mgf1(newHash, slices.Concat(r, v.seed, h.Sum(nil)), v.m)
}

// mgf1 is RFC 8017, B.2.1.
func mgf1(newHash func() hash.Hash, seed []byte, length int) []byte {
	var out []byte
	for counter := uint32(0); len(out) < length; counter++ {
		h := newHash()
		h.Write(binary.BigEndian.AppendUint32(bytes.Clone(seed), counter))
		out = h.Sum(out)
	}
	return out[:length]
}
