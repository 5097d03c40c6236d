package hsm

import (
	"bytes"
	"encoding/json/v2"
	"errors"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// twoGenerations is a domain whose roots are being replaced.
func twoGenerations() *Domain {
	check := bytes.Repeat([]byte{1}, checkSize)
	return &Domain{ID: uuid.New(), Name: "d", Generation: 3, KeyRootCheck: check, SealingRootCheck: check,
		Earlier: []Generation{{2, check, check}}}
}

// generationToken notes under which generation it was asked to load; 0 is the
// newest.
type generationToken struct {
	Token
	asked []uint32
	err   error
}

func (g *generationToken) Load([]byte, kms.Spec, kms.Usage) (Handle, error) {
	g.asked = append(g.asked, 0)
	return 1, g.err
}
func (g *generationToken) LoadSealingKey([]byte) (Handle, error) { return g.Load(nil, "", "") }
func (g *generationToken) LoadEarlier(generation uint32, _ []byte, _ kms.Spec, _ kms.Usage) (Handle, error) {
	g.asked = append(g.asked, generation)
	return 1, g.err
}
func (g *generationToken) LoadEarlierSealingKey(generation uint32, m []byte) (Handle, error) {
	return g.LoadEarlier(generation, m, "", "")
}

func TestMaterialIsLoadedUnderTheRootsThatWrapIt(t *testing.T) {
	token := &generationToken{}
	n := &node{domain: twoGenerations(), token: token}
	for _, generation := range []uint32{3, 2} {
		if _, err := n.loadMaterial(generation, nil, kms.SpecAES256, kms.UsageEncryptDecrypt); err != nil {
			t.Error(err)
		}
		if _, err := n.loadSealingKey(kms.SealingKey{RootGeneration: generation}); err != nil {
			t.Error(err)
		}
	}
	if want := []uint32{0, 0, 2, 2}; len(token.asked) != 4 || token.asked[0] != want[0] || token.asked[1] != want[1] ||
		token.asked[2] != want[2] || token.asked[3] != want[3] {
		t.Errorf("asked for %v", token.asked)
	}
	engine := &node{token: token}
	if _, err := engine.loadMaterial(2, nil, kms.SpecSM4, kms.UsageEncryptDecrypt); err != nil || token.asked[4] != 0 {
		t.Errorf("the engine was asked for a generation: %v, %v", token.asked, err)
	}
}

// A node without the earlier roots is passed over for another; it is not at
// fault, as it is with the newest.
func TestNodeWithoutEarlierRootsIsPassedOver(t *testing.T) {
	for _, class := range []Class{ClassUnsupported, ClassRootGone, ClassStaleObject} {
		n := &node{domain: twoGenerations(), token: &generationToken{err: &Error{Class: class}}}
		_, err := n.loadMaterial(2, nil, kms.SpecAES256, kms.UsageEncryptDecrypt)
		if !lacksRoot(err) || kms.KindOf(err) != kms.KindHSMUnavailable {
			t.Errorf("%s: %v", class, err)
		}
		if _, err := n.loadMaterial(3, nil, kms.SpecAES256, kms.UsageEncryptDecrypt); lacksRoot(err) || ClassOf(err) != class {
			t.Errorf("%s with the newest roots: %v", class, err)
		}
	}
	n := &node{domain: twoGenerations(), token: &generationToken{err: &Error{Class: ClassRequest}}}
	if _, err := n.loadMaterial(2, nil, kms.SpecAES256, kms.UsageEncryptDecrypt); lacksRoot(err) || ClassOf(err) != ClassRequest {
		t.Errorf("spoilt material: %v", err)
	}
	plain := &node{domain: twoGenerations(), token: struct{ Token }{}}
	if _, err := plain.loadSealingKey(kms.SealingKey{RootGeneration: 2}); !lacksRoot(err) {
		t.Errorf("a driver without earlier roots: %v", err)
	}
}

// A blob that needs roots which are retired is lost; one that needs roots of
// which the node has not heard is for another node.
func TestBlobOfLaterRootsIsForAnotherNode(t *testing.T) {
	domain := twoGenerations()
	n := &node{domain: domain, token: struct{ Token }{}}
	try := func(kind blobKind, blob, sealing uint32) error {
		b := appendBlobHeader(nil, blobHeader{kind, domain.ID, blob}, make([]byte, gcmNonceSize))
		b = append(b, make([]byte, commitmentSize+gcmTagSize)...)
		_, err := (&Device{}).openOn(n, kms.SealingKey{Domain: domain.ID, RootGeneration: sealing}, sealContext{kind: kind}, b)
		return err
	}
	for name, err := range map[string]error{
		"later key root":                  try(blobWrapped, 4, 3),
		"later sealing root":              try(blobWrapped, 3, 4),
		"later sealing root, SEALED":      try(blobSealed, 1, 4),
		"later key root, retired sealing": try(blobWrapped, 4, 1),
	} {
		if !lacksRoot(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"retired key root":     try(blobWrapped, 1, 3),
		"retired sealing root": try(blobWrapped, 3, 1),
		"no generation":        try(blobWrapped, 0, 0),
	} {
		if err != errBlob {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only wrapped material depends on the key root of its blob's generation.
func TestOnlyWrappedBlobsNeedAKeyRoot(t *testing.T) {
	for kind, want := range map[blobKind]uint32{blobWrapped: 7, blobSealed: 0, blobSecret: 0} {
		blob := appendBlobHeader(nil, blobHeader{kind, uuid.New(), 7}, make([]byte, gcmNonceSize))
		blob = append(blob, make([]byte, commitmentSize+gcmTagSize)...)
		if got := (&Device{}).BlobRoot(blob); got != want {
			t.Errorf("kind %d needs generation %d, want %d", kind, got, want)
		}
	}
	if got := (&Device{}).BlobRoot([]byte("no blob")); got != 0 {
		t.Errorf("what is no blob needs generation %d", got)
	}
}

func TestGenerationsAreInOrderAndHaveCheckValues(t *testing.T) {
	if err := twoGenerations().CheckGenerations(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Domain){
		"no generation":          func(d *Domain) { d.Earlier, d.Generation = nil, 0 },
		"the same twice":         func(d *Domain) { d.Earlier[0].Generation = 3 },
		"out of order":           func(d *Domain) { d.Earlier[0].Generation = 4 },
		"zero":                   func(d *Domain) { d.Earlier[0].Generation = 0 },
		"no check value":         func(d *Domain) { d.Earlier[0].KeyRootCheck = nil },
		"a short check value":    func(d *Domain) { d.SealingRootCheck = d.SealingRootCheck[:31] },
		"no newest check values": func(d *Domain) { d.KeyRootCheck = nil },
	} {
		d := twoGenerations()
		spoil(d)
		if err := d.CheckGenerations(); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// Descriptions from before roots could be replaced are read as they are, and
// written as they were.
func TestDescriptionWithoutEarlierGenerationsStaysAsItIs(t *testing.T) {
	d := twoGenerations()
	d.Earlier = nil
	raw, err := json.Marshal(d)
	if err != nil || bytes.Contains(raw, []byte("earlier")) {
		t.Fatalf("%s, %v", raw, err)
	}
	var read Domain
	if err := errors.Join(json.Unmarshal(raw, &read, json.RejectUnknownMembers(true)), read.CheckGenerations()); err != nil {
		t.Fatal(err)
	}
	if read.Oldest() != 3 || len(read.Generations()) != 1 || !read.has(3) || read.has(2) {
		t.Errorf("%+v", read)
	}
	if two := twoGenerations(); two.Oldest() != 2 || !two.has(2) || !two.has(3) || two.has(1) {
		t.Errorf("%+v", two.Generations())
	}
}
