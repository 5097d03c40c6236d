package p11

import (
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// An hsm.Handle carries in its highest byte what the key is, so that an
// operation can be checked against its key without a table that all workers
// would share; the rest is the module's object handle.
const (
	handleKindShift = 56
	maxObject       = 1<<handleKindShift - 1
)

// keyKind is what a loaded key is: the usage is one of the spec's.
type keyKind struct {
	spec  kms.Spec
	usage kms.Usage
}

type loadedKey struct {
	keyKind
	object uint
}

// keyKinds lists the kinds; a handle's highest byte is an index into it, from
// 1, so that no valid handle is zero.
var keyKinds = func() []keyKind {
	var kinds []keyKind
	for _, info := range kms.Specs() {
		for _, ua := range info.Usages {
			kinds = append(kinds, keyKind{info.Spec, ua.Usage})
		}
	}
	return kinds
}()

// makeHandle: false for an unknown kind or an object handle of more than 56
// bits, which no known module gives.
func makeHandle(kind keyKind, object uint) (hsm.Handle, bool) {
	if uint64(object) > maxObject {
		return 0, false
	}
	for i, k := range keyKinds {
		if k == kind {
			return hsm.Handle(i+1)<<handleKindShift | hsm.Handle(object), true
		}
	}
	return 0, false
}

func parseHandle(h hsm.Handle) (loadedKey, bool) {
	i := int(h>>handleKindShift) - 1
	if i < 0 || i >= len(keyKinds) {
		return loadedKey{}, false
	}
	return loadedKey{keyKinds[i], uint(h & maxObject)}, true
}
