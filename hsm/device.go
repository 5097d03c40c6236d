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
	"sync/atomic"
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
	// Token is the opened token; nil when it could not be opened, and Reopen
	// shall try.
	Token Token
	// Reopen opens the token anew once it was closed. nil: a node that goes
	// down waits for its canary, which is right only where handles cannot be
	// renumbered.
	Reopen func(context.Context) (Token, error)
	Slots  int // concurrent operations, at least 1
	// OpenError is why Token is nil, nil when that is told already.
	OpenError error
	// Mode is what the node is for; "" is kms.NodeActive. A node whose mode
	// wants it closed has no Token.
	Mode kms.NodeMode
	// MaxLoads is how many keys the module may load in one opening, for one
	// that leaks: beyond it the node is closed and opened again while others
	// serve. 0: what the driver says (TokenInfo.MaxLoads).
	MaxLoads uint64
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

// enter returns the node of a slot for a use, which the caller ends by leave.
func (d *Device) enter(slot kms.NodeID) (*node, error) {
	name, _, _ := strings.Cut(string(slot), "/")
	if s := d.byID[kms.NodeID(name)]; s != nil {
		if n := s.current.Load(); n != nil && n.enter() {
			return n, nil
		}
	}
	return nil, errNoNode
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
	seats   []*seat // those of the HSM nodes, then the engine's
	byID    map[kms.NodeID]*seat
	domains map[uuid.UUID]*domainNodes
	ordered []*domainNodes // as configured
	first   *domainNodes   // of them; the default domain
	engine  *node
	clock   func() time.Time
	log     *slog.Logger

	placement placement
	balancing sync.Mutex                            // guards the seats' balance
	slots     atomic.Pointer[func(kms.NodeID, int)] // see FollowSlots

	stop     chan struct{}
	watchers sync.WaitGroup
}

// domainNodes is a domain with its nodes.
type domainNodes struct {
	*Domain
	seats     []*seat
	recycling atomic.Bool // one of them is being recycled
}

// Open tests every node, starts its workers and returns the pool, which owns
// the tokens from then on, also when it fails. A node that fails its
// self-test is left out with an alarm, so that the others serve, and tried
// again if it can be; to have none is an error.
func Open(c Config) (*Device, error) {
	d := &Device{
		byID: map[kms.NodeID]*seat{}, domains: map[uuid.UUID]*domainNodes{},
		clock: c.Clock, log: c.Log, stop: make(chan struct{}),
	}
	if err := d.open(c); err != nil {
		d.Close()
		return nil, err
	}
	for _, s := range d.seats {
		d.watchers.Go(func() { s.watch(d.stop) })
	}
	d.watchers.Go(d.sweep)
	d.watchers.Go(d.rebalance)
	return d, nil
}

func (d *Device) open(c Config) error {
	engine, err := d.openEngine(c)
	for _, nc := range c.Nodes {
		if err == nil {
			err = d.join(nc, c.AllowUnenforced)
		} else if nc.Token != nil {
			err = errors.Join(err, nc.Token.Close())
		}
	}
	if engine == nil {
		return err
	}
	failed := errors.New("no HSM node can serve")
	serves := false
	for _, s := range d.seats {
		if s.current.Load() != nil {
			serves = true
			continue
		}
		reason := "it is not to be opened"
		if e := s.lastErr.Load(); e != nil {
			reason = *e
		}
		failed = errors.Join(failed, fmt.Errorf("node %s: %s", s.config.ID, reason))
	}
	d.seats = append(d.seats, engine)
	if err != nil || serves {
		return err
	}
	return failed
}

func (d *Device) openEngine(c Config) (*seat, error) {
	s := &seat{config: NodeConfig{ID: EngineID, Token: c.Engine, Slots: c.EngineSlots}, device: d, log: c.Log, clock: c.Clock, epoch: 1}
	n, err := newNode(s, c.Engine)
	if err == nil {
		if n.slow, err = newCrew(c.Engine, slowSlots, slowSlots, c.Clock); err != nil {
			n.close()
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the in-process engine: %w", err), c.Engine.Close())
	}
	n.families = n.info.Wraps
	s.current.Store(n)
	d.engine = n
	d.byID[EngineID] = s
	return s, nil
}

// join gives a token its seat in its domain and tests it. A token that fails
// is no error, as long as its seat can try again.
func (d *Device) join(c NodeConfig, allowUnenforced bool) error {
	if d.byID[c.ID] != nil || strings.Contains(string(c.ID), "/") {
		err := fmt.Errorf("node %s: the id is taken or holds a slash", c.ID)
		if c.Token != nil {
			err = errors.Join(err, c.Token.Close())
		}
		return err
	}
	dom := d.domains[c.Domain.ID]
	if dom == nil {
		dom = &domainNodes{Domain: c.Domain}
		d.domains[c.Domain.ID] = dom
		d.ordered = append(d.ordered, dom)
		if d.first == nil {
			d.first = dom
		}
	}
	s := &seat{config: c, device: d, domain: dom, hash: hashID(c.ID), judge: d.engine, allowUnenforced: allowUnenforced,
		log: d.log, clock: d.clock}
	if c.Mode != "" {
		s.mode.Store(&c.Mode)
	}
	switch {
	case c.Token != nil:
		if err := s.sit(c.Token, d.stop); err != nil {
			s.leaveOut(err)
		}
	case s.open():
		s.leaveOut(cmp.Or(c.OpenError, errNotOpened))
	}
	dom.seats = append(dom.seats, s)
	d.seats = append(d.seats, s)
	d.byID[c.ID] = s
	return nil
}

// Close ends the workers, waits for calls that run and closes the tokens. No
// method may be called any more.
func (d *Device) Close() error {
	close(d.stop)
	d.watchers.Wait()
	var first error
	for _, s := range d.seats {
		if err := s.close(); err != nil && first == nil {
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
	slots := make(map[kms.NodeID]int, 2*len(d.seats)+1)
	for _, s := range d.seats {
		slots[s.config.ID] = s.config.Slots
		slots[s.config.ID+generateLane] = generateSlots
	}
	slots[EngineID+slowLane] = slowSlots
	return slots
}

// FollowSlots calls f with the slots that each node has now, and from then on
// whenever that changes: a token that is out of something has fewer for a
// while. f must be fast, and safe for concurrent use with different nodes.
func (d *Device) FollowSlots(f func(node kms.NodeID, slots int)) {
	d.slots.Store(&f)
	for _, s := range d.seats {
		if n := s.current.Load(); n != nil {
			f(s.config.ID, n.capacity.slots())
		}
	}
}

func (d *Device) tell(node kms.NodeID, slots int) {
	if f := d.slots.Load(); f != nil {
		(*f)(node, slots)
	}
}

// Domains lists the domains, the default one first.
func (d *Device) Domains() []kms.DomainStatus {
	var all []kms.DomainStatus
	for _, dom := range d.ordered {
		st := kms.DomainStatus{ID: dom.ID, Name: dom.Name, Generation: dom.Generation}
		for _, s := range dom.seats {
			st.Nodes = append(st.Nodes, s.config.ID)
		}
		all = append(all, st)
	}
	return all
}

// Placements implements kms.NodePool.
func (d *Device) Placements(limit int) ([]kms.KeyPlacement, int) { return d.placement.list(limit) }

// Status reports every node.
func (d *Device) Status() []kms.NodeStatus {
	all := make([]kms.NodeStatus, len(d.seats))
	for i, s := range d.seats {
		all[i] = s.status()
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

// up returns the domain's nodes that take new work and offer the family ("":
// any): the one that the placement table names for the id, then the active
// ones, ordered by rendezvous hash of the id, so that a key is at home on one
// node while that is up and every node has an equal share of the keys, then
// those on standby. Since a request takes the first free slot in this order, a
// standby node takes over what the active ones have no slot for, or all when
// they are lost.
func (d *Device) up(dom *domainNodes, f kms.Family, id uuid.UUID) ([]kms.NodeID, error) {
	type ranked struct {
		id     kms.NodeID
		class  int // 0 placed there, 1 active, 2 standby
		weight uint64
	}
	var ranks [8]ranked
	list := ranks[:0]
	home, placed := d.placement.home(id)
	for _, s := range dom.seats {
		if !s.usable(f) {
			continue
		}
		r := ranked{id: s.config.ID, class: 1, weight: rank(id, s.hash)}
		switch {
		case s.wanted() == kms.NodeStandby:
			r.class = 2
		case placed && home == s.config.ID:
			r.class = 0
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return nil, errNoNode
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.weight, a.weight))
	})
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
	for _, seat := range dom.seats {
		if seat.canOffer(s.Info().Family) {
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
	n, err := d.enter(id)
	if err != nil {
		return err
	}
	defer n.leave()
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
		entry, cold, lerr := n.cache.acquire(w.Key.Tenant.ID, w.Version.ID, source{w.Key, w.Version}, func() (Handle, error) {
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
		entry.busy.Add(int64(elapsed))
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
	case ClassCapacity:
		// It passes: another node may do better, this one stays with fewer
		// slots.
		n.noteError(err)
		n.capacity.shrink(n.clock())
	case ClassStaleObject, ClassSession, ClassTokenDown:
		if errors.Is(err, errHung) {
			// One call that hangs says little; the watch counts them.
			n.noteError(err)
			break
		}
		n.blame(err)
	default:
		n.markDown(err)
	}
	return kms.Wrap(kms.KindHSMUnavailable, err, "the HSM node failed")
}
