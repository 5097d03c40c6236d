package kms

import (
	"context"
	"strings"
	"uuid"
)

// The heads of the journal are signed by a key of the system tenant, which the
// service makes and which serves nothing else: who could have it sign what he
// likes could write a journal of his own. It is a key like any other: it shows
// in lists, can be rotated, and its versions' public halves stay.

const (
	// ownKeyPrefix begins the names of the service's own keys in the system
	// tenant. Nobody else can take such a name there.
	ownKeyPrefix = "sluice.journal/"
	// journalComponent is who makes the key, in the journal.
	journalComponent = "journal"
	// headCost is what the cost table asks for the dearer of the two
	// signatures; it tells the scheduler how long one takes.
	headCost = 12 * Credit
)

// ownOps are what requests may do with the service's own keys.
var ownOps = map[Op]bool{OpDescribeKey: true, OpPublic: true, OpVerify: true, OpRotateKey: true}

// ownName tells whether a name in the tenant is the service's own.
func ownName(t *Tenant, name string) bool {
	return t.Name == SystemTenantName && strings.HasPrefix(name, ownKeyPrefix)
}

// mayName tells whether the principal may give a key, or an alias, the name:
// the service itself acts without a credential.
func (p *Principal) mayName(name string) bool {
	return !ownName(p.Tenant, name) || p.Credential == uuid.Nil()
}

// HeadSigner signs heads of the journal. It is safe for concurrent use.
type HeadSigner struct {
	service *Service
	by      *Principal
	spec    Spec
	name    string
}

// HeadSignature is a signature with what checks it.
type HeadSignature struct {
	Algorithm  Algorithm
	KeyVersion uint32
	PublicKey  []byte // SubjectPublicKeyInfo, DER
	Signature  []byte // DER
}

// NewHeadSigner returns a signer with a key of spec SpecP256 or SpecSM2. The
// key is made by the first signature, in an HSM where one offers the spec.
func (s *Service) NewHeadSigner(system *Tenant, spec Spec) (*HeadSigner, error) {
	names := map[Spec]string{SpecP256: ownKeyPrefix + "ecdsa", SpecSM2: ownKeyPrefix + "sm2"}
	if names[spec] == "" {
		return nil, Errorf(KindInvalidArgument, "spec: heads are signed by keys of %s or %s", SpecP256, SpecSM2)
	}
	scopes, err := ParseScopes([]string{"key:" + string(OpCreateKey)})
	if err != nil {
		return nil, err
	}
	return &HeadSigner{service: s, spec: spec, name: names[spec], by: &Principal{
		Tenant: system, Project: DefaultProject, Component: journalComponent, Scopes: scopes,
	}}, nil
}

// Sign signs a message with the key's primary version. It waits for a slot like
// a request of the system tenant, and leaves no entry: each would change the
// head. ctx ends the waiting.
func (h *HeadSigner) Sign(ctx context.Context, message []byte) (HeadSignature, error) {
	key, err := h.key(ctx)
	if err != nil {
		return HeadSignature{}, err
	}
	if err := usable(key, OpSign); err != nil {
		return HeadSignature{}, err
	}
	version, err := usableVersion(key, 0)
	if err != nil {
		return HeadSignature{}, err
	}
	t := &Ticket{By: h.by, Key: key, Urgency: UrgencyInteractive, Cost: headCost}
	w, err := signatureWork(t, VerbSign, SignInput{Message: message})
	if err != nil {
		return HeadSignature{}, err
	}
	w.Version = version
	err = h.service.dispatch(ctx, t, deviceStep{
		nodes: func(*Ticket) ([]NodeID, error) { return h.service.device.Nodes(&w) },
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			return runWork(ctx, h.service.device, t, node, &w)
		},
	})
	return HeadSignature{w.Algorithm, version.Number, version.PublicKey, w.Output}, err
}

// key returns the key, which it makes if there is none. Another node may be
// first; its key is the one.
func (h *HeadSigner) key(ctx context.Context) (*Key, error) {
	key, err := h.service.keys.Lookup(ctx, h.by.Tenant.ID, h.name)
	if err != nil && KindOf(err) == KindNotFound {
		if err = h.make(ctx); err == nil || KindOf(err) == KindConflict {
			key, err = h.service.keys.Lookup(ctx, h.by.Tenant.ID, h.name)
		}
	}
	if err != nil {
		return nil, err
	}
	// An alias, or a key from outside, was there before names were kept.
	if key.Name != h.name || key.Origin != OriginGenerated || key.Spec != h.spec {
		return nil, Errorf(KindInternal, "the key %s is not the service's own; take the name away from it", h.name)
	}
	return key, nil
}

func (h *HeadSigner) make(ctx context.Context) error {
	s := h.service
	protection, err := s.device.ProtectionFor(h.by.Tenant.Sealing.Domain, h.spec)
	if err != nil {
		return err
	}
	t := &Ticket{RequestID: newID(), Received: s.clock(), By: h.by, Urgency: UrgencyNormal}
	_, err = s.CreateKey(ctx, t, CreateKeyInput{
		Name: h.name, Spec: h.spec, Usage: UsageSignVerify, Protection: protection,
		Description: "signs the heads of the journals; the service's own", DeletionProtection: true,
	})
	return err
}
