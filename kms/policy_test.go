package kms_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// policyBook keeps the versions of the policy as the store does.
type policyBook struct {
	mu    sync.Mutex
	list  []*kms.PolicyVersion
	fail  error // of every call
	spoil map[uint64]error
	read  int // versions read with their documents
}

func (b *policyBook) NewestPolicy(context.Context) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return uint64(len(b.list)), b.fail
}

func (b *policyBook) Policy(_ context.Context, version uint64) (*kms.PolicyVersion, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read++
	switch {
	case b.fail != nil:
		return nil, b.fail
	case b.spoil[version] != nil:
		return nil, b.spoil[version]
	case version == 0 || version > uint64(len(b.list)):
		return nil, kms.ErrNotFound
	}
	return b.list[version-1], nil
}

func (b *policyBook) ListPolicies(_ context.Context, p kms.Page) ([]*kms.PolicyVersion, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*kms.PolicyVersion
	for _, v := range slices.Backward(b.list) {
		if b.spoil[v.Version] == nil {
			list = append(list, v)
		}
	}
	return list[:min(len(list), p.Size)], "", b.fail
}

func (b *policyBook) PutPolicy(_ context.Context, p *kms.PolicyVersion) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	if p.Version != uint64(len(b.list))+1 {
		return kms.Errorf(kms.KindPreconditionFailed, "another revision")
	}
	b.list = append(b.list, p)
	return nil
}

func (b *policyBook) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// stagePolicy is the version in force where entries are looked at.
const stagePolicy = 7

// add stores a version, as another API node does.
func (b *policyBook) add(document string) {
	b.set(func() {
		b.list = append(b.list, &kms.PolicyVersion{Version: uint64(len(b.list)) + 1, Document: []byte(document),
			Digest: sha256.Sum256([]byte(document)), Created: stageNow, By: uuid.NewV7()})
	})
}

// policyFake takes documents that do not begin with "bad"; those of "later"
// are valid to check and cannot be applied.
type policyFake struct {
	mu       sync.Mutex
	version  uint64
	document []byte
	tried    int
}

func (f *policyFake) CheckPolicy(document []byte) ([]byte, []kms.PolicyMistake) {
	if bytes.HasPrefix(document, []byte("bad")) {
		return nil, []kms.PolicyMistake{{Path: "a.b", What: "is bad"}}
	}
	return bytes.TrimSpace(document), nil
}

func (f *policyFake) DiffPolicies(from, to []byte) ([]kms.PolicyChange, error) {
	return []kms.PolicyChange{{Path: "all", From: string(from), To: string(to)}}, nil
}

func (f *policyFake) ApplyPolicy(version uint64, document []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried++
	if version <= f.version || bytes.HasPrefix(document, []byte("bad")) || bytes.HasPrefix(document, []byte("later")) {
		return errors.New("policy: a.b: is bad")
	}
	f.version, f.document = version, document
	return nil
}

func (f *policyFake) PolicyInForce() (uint64, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.version == 0 {
		return 0, f.DefaultPolicy()
	}
	return f.version, f.document
}

func (f *policyFake) PolicyVersion() uint64 {
	version, _ := f.PolicyInForce()
	return version
}

func (f *policyFake) DefaultPolicy() []byte { return []byte("default") }

// put puts a document as an operator.
func (s *stage) put(t *testing.T, previous uint64, document string) (*kms.PolicyVersion, error) {
	t.Helper()
	return s.svc.PutPolicy(t.Context(), s.operatorTicket(t), kms.PutPolicyInput{Previous: previous, Document: []byte(document), Comment: "why"})
}

func (s *stage) state(t *testing.T) *kms.PolicyState {
	t.Helper()
	state, err := s.svc.GetPolicy(t.Context(), s.operatorTicket(t))
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestWithoutAStoredPolicyTheDefaultIsInForce(t *testing.T) {
	s := newStage(t)
	if p := s.state(t); p.Version != 0 || string(p.Document) != "default" || p.Stored != 0 || p.Problem != "" || !p.Created.IsZero() {
		t.Errorf("%+v", p)
	}
	p, err := s.svc.DescribePolicy(t.Context(), s.operatorTicket(t), 0)
	if err != nil || string(p.Document) != "default" || p.Digest != sha256.Sum256([]byte("default")) {
		t.Errorf("version 0: %+v, %v", p, err)
	}
	if _, err := s.svc.DescribePolicy(t.Context(), s.operatorTicket(t), 1); err != kms.ErrNotFound {
		t.Errorf("version 1: %v", err)
	}
}

func TestPolicyThatIsPutIsInForceAtOnceAndInEveryEntry(t *testing.T) {
	s := newStage(t)
	for i, document := range []string{"first ", "second"} {
		p, err := s.put(t, uint64(i), document)
		if err != nil || p.Version != uint64(i)+1 || string(p.Document) != strings.TrimSpace(document) {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	state := s.state(t)
	if state.Version != 2 || state.Stored != 2 || string(state.Document) != "second" || state.Comment != "why" || !state.Created.Equal(stageNow) ||
		state.Digest != sha256.Sum256([]byte("second")) {
		t.Errorf("%+v", state)
	}
	put, get := s.entries[len(s.entries)-2], s.entries[len(s.entries)-1]
	if put.Op != kms.OpPutPolicy || put.Resource != "2" || put.PolicyVersion != 1 {
		t.Errorf("putting is recorded as %+v", put)
	}
	if get.Op != kms.OpReadPolicy || get.PolicyVersion != 2 {
		t.Errorf("what follows is recorded as %+v", get)
	}
	if intent := s.entries[len(s.entries)-3]; intent.Phase != kms.PhaseIntent || intent.Revision != 1 || intent.Resource != "2" || intent.PolicyVersion != 1 {
		t.Errorf("the intent is recorded as %+v", intent)
	}
	// Refused ones too, with a verb and without.
	if _, err := s.svc.GetPolicy(t.Context(), s.ticket(t, "key:*")); kms.KindOf(err) != kms.KindPermissionDenied || err == nil {
		t.Errorf("a tenant reads the policy: %v", err)
	}
	_ = s.svc.Refuse(t.Context(), s.ticket(t, "key:*"), kms.OpSign, kms.ErrUnauthenticated)
	for _, e := range s.entries[len(s.entries)-2:] {
		if e.PolicyVersion != 2 {
			t.Errorf("a refusal is recorded as %+v", e)
		}
	}
}

func TestEntryNamesThePolicyThatDecided(t *testing.T) {
	s := newStage(t)
	s.decidedUnder = stagePolicy
	if _, err := s.svc.GetPolicy(t.Context(), s.operatorTicket(t)); err != nil {
		t.Fatal(err)
	}
	if e := s.entries[len(s.entries)-1]; e.PolicyVersion != stagePolicy {
		t.Errorf("recorded as %+v", e)
	}
}

func TestPolicyIsPutAfterTheOneThatItsAuthorKnew(t *testing.T) {
	s := newStage(t)
	s.policies.add("another's")
	for _, previous := range []uint64{0, 2} {
		if _, err := s.put(t, previous, "mine"); kms.KindOf(err) != kms.KindPreconditionFailed || err == nil {
			t.Errorf("after %d: %v", previous, err)
		}
	}
	if len(s.policies.list) != 1 {
		t.Error("it is stored")
	}
}

func TestBadPolicyIsNeitherStoredNorInForce(t *testing.T) {
	s := newStage(t)
	if _, err := s.put(t, 0, "good"); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]kms.PutPolicyInput{
		"mistakes":     {Previous: 1, Document: []byte("bad secret")},
		"too long":     {Previous: 1, Document: make([]byte, kms.MaxPolicyDocument+1)},
		"long comment": {Previous: 1, Document: []byte("x"), Comment: strings.Repeat("y", kms.MaxPolicyComment+1)},
		"forged line":  {Previous: 1, Document: []byte("x"), Comment: "a\nb"},
	} {
		_, err := s.svc.PutPolicy(t.Context(), s.operatorTicket(t), in)
		if kms.KindOf(err) != kms.KindInvalidArgument || err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p := s.state(t); p.Version != 1 || p.Stored != 1 || string(p.Document) != "good" || len(s.policies.list) != 1 {
		t.Errorf("%+v", p)
	}
}

func TestCheckAndDiffStoreNothing(t *testing.T) {
	s := newStage(t)
	s.policies.add("first")
	digest, mistakes, err := s.svc.CheckPolicy(t.Context(), s.operatorTicket(t), []byte(" good"))
	if err != nil || len(mistakes) != 0 || digest != sha256.Sum256([]byte("good")) {
		t.Errorf("%x, %v, %v", digest, mistakes, err)
	}
	if _, mistakes, err = s.svc.CheckPolicy(t.Context(), s.operatorTicket(t), []byte("bad")); err != nil || len(mistakes) != 1 || mistakes[0].Path != "a.b" {
		t.Errorf("%v, %v", mistakes, err)
	}
	for _, c := range []struct {
		in   kms.DiffPolicyInput
		to   string
		kind kms.Kind
	}{
		{kms.DiffPolicyInput{Document: []byte("other")}, "other", 0},
		{kms.DiffPolicyInput{Version: 1}, "first", 0},
		{kms.DiffPolicyInput{}, "default", 0},
		{kms.DiffPolicyInput{Document: []byte("bad")}, "", kms.KindInvalidArgument},
		{kms.DiffPolicyInput{Version: 2}, "", kms.KindNotFound},
	} {
		changes, inForce, err := s.svc.DiffPolicy(t.Context(), s.operatorTicket(t), c.in)
		if c.to == "" {
			if kms.KindOf(err) != c.kind || err == nil {
				t.Errorf("%+v: %v", c.in, err)
			}
		} else if err != nil || inForce != 0 || len(changes) != 1 || changes[0].From != "default" || changes[0].To != c.to {
			t.Errorf("%+v: %v, %d, %v", c.in, changes, inForce, err)
		}
	}
	if len(s.policies.list) != 1 || s.engine.PolicyVersion() != 0 {
		t.Error("something was stored or applied")
	}
}

func TestRollbackPutsAnEarlierDocumentAsANewVersion(t *testing.T) {
	s := newStage(t)
	for i, document := range []string{"first", "second"} {
		if _, err := s.put(t, uint64(i), document); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct {
		to       uint64
		comment  string
		document string
		noted    string
	}{{1, "", "first", "back to version 1"}, {0, "undo all", "default", "undo all"}} {
		p, err := s.svc.RollbackPolicy(t.Context(), s.operatorTicket(t), c.to, c.comment, false)
		if err != nil || p.Version != uint64(3+i) || string(p.Document) != c.document || p.Comment != c.noted {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if _, err := s.svc.RollbackPolicy(t.Context(), s.operatorTicket(t), 9, "", false); err != kms.ErrNotFound {
		t.Errorf("to a version that is not there: %v", err)
	}
	if p := s.state(t); p.Version != 4 || string(p.Document) != "default" {
		t.Errorf("%+v", p)
	}
}

func TestPolicyTakesTwoOperators(t *testing.T) {
	g := newGuarded(t)
	put := func(approval uuid.UUID, document string) error {
		_, err := g.svc.PutPolicy(context.Background(), g.as(g.first, approval), kms.PutPolicyInput{Document: []byte(document)})
		return err
	}
	id := required(t, put(uuid.Nil(), "lift every limit"))
	if what := g.approvals.list[0].Resource; !strings.Contains(what, "policy version 1, SHA-256 ") {
		t.Errorf("the second operator is told %q", what)
	}
	if err := g.approve(g.second, id); err != nil {
		t.Fatal(err)
	}
	if err := put(id, "another"); kms.KindOf(err) != kms.KindConflict || err == nil {
		t.Errorf("another document: %v", err)
	}
	if g.engine.PolicyVersion() != 0 || len(g.policies.list) != 0 {
		t.Fatal("it was put by one")
	}
	if err := put(id, "lift every limit"); err != nil || g.engine.PolicyVersion() != 1 {
		t.Errorf("what was approved: %v", err)
	}
}

// following is a stage whose service follows the stored policy in a bubble of
// virtual time.
func following(t *testing.T, prepare func(*stage), run func(*testing.T, *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		prepare(s)
		sync, err := s.svc.StartPolicySync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer sync.Close()
		run(t, s)
	})
}

func (s *stage) wantPolicy(t *testing.T, version uint64, problem string) {
	t.Helper()
	synctest.Wait()
	inForce, stored, got := s.svc.PolicyFollowed()
	if inForce != version || (got == "") != (problem == "") || !strings.Contains(got, problem) || got == "" && stored != version {
		t.Errorf("version %d is in force, %d stored, %q; want %d, %q", inForce, stored, got, version, problem)
	}
}

func TestPolicyOfAnotherNodeIsInForceWithinASecond(t *testing.T) {
	following(t, func(s *stage) { s.policies.add("at the start") }, func(t *testing.T, s *stage) {
		s.wantPolicy(t, 1, "")
		s.policies.add("second")
		time.Sleep(time.Second)
		s.wantPolicy(t, 2, "")
		read := s.policies.read
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.policies.read != read {
			t.Errorf("a policy in force was read %d times more", s.policies.read-read)
		}
	})
}

func TestPolicyThatCannotBeAppliedLeavesTheLastGoodOne(t *testing.T) {
	following(t, func(s *stage) { s.policies.add("good") }, func(t *testing.T, s *stage) {
		s.policies.add("bad")
		time.Sleep(time.Second)
		s.wantPolicy(t, 1, "a.b: is bad")
		tried := s.engine.tried
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.engine.tried != tried {
			t.Errorf("it was tried %d times more", s.engine.tried-tried)
		}
		s.policies.add("good again")
		time.Sleep(time.Second)
		s.wantPolicy(t, 3, "")
	})
}

func TestDamagedPolicyLeavesTheLastGoodOneUntilItIsRepaired(t *testing.T) {
	damaged := kms.Wrap(kms.KindInternal, errors.New("secret"), "the stored object is damaged")
	following(t, func(s *stage) { s.policies.add("good") }, func(t *testing.T, s *stage) {
		s.policies.add("second")
		s.policies.set(func() { s.policies.spoil = map[uint64]error{2: damaged} })
		time.Sleep(time.Second)
		s.wantPolicy(t, 1, "damaged")
		if _, _, problem := s.svc.PolicyFollowed(); strings.Contains(problem, "secret") {
			t.Errorf("operators are shown %q", problem)
		}
		s.policies.set(func() { s.policies.spoil = nil })
		time.Sleep(time.Second)
		s.wantPolicy(t, 2, "")
	})
}

func TestStartTakesTheNewestPolicyThatCanBeApplied(t *testing.T) {
	damaged := kms.Errorf(kms.KindInternal, "damaged")
	following(t, func(s *stage) {
		for _, d := range []string{"first", "second", "damaged", "bad", "later"} {
			s.policies.add(d)
		}
		s.policies.spoil = map[uint64]error{3: damaged}
	}, func(t *testing.T, s *stage) {
		s.wantPolicy(t, 2, "cannot be applied")
		time.Sleep(time.Minute)
		s.wantPolicy(t, 2, "cannot be applied")
	})
}

func TestRemovedVersionsDoNotPutAnOldPolicyIntoForce(t *testing.T) {
	following(t, func(s *stage) { s.policies.add("1"); s.policies.add("2") }, func(t *testing.T, s *stage) {
		s.policies.set(func() { s.policies.list = s.policies.list[:1] })
		time.Sleep(time.Second)
		s.wantPolicy(t, 2, "versions were removed")
	})
}

func TestPolicyStaysWhileTheStoreIsAway(t *testing.T) {
	away := kms.Errorf(kms.KindStoreUnavailable, "away")
	following(t, func(s *stage) { s.policies.add("1") }, func(t *testing.T, s *stage) {
		s.policies.set(func() { s.policies.fail = away })
		time.Sleep(time.Minute)
		s.wantPolicy(t, 1, "")
		s.policies.set(func() { s.policies.fail = nil })
		s.policies.add("2")
		time.Sleep(time.Second)
		s.wantPolicy(t, 2, "")
	})
	s := newStage(t)
	s.policies.fail = away
	if _, err := s.svc.StartPolicySync(t.Context()); kms.KindOf(err) != kms.KindStoreUnavailable {
		t.Errorf("a start without the store: %v", err)
	}
}

func TestIntentOfAPolicyIsClosedByWhatIsStored(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*stage, *kms.Entry)
		want    string
	}{
		"not there": {func(*stage, *kms.Entry) {}, kms.OutcomeFoundUndone},
		"there":     {func(s *stage, e *kms.Entry) { s.policies.add("x"); e.Credential = s.policies.list[0].By }, kms.OutcomeFoundChanged},
		"another's": {func(s *stage, _ *kms.Entry) { s.policies.add("x") }, kms.OutcomeFoundUndone},
		"earlier": {func(s *stage, e *kms.Entry) {
			s.policies.add("x")
			e.Credential = s.policies.list[0].By
			e.Time = stageNow.Add(time.Millisecond)
		}, kms.OutcomeFoundUndone},
		"nobody knows": {func(s *stage, _ *kms.Entry) { s.policies.fail = errors.New("away") }, kms.OutcomeFoundUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			e := &kms.Entry{Op: kms.OpPutPolicy, Phase: kms.PhaseIntent, RequestID: uuid.NewV7(), Credential: uuid.NewV7(), Resource: strconv.Itoa(1),
				Time: stageNow.Add(500 * time.Nanosecond)}
			c.prepare(s, e)
			if _, err := s.svc.Reconcile(t.Context(), []*kms.Entry{e}); err != nil {
				t.Fatal(err)
			}
			if got := s.entries[0].Outcome; got != c.want {
				t.Errorf("closed as %s, want %s", got, c.want)
			}
		})
	}
}
