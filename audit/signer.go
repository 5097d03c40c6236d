package audit

import (
	"cmp"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

const (
	// signInterval is how often the head is signed, if it changed: what may be
	// computed anew without being noticed is a second old at most.
	signInterval = time.Second
	// signTimeout bounds one signature, and one head on its way to an anchor
	// that heeds its context.
	signTimeout = 5 * time.Second
	// anchorPatience is how long Close waits for anchors.
	anchorPatience = 2 * signTimeout
)

// HeadSignature is what a HeadSign made.
type HeadSignature struct {
	Algorithm  kms.Algorithm
	KeyVersion uint32
	PublicKey  []byte // of that version: SubjectPublicKeyInfo, DER
	Signature  []byte
}

// HeadSign signs a HeadMessage. It must heed ctx, and may fail.
type HeadSign func(ctx context.Context, message []byte) (HeadSignature, error)

// Anchor takes signed heads to where who can write the journal cannot.
type Anchor struct {
	Name string // in log and metrics
	Put  func(context.Context, SignedHead) error
}

// SignerConfig configures a Signer. Sign and Log are required.
type SignerConfig struct {
	Sign    HeadSign
	Anchors []Anchor
	Log     *slog.Logger
	// Registerer takes the signer's metrics; nil means none.
	Registerer prometheus.Registerer
	// Interval is how often the head is signed, if it changed; 0: every second.
	Interval time.Duration
}

// Signer signs the head of a journal each second in which it changed, writes
// what it signed beside the segments, and hands it to the anchors. Nothing waits
// for it: while it cannot sign, the journal goes on, and the gap is in the
// metrics and in what Verify reports.
type Signer struct {
	config  SignerConfig
	journal *Log
	metrics *signerMetrics
	file    headFile        // the signing goroutine's, and Close's after it
	keys    map[string]bool // public keys that are in the folder; the same
	failing bool            // the last try failed, and the log knows; the same

	anchors []*anchorer
	cancel  context.CancelFunc
	ended   sync.WaitGroup

	signed atomic.Pointer[SignedHead] // the newest
	behind atomic.Int64               // since when, Unix nanoseconds, it is not the head; 0: it is
}

// StartSigner starts to sign the journal's head. Its Close must come before
// the journal's.
func (l *Log) StartSigner(c SignerConfig) (*Signer, error) {
	s := &Signer{config: c, journal: l, file: headFile{dir: l.config.Dir}, keys: make(map[string]bool)}
	s.metrics = newSignerMetrics(s, c.Anchors)
	if err := s.metrics.register(c.Registerer); err != nil {
		return nil, fmt.Errorf("audit: registering metrics: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	for _, a := range c.Anchors {
		s.anchors = append(s.anchors, startAnchorer(a, c.Log, s.metrics.failures.WithLabelValues(a.Name)))
	}
	s.ended.Go(func() { s.run(ctx) })
	return s, nil
}

// Close signs what the journal holds at last, takes that to the anchors and
// stops. Requests must have ended. It fails when the last head is not signed or
// not anchored; an anchor that hangs is given up after ten seconds.
func (s *Signer) Close() error {
	s.cancel()
	s.ended.Wait()
	s.journal.flush()
	err := s.sign(context.Background())
	if err == nil { // the first signature may have made the key, which is recorded
		err = s.sign(context.Background())
	}
	patience, cancel := context.WithTimeout(context.Background(), anchorPatience)
	defer cancel()
	for _, a := range s.anchors {
		err = errors.Join(err, a.close(patience))
	}
	s.metrics.unregister(s.config.Registerer)
	if err = errors.Join(err, s.file.close()); err != nil {
		return fmt.Errorf("signing the journal's last head: %w", err)
	}
	return nil
}

// Signed returns the newest signed head; false when there is none since the
// start.
func (s *Signer) Signed() (SignedHead, bool) {
	h := s.signed.Load()
	if h == nil {
		return SignedHead{}, false
	}
	return *h, true
}

func (s *Signer) run(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		_ = s.sign(ctx)
		if s.signed.Load() == nil { // nothing is proven yet
			next.Reset(signInterval)
		} else {
			next.Reset(cmp.Or(s.config.Interval, signInterval))
		}
	}
}

// sign signs the head if it changed. The log hears of the first failure in a
// row, and of its end.
func (s *Signer) sign(ctx context.Context) error {
	head, segment := s.journal.position()
	if last := s.signed.Load(); head == (Head{}) || last != nil && last.Head == head {
		s.behind.Store(0)
		return nil
	}
	now := s.journal.config.Clock()
	s.behind.CompareAndSwap(0, now.UnixNano())
	// Databases keep microseconds.
	h := SignedHead{Node: s.journal.config.Node, Head: head, Time: now.UTC().Truncate(time.Microsecond)}
	err := s.prove(ctx, &h)
	if err == nil {
		err = s.keep(segment, h)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil && !s.failing:
		s.config.Log.Error("the journal's head cannot be signed; entries are recorded, and nothing proves them until it can", slog.Any("error", err))
	case err == nil && s.failing:
		s.config.Log.Info("the journal's head is signed again", slog.Uint64("sequence", h.Sequence))
	}
	s.failing = err != nil
	if h.Signature == nil {
		return err
	}
	// Signed and perhaps not kept beside the segments: anchors take it all the same.
	for _, a := range s.anchors {
		a.offer(h)
	}
	if err == nil {
		s.signed.Store(&h)
		s.behind.Store(0)
		s.metrics.signed.Inc()
	}
	return err
}

// prove fills in the signature, and publishes the key beside the journal.
func (s *Signer) prove(ctx context.Context, h *SignedHead) error {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	made, err := s.config.Sign(ctx, HeadMessage(*h))
	if err != nil {
		s.metrics.failures.WithLabelValues(sinkSign).Inc()
		return err
	}
	h.Algorithm, h.KeyVersion, h.Signature = made.Algorithm, made.KeyVersion, made.Signature
	if s.keys[string(made.PublicKey)] {
		return nil
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: made.PublicKey})
	if err := appendKey(s.journal.config.Dir, block); err != nil {
		s.metrics.failures.WithLabelValues(sinkFile).Inc()
		return fmt.Errorf("writing the public key: %w", err)
	}
	s.keys[string(made.PublicKey)] = true
	return nil
}

// keep writes the head beside its segment.
func (s *Signer) keep(segment uint64, h SignedHead) error {
	if err := s.file.append(segment, h); err != nil {
		s.metrics.failures.WithLabelValues(sinkFile).Inc()
		return fmt.Errorf("writing the signed head: %w", err)
	}
	return nil
}

// anchorer takes the newest head to one anchor. While that is slow, heads in
// between are left out: each head stands for all before it.
type anchorer struct {
	anchor  Anchor
	log     *slog.Logger
	failed  prometheus.Counter
	heads   chan SignedHead // capacity 1: the newest that waits
	ended   chan struct{}
	failing error // of the last try; the goroutine's, and close's after it
}

func startAnchorer(a Anchor, log *slog.Logger, failed prometheus.Counter) *anchorer {
	r := &anchorer{anchor: a, log: log, failed: failed, heads: make(chan SignedHead, 1), ended: make(chan struct{})}
	go r.run()
	return r
}

// offer is called by one goroutine.
func (r *anchorer) offer(h SignedHead) {
	select {
	case <-r.heads:
	default:
	}
	r.heads <- h
}

func (r *anchorer) run() {
	defer close(r.ended)
	for h := range r.heads {
		ctx, cancel := context.WithTimeout(context.Background(), signTimeout)
		err := r.anchor.Put(ctx, h)
		cancel()
		switch {
		case err != nil && r.failing == nil:
			r.log.Error("the journal's head cannot be anchored", slog.String("anchor", r.anchor.Name), slog.Any("error", err))
		case err == nil && r.failing != nil:
			r.log.Info("the journal's head is anchored again", slog.String("anchor", r.anchor.Name))
		}
		if r.failing = err; err != nil {
			r.failed.Inc()
		}
	}
}

// close waits until the last head is anchored or patience ends.
func (r *anchorer) close(patience context.Context) error {
	close(r.heads)
	select {
	case <-r.ended:
		if r.failing != nil {
			return fmt.Errorf("anchor %s: %w", r.anchor.Name, r.failing)
		}
		return nil
	case <-patience.Done():
		return fmt.Errorf("anchor %s takes too long", r.anchor.Name)
	}
}
