package kms

import (
	"context"
	"crypto/subtle"
)

// MACInput is the input of Service.MAC.
type MACInput struct {
	Message   []byte // not nil; may be empty
	Algorithm Algorithm
	Version   uint32 // 0: the primary version
}

// MACOutput is its result.
type MACOutput struct {
	MAC       []byte
	Algorithm Algorithm
	Version   uint32
}

// MAC computes the message authentication code of a message.
func (s *Service) MAC(ctx context.Context, t *Ticket, ref string, in MACInput) (*MACOutput, error) {
	mac, err := s.mac(ctx, t, OpMAC, ref, in, nil)
	if err != nil {
		return nil, err
	}
	return &MACOutput{MAC: mac, Algorithm: t.Algorithm, Version: t.Version}, nil
}

// VerifyMACInput is the input of Service.VerifyMAC.
type VerifyMACInput struct {
	MACInput
	MAC []byte
}

// VerifyMACOutput is its result.
type VerifyMACOutput struct {
	Valid     bool
	Algorithm Algorithm
	Version   uint32
}

// VerifyMAC tells whether a code is that of a message, in time that does not
// depend on where they differ.
func (s *Service) VerifyMAC(ctx context.Context, t *Ticket, ref string, in VerifyMACInput) (*VerifyMACOutput, error) {
	mac, err := s.mac(ctx, t, OpVerifyMAC, ref, in.MACInput, func() error {
		if in.MAC == nil {
			return Errorf(KindInvalidArgument, "mac: is missing")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &VerifyMACOutput{
		Valid:     subtle.ConstantTimeCompare(mac, in.MAC) == 1,
		Algorithm: t.Algorithm, Version: t.Version,
	}, nil
}

func (s *Service) mac(ctx context.Context, t *Ticket, op Op, ref string, in MACInput, check func() error) ([]byte, error) {
	var w Work
	err := s.run(ctx, t, &task{
		op: op, ref: ref, bytes: len(in.Message),
		prepare: func(t *Ticket) error {
			if err := usable(t.Key, op); err != nil {
				return err
			}
			if in.Message == nil {
				return Errorf(KindInvalidArgument, "message: is missing")
			}
			if err := sizes(in.Message, nil); err != nil {
				return err
			}
			if check != nil {
				if err := check(); err != nil {
					return err
				}
			}
			alg, err := chooseAlgorithm(t.Key, in.Algorithm)
			if err != nil {
				return err
			}
			v, err := usableVersion(t.Key, in.Version)
			if err != nil {
				return err
			}
			t.Version, t.Algorithm = v.Number, alg
			w = Work{Verb: VerbMAC, Algorithm: alg, Key: t.Key, Version: v, Input: in.Message}
			return nil
		},
		nodes: func(*Ticket) ([]NodeID, error) { return s.device.Nodes(&w) },
		execute: func(ctx context.Context, t *Ticket, node NodeID) error {
			return runWork(ctx, s.device, t, node, &w)
		},
	})
	if err != nil {
		return nil, err
	}
	return w.Output, nil
}
