package kms

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
)

// PolicyState is the policy in force and how it stands to what is stored.
type PolicyState struct {
	PolicyVersion // in force, with its document
	// Stored is the newest stored version, 0 for none.
	Stored uint64
	// Problem says why the newest stored version is not in force; "" when it
	// is, or is about to be.
	Problem string
}

// GetPolicy returns the policy in force on this API node.
func (s *Service) GetPolicy(ctx context.Context, t *Ticket) (state *PolicyState, err error) {
	err = s.run(ctx, t, &task{op: OpReadPolicy, store: func(ctx context.Context, t *Ticket) (err error) {
		state, err = s.policyState(ctx)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return state, nil
}

// policyState takes the document from the engine: it is what is in force,
// whatever became of its row.
func (s *Service) policyState(ctx context.Context) (*PolicyState, error) {
	version, document := s.engine.PolicyInForce()
	state := &PolicyState{PolicyVersion: PolicyVersion{Version: version, Document: document, Digest: sha256.Sum256(document)}}
	state.Stored, state.Problem = s.followed.get()
	if version == 0 {
		return state, nil
	}
	stored, err := s.policies.Policy(ctx, version)
	switch {
	case err == nil:
		state.Comment, state.Created, state.By = stored.Comment, stored.Created, stored.By
	case KindOf(err) == KindStoreUnavailable:
		return nil, err
	}
	return state, nil
}

// DescribePolicy returns a version with its document; 0 is the policy that
// Sluice comes with.
func (s *Service) DescribePolicy(ctx context.Context, t *Ticket, version uint64) (p *PolicyVersion, err error) {
	err = s.run(ctx, t, &task{op: OpReadPolicy, store: func(ctx context.Context, t *Ticket) (err error) {
		t.Resource = policyResource(version)
		p, err = s.policyOf(ctx, version)
		return err
	}})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (s *Service) policyOf(ctx context.Context, version uint64) (*PolicyVersion, error) {
	if version == 0 {
		document := s.engine.DefaultPolicy()
		return &PolicyVersion{Document: document, Digest: sha256.Sum256(document)}, nil
	}
	return s.policies.Policy(ctx, version)
}

// ListPolicies returns a page of the stored versions, the newest first.
func (s *Service) ListPolicies(ctx context.Context, t *Ticket, page Page) (list []*PolicyVersion, next string, err error) {
	err = s.run(ctx, t, &task{op: OpReadPolicy,
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) (err error) {
			list, next, err = s.policies.ListPolicies(ctx, page)
			return err
		}})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

// CheckPolicy tells what is wrong with a document, and the SHA-256 of its one
// spelling when nothing is. Nothing is stored.
func (s *Service) CheckPolicy(ctx context.Context, t *Ticket, document []byte) (digest [32]byte, mistakes []PolicyMistake, err error) {
	err = s.run(ctx, t, &task{op: OpCheckPolicy,
		prepare: func(*Ticket) error { return checkPolicySize(document) },
		store: func(context.Context, *Ticket) error {
			var canonical []byte
			if canonical, mistakes = s.engine.CheckPolicy(document); len(mistakes) == 0 {
				digest = sha256.Sum256(canonical)
			}
			return nil
		}})
	return digest, mistakes, err
}

// DiffPolicyInput is the input of Service.DiffPolicy: what to compare with the
// policy in force.
type DiffPolicyInput struct {
	Document []byte // nil: Version
	Version  uint64
}

// DiffPolicy lists in what a document or a version differs from the policy in
// force, and which version that is.
func (s *Service) DiffPolicy(ctx context.Context, t *Ticket, in DiffPolicyInput) (changes []PolicyChange, inForce uint64, err error) {
	err = s.run(ctx, t, &task{op: OpCheckPolicy,
		prepare: func(*Ticket) error { return checkPolicySize(in.Document) },
		store: func(ctx context.Context, t *Ticket) error {
			to := in.Document
			if to == nil {
				p, err := s.policyOf(ctx, in.Version)
				if err != nil {
					return err
				}
				to = p.Document
			}
			if _, mistakes := s.engine.CheckPolicy(to); len(mistakes) > 0 {
				return errPolicy
			}
			version, from := s.engine.PolicyInForce()
			inForce = version
			changes, err = s.engine.DiffPolicies(from, to)
			return err
		}})
	if err != nil {
		return nil, 0, err
	}
	return changes, inForce, nil
}

// errPolicy answers for documents with mistakes. What is wrong names fields as
// the caller spelled them, which no error does.
var errPolicy = &Error{Kind: KindInvalidArgument, Detail: "document: it is not a valid policy; checking it tells what is wrong"}

func checkPolicySize(document []byte) error {
	if len(document) > MaxPolicyDocument {
		return Errorf(KindInvalidArgument, "document: must be at most %d bytes", MaxPolicyDocument)
	}
	return nil
}

// PutPolicyInput is the input of Service.PutPolicy.
type PutPolicyInput struct {
	// Previous is the newest stored version that the caller knows of, 0 for
	// none.
	Previous uint64
	Document []byte
	Comment  string
	// Force puts it although the pool cannot keep the baselines that it raises.
	Force bool
}

// PutPolicy stores a document as the next version and puts it into force: here
// at once, on the other API nodes within a second. It can lift every limit, so
// it takes two operators where the service is set so. KindPreconditionFailed
// when another version was stored meanwhile; KindConflict, with ReasonCapacity,
// when it raises baselines beyond what the pool can keep, unless it is forced.
func (s *Service) PutPolicy(ctx context.Context, t *Ticket, in PutPolicyInput) (*PolicyVersion, error) {
	return s.putPolicy(ctx, t, func() (PutPolicyInput, error) { return in, nil })
}

// RollbackPolicy puts the document of an earlier version, or of the policy
// that Sluice comes with for 0, as the next version. An empty comment says so.
// For force, see PutPolicy.
func (s *Service) RollbackPolicy(ctx context.Context, t *Ticket, version uint64, comment string, force bool) (*PolicyVersion, error) {
	if comment == "" {
		comment = "back to version " + policyResource(version)
	}
	return s.putPolicy(ctx, t, func() (PutPolicyInput, error) {
		p, err := s.policyOf(ctx, version)
		if err != nil {
			return PutPolicyInput{}, err
		}
		previous, err := s.policies.NewestPolicy(ctx)
		return PutPolicyInput{Previous: previous, Document: p.Document, Comment: comment, Force: force}, err
	})
}

func (s *Service) putPolicy(ctx context.Context, t *Ticket, find func() (PutPolicyInput, error)) (*PolicyVersion, error) {
	var p *PolicyVersion
	var in PutPolicyInput
	err := s.run(ctx, t, &task{op: OpPutPolicy,
		prepare: func(t *Ticket) (err error) {
			if in, err = find(); err != nil {
				return err
			}
			if p, err = s.nextPolicy(ctx, t, in); err != nil {
				return err
			}
			return s.refuseSale(ctx, in.Force, s.policySale(p.Document))
		},
		act: func(context.Context, *Ticket) (*act, error) {
			// The digest lets the second operator compare it with a file.
			resource := fmt.Sprintf("policy version %d, SHA-256 %x", p.Version, p.Digest)
			if in.Force {
				resource += ", even if it sells more than the HSMs can do"
			}
			return &act{resource: resource, arguments: [][]byte{p.Document, []byte(p.Comment)}}, nil
		},
		store: func(ctx context.Context, t *Ticket) error {
			p.Created = s.clock()
			return s.sell(ctx, t, in.Force, s.policySale(p.Document), func() error {
				if err := s.policies.PutPolicy(ctx, p); err != nil {
					return err
				}
				// It is stored: what keeps it from being in force now is tried
				// again by the sync, and shown.
				_ = s.followPolicy(ctx)
				return nil
			})
		}})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// nextPolicy checks what is to be put and makes the version of it.
func (s *Service) nextPolicy(ctx context.Context, t *Ticket, in PutPolicyInput) (*PolicyVersion, error) {
	if len(in.Comment) > MaxPolicyComment || !printable(in.Comment) {
		return nil, Errorf(KindInvalidArgument, "comment: must be printable UTF-8 of at most %d bytes", MaxPolicyComment)
	}
	if err := checkPolicySize(in.Document); err != nil {
		return nil, err
	}
	document, mistakes := s.engine.CheckPolicy(in.Document)
	if len(mistakes) > 0 {
		return nil, errPolicy
	}
	if err := checkPolicySize(document); err != nil {
		return nil, err
	}
	newest, err := s.policies.NewestPolicy(ctx)
	if err != nil {
		return nil, err
	}
	if newest != in.Previous {
		return nil, Errorf(KindPreconditionFailed, "previous: version %d is the newest", newest)
	}
	p := &PolicyVersion{Version: newest + 1, Document: document, Digest: sha256.Sum256(document), Comment: in.Comment, By: t.By.Credential}
	t.Resource, t.Revision = policyResource(p.Version), newest
	return p, nil
}

// ReplayPolicy is Replay for PutPolicy and RollbackPolicy: it returns the
// version that was made.
func (s *Service) ReplayPolicy(ctx context.Context, t *Ticket, id string) (*PolicyVersion, error) {
	var p *PolicyVersion
	err := s.replayOther(ctx, t, OpPutPolicy, nil, func(t *Ticket) error {
		version, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return ErrNotFound
		}
		t.Resource = id
		p, err = s.policies.Policy(ctx, version)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// policyResource names a version in entries.
func policyResource(version uint64) string { return strconv.FormatUint(version, 10) }
