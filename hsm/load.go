package hsm

import (
	"context"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// errBlob answers for a blob that is not what its row says: never the
// client's fault, and fatal for that version only.
var errBlob = &kms.Error{Kind: kms.KindInternal, Detail: "the key's stored material is not usable"}

// loadVersion opens a version's blob and loads its material on a node.
func (d *Device) loadVersion(n *node, key *kms.Key, v *kms.Version) (Handle, error) {
	sc := versionContext(key, v)
	var material []byte
	var err error
	if n.domain != nil {
		// On the node itself: whoever unwraps also holds the sealing key.
		material, err = d.openOn(n, key.Tenant.Sealing, sc, v.Blob)
	} else {
		material, err = d.openAnywhere(key.Tenant.Sealing, sc, v.Blob)
	}
	if err != nil {
		return 0, err
	}
	if sc.kind == blobSealed {
		defer clear(material)
	}
	var h Handle
	began := d.clock()
	header, _ := parseBlob(v.Blob) // it was opened
	err = n.load(nil, func() (err error) {
		h, err = n.loadMaterial(header.generation, material, key.Spec, key.Usage)
		return err
	})
	if err == nil {
		n.loads.Add(1)
		n.tally.loaded(key.Spec.Info().Family, d.clock().Sub(began))
	}
	if ClassOf(err) == ClassRequest && err != nil {
		return 0, wrapBlob(err)
	}
	return h, err
}

func wrapBlob(err error) error {
	return &kms.Error{Kind: errBlob.Kind, Detail: errBlob.Detail, Err: err}
}

// sealingHandle loads a tenant's sealing key on a node.
func (d *Device) sealingHandle(n *node, k kms.SealingKey) (*cacheEntry, error) {
	entry, _, err := n.cache.acquire(k.Tenant, k.ID, source{}, func() (h Handle, err error) {
		err = n.load(nil, func() (err error) {
			h, err = n.loadSealingKey(k)
			return err
		})
		return h, err
	})
	return entry, err
}

// withSealing runs a call under a tenant's sealing key on a node, beside the
// slots. A stale handle or session is retried once.
func (d *Device) withSealing(n *node, k kms.SealingKey, plan func(Handle) *Call) (*Call, error) {
	var err error
	for range 2 {
		var entry *cacheEntry
		if entry, err = d.sealingHandle(n, k); err != nil {
			if ClassOf(err) == ClassRequest {
				err = wrapBlob(err) // of the tenant's row
			}
			return nil, err
		}
		call := plan(entry.handle)
		err = n.load(call, nil)
		class := ClassOf(err)
		if err != nil && class == ClassStaleObject {
			n.cache.drop(entry)
		}
		n.cache.release(entry)
		if err == nil {
			return call, nil
		}
		if class != ClassStaleObject && class != ClassSession {
			break
		}
	}
	return nil, err
}

// openOn opens a blob on a node. A blob of another kind or domain, one that
// needs a root which exists no more, or one that does not open in this context,
// is errBlob. One that needs a later root than the description names is
// errNoRoot: other API nodes may know of that.
func (d *Device) openOn(n *node, k kms.SealingKey, sc sealContext, blob []byte) ([]byte, error) {
	h, ok := parseBlob(blob)
	switch {
	case !ok || h.kind != sc.kind || h.domain != n.domain.ID || k.Domain != n.domain.ID:
		return nil, errBlob
	case max(k.RootGeneration, h.root()) > n.domain.Generation:
		return nil, errNoRoot
	case !n.domain.has(k.RootGeneration) || h.root() != 0 && !n.domain.has(h.root()):
		return nil, errBlob
	}
	call, err := d.withSealing(n, k, func(handle Handle) *Call { return openCall(sc, handle, blob) })
	if err != nil {
		if lacksRoot(err) {
			return nil, err
		}
		if c := ClassOf(err); c == ClassRequest || c == ClassAmbiguous && n.healthy() {
			return nil, wrapBlob(err)
		}
		return nil, err
	}
	material, ok := committed(call.Output)
	if !ok {
		return nil, errBlob
	}
	return material, nil
}

// onDomain runs f on the domain's nodes that are up, in turn, until one does
// not fail by its own fault.
func (d *Device) onDomain(domain uuid.UUID, f func(*node) error) error {
	dom := d.domains[domain]
	if dom == nil {
		return errNoNode
	}
	ids, err := d.up(dom, "", uuid.New())
	for _, id := range ids {
		if err = d.onNode(id, f); err == nil || kms.KindOf(err) != kms.KindHSMUnavailable {
			return err
		}
	}
	return err
}

func (d *Device) onNode(id kms.NodeID, f func(*node) error) error {
	n, err := d.enter(id)
	if err != nil {
		return err
	}
	defer n.leave()
	if err := f(n); err != nil {
		return d.translate(n, kms.VerbEncrypt, err)
	}
	return nil
}

// openAnywhere opens a blob on any node of the tenant's domain.
func (d *Device) openAnywhere(k kms.SealingKey, sc sealContext, blob []byte) (material []byte, err error) {
	err = d.onDomain(k.Domain, func(n *node) (err error) {
		material, err = d.openOn(n, k, sc, blob)
		return err
	})
	return material, err
}

// sealOn seals material under a tenant's sealing key on a node.
func (d *Device) sealOn(n *node, k kms.SealingKey, sc sealContext, material []byte) ([]byte, error) {
	var header []byte
	var input []byte
	call, err := d.withSealing(n, k, func(h Handle) (c *Call) {
		c, header = sealCall(sc, n.domain, h, material)
		input = c.Input
		return c
	})
	clear(input)
	if err != nil {
		return nil, err
	}
	return append(header, call.Output...), nil
}

func (d *Device) seal(k kms.SealingKey, sc sealContext, material []byte) (blob []byte, err error) {
	err = d.onDomain(k.Domain, func(n *node) (err error) {
		blob, err = d.sealOn(n, k, sc, material)
		return err
	})
	return blob, err
}

// Generate implements kms.Device.
func (d *Device) Generate(ctx context.Context, id kms.NodeID, key *kms.Key, v *kms.Version) error {
	n, err := d.enter(id)
	if err != nil {
		return err
	}
	defer n.leave()
	var g Generated
	err = n.generate(func() (err error) {
		g, err = n.token.Generate(key.Spec, key.Usage)
		return err
	})
	if err != nil {
		return d.translate(n, kms.VerbSign, err)
	}
	if v.Number == 1 {
		d.placeNew(key)
	}
	return d.sealVersion(key, v, g)
}

// sealVersion fills a version with new material.
func (d *Device) sealVersion(key *kms.Key, v *kms.Version, g Generated) (err error) {
	sc := versionContext(key, v)
	if sc.kind == blobSealed {
		defer clear(g.Material)
	}
	v.PublicKey = g.PublicKey
	v.Blob, err = d.seal(key.Tenant.Sealing, sc, g.Material)
	return err
}

// NewSealingKey implements kms.Device. The default domain is that of the
// first node.
func (d *Device) NewSealingKey(ctx context.Context, tenant, domain uuid.UUID) (kms.SealingKey, error) {
	dom := d.first
	if domain != (uuid.UUID{}) {
		if dom = d.domains[domain]; dom == nil {
			return kms.SealingKey{}, errNoNode
		}
	}
	k := kms.SealingKey{ID: uuid.NewV7(), Tenant: tenant, Domain: dom.ID, RootGeneration: dom.Generation}
	err := d.onDomain(k.Domain, func(n *node) error {
		return n.generate(func() (err error) {
			k.Wrapped, err = n.token.GenerateSealingKey()
			return err
		})
	})
	return k, err
}

// Seal implements kms.Device.
func (d *Device) Seal(ctx context.Context, k kms.SealingKey, name string, version uint32, secret []byte) ([]byte, error) {
	return d.seal(k, secretContext(k.Tenant, name, version), secret)
}

// Unseal implements kms.Device.
func (d *Device) Unseal(ctx context.Context, k kms.SealingKey, name string, version uint32, blob []byte) ([]byte, error) {
	return d.openAnywhere(k, secretContext(k.Tenant, name, version), blob)
}
