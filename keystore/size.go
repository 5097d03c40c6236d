package keystore

import (
	"unsafe"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// mapOverhead is what a small map costs beside its strings, in bytes: one
// group of eight slots of two string headers, with its control words.
const mapOverhead = 8*32 + 64

// The sizes below are approximate: what the objects themselves hold, without
// the slack of the allocator and the words that they share.

func sizeTenant(_ uuid.UUID, t *kms.Tenant) int {
	n := int(unsafe.Sizeof(*t)) + len(t.Name) + len(t.Sealing.Wrapped)
	if t.Deletion != nil {
		n += int(unsafe.Sizeof(*t.Deletion))
	}
	return n
}

func sizeKey(_ keyID, bound *boundKey) int {
	k := &bound.key
	n := int(unsafe.Sizeof(*bound)) + len(k.Project) + len(k.Name) + len(k.Description)
	if k.Tags != nil {
		n += mapOverhead
	}
	for name, value := range k.Tags {
		n += len(name) + len(value)
	}
	for _, v := range k.Versions {
		n += int(unsafe.Sizeof(v)) + int(unsafe.Sizeof(*v)) + len(v.PublicKey) + len(v.Blob)
	}
	return n
}

func sizeCredential(_ uuid.UUID, c *kms.Credential) int {
	n := int(unsafe.Sizeof(*c)) + len(c.Project) + len(c.Name) + len(c.Component) + len(c.LastAddress) +
		len(c.Networks)*int(unsafe.Sizeof(c.Networks[:1][0])) + len(c.Secrets)*int(unsafe.Sizeof(c.Secrets[:1][0]))
	for _, s := range c.Scopes {
		n += int(unsafe.Sizeof(s)) + len(s)
	}
	return n
}
