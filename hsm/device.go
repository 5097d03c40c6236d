package hsm

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Config is what a Device needs.
type Config struct {
	// Nodes are the HSM tokens; at least one.
	Nodes []NodeConfig
	// Engine is the in-process engine, which becomes the node EngineID.
	Engine      Token
	EngineSlots int // at least 1
	// AllowUnenforced admits tokens that do not enforce the roots' unwrap
	// templates, on which the user PIN is enough to extract keys.
	AllowUnenforced bool
	Log             *slog.Logger
	Clock           func() time.Time
}

// NodeConfig is one HSM token of a domain.
type NodeConfig struct {
	ID     kms.NodeID // unique
	Domain *Domain
	Token  Token
	Slots  int // concurrent operations, at least 1
}

// EngineID names the in-process engine among the nodes.
const EngineID kms.NodeID = "cpu"

// A node's slots are for calls that take microseconds to milliseconds. What
// takes seconds has slots of its own, named by the node's id and a suffix, so
// that a tenant who makes RSA-4096 keys, or signs by SLH-DSA, waits for
// himself and holds up nobody.
const (
	generateLane = "/generate" // key generation and import, on every node
	slowLane     = "/slow"     // SLH-DSA signatures, on the engine

	generateSlots = 1
	slowSlots     = 1
)

// nodeOf returns the node of a slot, nil when there is none.
func (d *Device) nodeOf(slot kms.NodeID) *node {
	name, _, _ := strings.Cut(string(slot), "/")
	return d.byID[kms.NodeID(name)]
}

func inLane(ids []kms.NodeID, lane string) []kms.NodeID {
	for i := range ids {
		ids[i] += kms.NodeID(lane)
	}
	return ids
}

// sealedTTL bounds how long the unsealed material of an unused SEALED key
// stays in process memory.
const sealedTTL = 5 * time.Minute

// Device is a pool of nodes. It implements kms.Device and is safe for
// concurrent use.
type Device struct {
	nodes   []*node // HSM nodes, then the engine
	byID    map[kms.NodeID]*node
	domains map[uuid.UUID]*domainNodes
	first   *domainNodes // the default domain
	engine  *node
	clock   func() time.Time
	log     *slog.Logger

	stop     chan struct{}
	watchers sync.WaitGroup
	owned    []Token
}

// domainNodes is a domain with its nodes.
type domainNodes struct {
	*Domain
	nodes []*node
}

// Open tests every node, starts its workers and returns the pool, which owns
// the tokens from then on, also when it fails. A node that fails its
// self-test is left out with an alarm, so that the others serve; to have none
// is an error.
func Open(c Config) (*Device, error) {
	d := &Device{
		byID: map[kms.NodeID]*node{}, domains: map[uuid.UUID]*domainNodes{},
		clock: c.Clock, log: c.Log, stop: make(chan struct{}),
	}
	if err := d.open(c); err != nil {
		d.Close()
		return nil, err
	}
	for _, n := range d.nodes {
		d.watchers.Go(func() { n.watch(d.stop) })
	}
	d.watchers.Go(d.sweep)
	return d, nil
}

func (d *Device) open(c Config) error {
	d.owned = append(d.owned, c.Engine)
	for _, nc := range c.Nodes {
		d.owned = append(d.owned, nc.Token)
	}
	engine, err := newNode(NodeConfig{ID: EngineID, Token: c.Engine}, c.EngineSlots, c.Log, c.Clock)
	if err == nil {
		engine.slow, err = newCrew(c.Engine, slowSlots, c.Clock)
	}
	if err != nil {
		return fmt.Errorf("opening the in-process engine: %w", err)
	}
	engine.families = engine.info.Wraps
	d.engine = engine
	var failed error
	for _, nc := range c.Nodes {
		if err := d.join(nc, c.AllowUnenforced); err != nil {
			err = fmt.Errorf("node %s: %w", nc.ID, err)
			d.log.Error("node left out", slog.String("node", string(nc.ID)), slog.Any("error", err))
			failed = errors.Join(failed, err)
		}
	}
	if d.first == nil {
		return errors.Join(errors.New("no HSM node can serve"), failed)
	}
	d.nodes = append(d.nodes, engine)
	d.byID[EngineID] = engine
	return nil
}

// join tests a token and makes it a node of its domain.
func (d *Device) join(c NodeConfig, allowUnenforced bool) error {
	if d.byID[c.ID] != nil || c.ID == EngineID || strings.Contains(string(c.ID), "/") {
		return fmt.Errorf("the id is taken or holds a slash")
	}
	n, err := newNode(c, c.Slots, d.log, d.clock)
	if err != nil {
		return err
	}
	if err := n.prove(d.engine, allowUnenforced); err != nil {
		n.close()
		return err
	}
	if !n.enforced {
		d.log.Warn("node does not enforce unwrap templates", slog.String("node", string(c.ID)))
	}
	dom := d.domains[c.Domain.ID]
	if dom == nil {
		dom = &domainNodes{Domain: c.Domain}
		d.domains[c.Domain.ID] = dom
		if d.first == nil {
			d.first = dom
		}
	}
	dom.nodes = append(dom.nodes, n)
	d.nodes = append(d.nodes, n)
	d.byID[c.ID] = n
	return nil
}

// Close ends the workers, waits for calls that run and closes the tokens. No
// method may be called any more.
func (d *Device) Close() error {
	close(d.stop)
	d.watchers.Wait()
	for _, n := range d.nodes {
		n.close()
	}
	if d.engine != nil && d.byID[EngineID] == nil {
		d.engine.close()
	}
	var first error
	for _, t := range d.owned {
		if err := t.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// sweep wipes the material of SEALED keys that nobody has used for a while.
func (d *Device) sweep() {
	tick := time.NewTicker(sealedTTL / 10)
	defer tick.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-tick.C:
			d.engine.cache.sweep(d.clock().Add(-sealedTTL))
		}
	}
}

// Slots returns the nodes with their numbers of slots, for the scheduler.
func (d *Device) Slots() map[kms.NodeID]int {
	slots := make(map[kms.NodeID]int, 2*len(d.nodes)+1)
	for _, n := range d.nodes {
		slots[n.id] = n.slots
		slots[n.id+generateLane] = generateSlots
	}
	slots[EngineID+slowLane] = slowSlots
	return slots
}

// Status reports every node.
func (d *Device) Status() []kms.NodeStatus {
	all := make([]kms.NodeStatus, len(d.nodes))
	for i, n := range d.nodes {
		all[i] = n.status()
	}
	return all
}

var errNoNode = &kms.Error{Kind: kms.KindHSMUnavailable, Detail: "no HSM node can serve the key now"}

// Nodes implements kms.Device: public operations, digests and SEALED keys run
// on the engine; an HSM key on the nodes of its domain, its home first.
func (d *Device) Nodes(w *kms.Work) ([]kms.NodeID, error) {
	if d.runsOnEngine(w) {
		if w.Verb == kms.VerbSign && w.Key.Spec.Info().Family == kms.FamilySLHDSA {
			return []kms.NodeID{EngineID + slowLane}, nil
		}
		return []kms.NodeID{EngineID}, nil
	}
	if w.Key == nil {
		return d.up(d.first, "", uuid.New())
	}
	dom := d.domains[w.Key.Tenant.Sealing.Domain]
	if dom == nil {
		return nil, errNoNode
	}
	return d.up(dom, w.Key.Spec.Info().Family, w.Key.ID)
}

func (d *Device) runsOnEngine(w *kms.Work) bool {
	switch w.Verb {
	case kms.VerbVerify, kms.VerbDigest, kms.VerbEncapsulate:
		return true
	case kms.VerbRandom:
		return false
	case kms.VerbEncrypt:
		if !w.Key.Spec.Info().Symmetric() {
			return true
		}
	}
	return w.Key.Protection == kms.ProtectionSealed
}

// rank weighs a node for a key: SplitMix64 (Steele, Lea, Flood 2014) over the
// id's random half and the node's hash. It is the same in every process.
func rank(id uuid.UUID, node uint64) uint64 {
	x := binary.BigEndian.Uint64(id[8:]) ^ node
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// up returns the domain's nodes that are up and offer the family ("": any),
// ordered by rendezvous hash of the id, so that a key is at home on one node
// while that is up and every node has an equal share of the keys.
func (d *Device) up(dom *domainNodes, f kms.Family, id uuid.UUID) ([]kms.NodeID, error) {
	type ranked struct {
		id     kms.NodeID
		weight uint64
	}
	var ranks [8]ranked
	list := ranks[:0]
	for _, n := range dom.nodes {
		if n.down.Load() || f != "" && !n.offers(f) {
			continue
		}
		list = append(list, ranked{n.id, rank(id, n.hash)})
	}
	if len(list) == 0 {
		return nil, errNoNode
	}
	slices.SortFunc(list, func(a, b ranked) int { return cmp.Compare(b.weight, a.weight) })
	ids := make([]kms.NodeID, len(list))
	for i := range list {
		ids[i] = list[i].id
	}
	return ids, nil
}

// ProtectionFor implements kms.Device. It asks what the domain's nodes can
// do, not which are up, so that an outage never turns HSM keys into SEALED
// ones.
func (d *Device) ProtectionFor(domain uuid.UUID, s kms.Spec) (kms.Protection, error) {
	dom := d.domains[domain]
	if dom == nil {
		return "", errNoNode
	}
	for _, n := range dom.nodes {
		if n.offers(s.Info().Family) {
			return kms.ProtectionHSM, nil
		}
	}
	return kms.ProtectionSealed, nil
}

// CreatorNodes implements kms.Device.
func (d *Device) CreatorNodes(domain uuid.UUID, s kms.Spec, p kms.Protection) ([]kms.NodeID, error) {
	if p == kms.ProtectionSealed {
		return []kms.NodeID{EngineID + generateLane}, nil
	}
	dom := d.domains[domain]
	if dom == nil {
		return nil, errNoNode
	}
	ids, err := d.up(dom, s.Info().Family, uuid.New())
	return inLane(ids, generateLane), err
}

// Do implements kms.Device.
func (d *Device) Do(ctx context.Context, id kms.NodeID, w *kms.Work) error {
	n := d.nodeOf(id)
	if n == nil {
		return errNoNode
	}
	call := Call{
		Verb: w.Verb, Algorithm: w.Algorithm, Digest: w.Digest,
		Input: w.Input, Prehashed: w.Prehashed, Signature: w.Signature,
		Nonce: w.Nonce, AAD: w.AAD, UserID: w.UserID, Order: w.Order, Length: w.Length, Peer: w.Peer,
	}
	if w.Key != nil {
		call.Spec = w.Key.Spec
	}
	if w.Version != nil {
		call.PublicKey = w.Version.PublicKey
	}
	var err error
	if needsHandle(w) {
		err = d.withHandle(n, w, &call)
	} else {
		w.SlotTime, err = n.call(&call)
	}
	if err != nil {
		return d.translate(n, w.Verb, err)
	}
	w.Output, w.Secret, w.Valid = call.Output, call.Secret, call.Valid
	return nil
}

func needsHandle(w *kms.Work) bool {
	switch w.Verb {
	case kms.VerbVerify, kms.VerbDigest, kms.VerbEncapsulate, kms.VerbRandom:
		return false
	case kms.VerbEncrypt:
		return w.Key.Spec.Info().Symmetric()
	}
	return true
}

// withHandle runs a call with the version's handle. One retry is made when
// the token says that the handle or the session is gone, and when a
// decryption failed for a reason that could be the token's.
func (d *Device) withHandle(n *node, w *kms.Work, call *Call) error {
	var err error
	for range 2 {
		entry, cold, lerr := n.cache.acquire(w.Version.ID, n.epoch.Load(), func() (Handle, error) {
			return d.loadVersion(n, w.Key, w.Version)
		})
		w.ColdLoad = w.ColdLoad || cold
		if lerr != nil {
			return lerr
		}
		call.Handle = entry.handle
		var elapsed time.Duration
		elapsed, err = n.call(call)
		w.SlotTime += elapsed
		if err == nil {
			n.cache.release(entry)
			return nil
		}
		class := ClassOf(err)
		if class == ClassStaleObject {
			n.cache.drop(entry)
		}
		n.cache.release(entry)
		retry := class == ClassStaleObject || class == ClassSession ||
			class == ClassAmbiguous && opens(w.Verb) && n.healthy()
		if !retry {
			return err
		}
	}
	return err
}

// opens tells whether the verb's input is a ciphertext, whose every fault has
// one answer.
func opens(v kms.Verb) bool {
	return v == kms.VerbDecrypt || v == kms.VerbUnwrap || v == kms.VerbDecapsulate
}

// translate turns a driver's error into what the route acts on, and takes a
// node that is not well out of service.
func (d *Device) translate(n *node, verb kms.Verb, err error) error {
	if e, ok := errors.AsType[*kms.Error](err); ok {
		return e
	}
	switch ClassOf(err) {
	case ClassRequest:
		if opens(verb) {
			return kms.ErrDecryptionFailed
		}
		return kms.Wrap(kms.KindInvalidArgument, err, "the key cannot process this input")
	case ClassUnsupported:
		return kms.Wrap(kms.KindInvalidArgument, err, "the node does not offer this algorithm")
	case ClassAmbiguous:
		if n.healthy() {
			// The token is well, so the input it was; a decryption was tried
			// twice before it comes here.
			if opens(verb) {
				return kms.ErrDecryptionFailed
			}
		}
	case ClassStaleObject, ClassSession, ClassCapacity:
		// Retried or passing: another node may do better, this one stays.
		n.noteError(err)
	default:
		n.markDown(err)
	}
	return kms.Wrap(kms.KindHSMUnavailable, err, "the HSM node failed")
}
