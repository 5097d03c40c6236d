package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func sampleSecret(tenant uuid.UUID, path string) *kms.ProviderSecret {
	return &kms.ProviderSecret{ID: uuid.NewV7(), Tenant: tenant, Path: path, Provider: "openai", Metadata: map[string]string{"region": "eu"},
		State: kms.SecretInUse, Created: start, Fresh: kms.DefaultFresh, Lease: kms.DefaultLease, Highest: 1,
		Versions: []*kms.SecretVersion{sampleSecretVersion(1, kms.SecretActive, 100)}}
}

func sampleSecretVersion(number uint32, state kms.SecretVersionState, weight uint32) *kms.SecretVersion {
	return &kms.SecretVersion{Number: number, State: state, Weight: weight, Created: start, Fingerprint: [32]byte{byte(number)}, FingerprintVersion: 1,
		DataKey: []byte(fmt.Sprint("sealed data key ", number)), Value: []byte(fmt.Sprint("sealed value ", number))}
}

func (e *env) secret(t testing.TB, tenant uuid.UUID, path string) *kms.ProviderSecret {
	t.Helper()
	s := sampleSecret(tenant, path)
	s.Versions[0].Value = []byte("sealed value 1 " + strings.Split(path, "/")[0])
	if err := e.CreateSecret(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// change stores a changed copy of a secret and returns it.
func (e *env) change(t testing.TB, was *kms.ProviderSecret, kind kms.SecretChangeKind, f func(*kms.ProviderSecret)) *kms.ProviderSecret {
	t.Helper()
	next := was.Clone()
	f(next)
	if err := e.UpdateSecret(t.Context(), was, next, kind); err != nil {
		t.Fatal(err)
	}
	return next
}

// inRollout gives a secret a second version and a rollout of it.
func (e *env) inRollout(t testing.TB, was *kms.ProviderSecret) *kms.ProviderSecret {
	t.Helper()
	return e.change(t, was, kms.SecretChanged, func(s *kms.ProviderSecret) {
		s.Highest = 2
		s.Versions[0].Weight = 90
		s.Versions = append(s.Versions, sampleSecretVersion(2, kms.SecretActive, 10))
		s.Rollout = &kms.Rollout{State: kms.RolloutRunning, From: 1, To: 2, Steps: []uint32{10, 100}, Interval: time.Minute,
			Observe: time.Hour, Since: start}
	})
}

func testSecrets(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant := e.tenant(t, "acme")

	wantSecret := func(t *testing.T, want *kms.ProviderSecret) {
		t.Helper()
		for name, find := range map[string]func(*env) (*kms.ProviderSecret, error){
			"by id":   func(e *env) (*kms.ProviderSecret, error) { return e.Secret(ctx, want.Tenant, want.ID) },
			"by path": func(e *env) (*kms.ProviderSecret, error) { return e.SecretByPath(ctx, want.Tenant, want.Path) },
		} {
			for _, of := range []*env{e, newEnv(t, e.driver)} {
				if got, err := find(of); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, want)
				}
			}
		}
	}
	t.Run("KeptAsWritten", func(t *testing.T) {
		s := e.secret(t, tenant.ID, "llm/openai")
		wantSecret(t, s)
		s = e.inRollout(t, s)
		wantSecret(t, s)
		s = e.change(t, s, kms.SecretRevoked, func(s *kms.ProviderSecret) {
			s.Rollout.State = kms.RolloutCancelled
			s.Versions[0].State, s.Versions[0].Weight, s.Versions[0].DestroyAt = kms.SecretDisabled, 0, start.Add(time.Hour)
			s.Versions[1].Weight, s.Versions[1].NotAfter = 100, start.Add(2*time.Hour)
		})
		wantSecret(t, s)
	})
	t.Run("EveryChangeTakesTheTenantsNextRevision", func(t *testing.T) {
		other := e.tenant(t, "revisions")
		if n, err := e.SecretsRevision(ctx, other.ID); err != nil || n != 0 {
			t.Errorf("before the first secret: %d, %v", n, err)
		}
		a, b := e.secret(t, other.ID, "a"), e.secret(t, other.ID, "b")
		a = e.change(t, a, kms.SecretRevoked, func(s *kms.ProviderSecret) { s.Provider = "other" })
		if a.Revision != 3 || b.Revision != 2 {
			t.Errorf("revisions %d and %d", a.Revision, b.Revision)
		}
		if n, err := e.SecretsRevision(ctx, other.ID); err != nil || n != 3 {
			t.Errorf("afterwards: %d, %v", n, err)
		}
		changes, gap, err := e.ChangesOfSecrets(ctx, other.ID, 1, 10)
		if want := []kms.SecretChange{{Revision: 2, Path: "b", Kind: kms.SecretChanged}, {Revision: 3, Path: "a", Kind: kms.SecretRevoked}}; err != nil ||
			gap || !reflect.DeepEqual(changes, want) {
			t.Errorf("changes %+v, gap %v, %v", changes, gap, err)
		}
	})
	t.Run("AChangeIsLaterThanTheOneBeforeWhenTheTenantsRowIsGone", func(t *testing.T) {
		other := e.tenant(t, "gone-revisions")
		a := e.secret(t, other.ID, "a")
		e.secret(t, other.ID, "b")
		a = e.change(t, a, kms.SecretChanged, func(s *kms.ProviderSecret) { s.Provider = "other" })
		e.driver.(Damager).Delete(t, "secret_revisions", "tenant", other.ID[:])
		if after := newEnv(t, e.driver).change(t, a, kms.SecretRevoked, func(s *kms.ProviderSecret) { s.Provider = "again" }); after.Revision <= a.Revision {
			t.Errorf("revision %d after %d", after.Revision, a.Revision)
		}
	})
	t.Run("OnlyThePresentStateIsChanged", func(t *testing.T) {
		s := e.secret(t, tenant.ID, "stale")
		next := s.Clone()
		e.change(t, s, kms.SecretChanged, func(s *kms.ProviderSecret) { s.Provider = "other" })
		wantKind(t, "an old state", e.UpdateSecret(ctx, s, next, kms.SecretChanged), kms.KindPreconditionFailed)
	})
	t.Run("OfConcurrentChangesAllOrOneAreMade", func(t *testing.T) {
		other := e.tenant(t, "many")
		const writers = 8
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				if err := e.CreateSecret(ctx, sampleSecret(other.ID, fmt.Sprint("path/", i))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n, err := e.SecretsRevision(ctx, other.ID); err != nil || n != writers {
			t.Errorf("revision %d, %v", n, err)
		}
		s, _ := e.SecretByPath(ctx, other.ID, "path/0")
		won := make(chan bool, writers)
		for i := range writers {
			all.Go(func() {
				next := s.Clone()
				next.Provider = fmt.Sprint("p", i)
				won <- e.UpdateSecret(ctx, s, next, kms.SecretChanged) == nil
			})
		}
		all.Wait()
		close(won)
		wins := 0
		for w := range won {
			if w {
				wins++
			}
		}
		if wins != 1 {
			t.Errorf("%d changes of one revision were made", wins)
		}
	})
	t.Run("PathsAreTakenUntilTheSecretIsDestroyed", func(t *testing.T) {
		s := e.secret(t, tenant.ID, "once")
		wantKind(t, "a path that is taken", e.CreateSecret(ctx, sampleSecret(tenant.ID, "once")), kms.KindConflict)
		next := s.Clone()
		next.State = kms.SecretGone
		next.Versions[0] = &kms.SecretVersion{Number: 1, State: kms.SecretDestroyed, Created: start, DestroyAt: start}
		if err := e.UpdateSecret(ctx, s, next, kms.SecretRevoked); err != nil {
			t.Fatal(err)
		}
		for _, of := range []*env{e, newEnv(t, e.driver)} {
			if _, err := of.Secret(ctx, tenant.ID, s.ID); err != kms.ErrNotFound {
				t.Errorf("the destroyed one by id: %v", err)
			}
			if _, err := of.SecretByPath(ctx, tenant.ID, "once"); err != kms.ErrNotFound {
				t.Errorf("the destroyed one by path: %v", err)
			}
		}
		again := sampleSecret(tenant.ID, "once")
		again.ID = s.ID
		wantKind(t, "the id of a destroyed one", e.CreateSecret(ctx, again), kms.KindConflict)
		e.secret(t, tenant.ID, "once")
	})
	t.Run("NumbersOfVersionsAreNeverTakenBack", func(t *testing.T) {
		s := e.inRollout(t, e.secret(t, tenant.ID, "numbers"))
		next := s.Clone()
		next.Highest = 1
		wantKind(t, "a lower number", e.UpdateSecret(ctx, s, next, kms.SecretChanged), kms.KindInvalidArgument)
	})
	t.Run("ListsByPrefixInOrder", func(t *testing.T) {
		other := e.tenant(t, "lists")
		var llm, all []string
		for _, path := range []string{"a", "llm", "llm/a", "llm/b/c", "llm/~", "llmx", "z"} {
			e.secret(t, other.ID, path)
			all = append(all, path)
			if len(path) > 4 && path[:4] == "llm/" {
				llm = append(llm, path)
			}
		}
		slices.Sort(all)
		slices.Sort(llm)
		for prefix, want := range map[string][]string{"": all, "llm/": llm, "none": nil} {
			for _, size := range []int{1, 3, 100} {
				checkPages(t, size, want, func(p kms.Page) ([]string, string, error) {
					list, next, err := e.ListSecrets(ctx, other.ID, prefix, p)
					return namesOf(list, func(s *kms.ProviderSecret) string { return s.Path }), next, err
				})
			}
		}
	})
	t.Run("DueInTheirOrder", func(t *testing.T) {
		s := e.inRollout(t, e.secret(t, tenant.ID, "due"))
		due, err := e.DueSecrets(ctx, start.Add(time.Minute), kms.DueSecret{}, 10)
		if err != nil || !slices.Contains(due, kms.DueSecret{Due: start.Add(time.Minute), Tenant: tenant.ID, Secret: s.ID}) {
			t.Errorf("due: %+v, %v", due, err)
		}
		for _, d := range due {
			if d.Due.After(start.Add(time.Minute)) {
				t.Errorf("not due: %+v", d)
			}
		}
		if due, err := e.DueSecrets(ctx, start, kms.DueSecret{}, 10); err != nil || len(due) != 0 {
			t.Errorf("before: %+v, %v", due, err)
		}
	})
	t.Run("OutcomesAddUpAndBeginAnewWithAStep", func(t *testing.T) {
		s := e.inRollout(t, e.secret(t, tenant.ID, "outcomes"))
		for range 2 {
			err := e.AddOutcomes(ctx, tenant.ID, []kms.SecretOutcome{{Secret: s.ID, Version: 2, OK: 1, Credential: 2, Quota: 3, RateLimit: 4, Transient: 5},
				{Secret: uuid.NewV7(), Version: 1, OK: 1}})
			if err != nil {
				t.Fatal(err)
			}
		}
		got, err := e.Outcomes(ctx, tenant.ID, s.ID)
		if want := []kms.SecretOutcome{{Secret: s.ID, Version: 2, OK: 2, Credential: 4, Quota: 6, RateLimit: 8, Transient: 10}}; err != nil ||
			!reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
		s = e.change(t, s, kms.SecretChanged, func(s *kms.ProviderSecret) { s.Provider = "other" })
		if got, err := e.Outcomes(ctx, tenant.ID, s.ID); err != nil || len(got) != 1 {
			t.Errorf("after another change: %+v, %v", got, err)
		}
		e.change(t, s, kms.SecretChanged, func(s *kms.ProviderSecret) { s.Rollout.Since = start.Add(time.Minute) })
		if got, err := e.Outcomes(ctx, tenant.ID, s.ID); err != nil || len(got) != 0 {
			t.Errorf("in the next step: %+v, %v", got, err)
		}
	})
	t.Run("ChangesAreBoundedAndTheirLossIsAGap", func(t *testing.T) {
		other := e.tenant(t, "bounded")
		s := e.secret(t, other.ID, "a")
		for range 5 {
			s = e.change(t, s, kms.SecretChanged, func(*kms.ProviderSecret) {})
		}
		e.driver.(Damager).Delete(t, "secret_changes", "path", "a")
		if changes, gap, err := e.ChangesOfSecrets(ctx, other.ID, 3, 10); err != nil || !gap || len(changes) != 0 {
			t.Errorf("%v, gap %v, %v", changes, gap, err)
		}
		s = e.change(t, s, kms.SecretChanged, func(*kms.ProviderSecret) {})
		if changes, gap, err := e.ChangesOfSecrets(ctx, other.ID, 3, 10); err != nil || !gap || len(changes) != 1 || changes[0].Revision != s.Revision {
			t.Errorf("%v, gap %v, %v", changes, gap, err)
		}
	})
	t.Run("TamperedChangesOfSecretsAreGaps", func(t *testing.T) {
		for column, value := range map[string]any{"path": "b", "kind": "revoked", "made": start.Add(time.Hour).UnixMicro(), "mac": make([]byte, 32), "mac_version": int64(1)} {
			other := e.tenant(t, "tampered-"+strings.ReplaceAll(column, "_", "-"))
			s := e.secret(t, other.ID, "tampered/"+column)
			e.driver.(Damager).Damage(t, Damage{Table: "secret_changes", Column: column, Value: value, Key: "path", KeyValue: s.Path})
			if changes, gap, err := e.ChangesOfSecrets(ctx, other.ID, 0, 10); err != nil || !gap || len(changes) > 0 {
				t.Errorf("%s: %v, gap %v, %v", column, changes, gap, err)
			}
		}
	})
	t.Run("AnOldRowPutBackIsRefused", func(t *testing.T) {
		s := e.secret(t, tenant.ID, "old")
		row := victim{table: "secrets", key: "id", value: s.ID[:]}
		before := takeSnapshot(t, e.driver.(Damager), row)
		e.change(t, s, kms.SecretRevoked, func(s *kms.ProviderSecret) { s.Versions[0].State, s.Versions[0].Weight = kms.SecretDisabled, 0 })
		before.restore(t, e.driver.(Damager), row)
		_, err := e.SecretByPath(ctx, tenant.ID, "old")
		wantDamage(t, "a secret from before it was disabled", err, keystore.ObjectProviderSecret)
	})
	t.Run("DamagedSecretsAreRefusedAlone", func(t *testing.T) { testDamagedSecrets(t, open(t)) })
	t.Run("UnusableSecretsAreRefused", func(t *testing.T) {
		for name, spoil := range map[string]func(*kms.ProviderSecret){
			"id":           func(s *kms.ProviderSecret) { s.ID = uuid.Nil() },
			"path":         func(s *kms.ProviderSecret) { s.Path = "a//b" },
			"dots":         func(s *kms.ProviderSecret) { s.Path = "a/../b" },
			"provider":     func(s *kms.ProviderSecret) { s.Provider = "" },
			"state":        func(s *kms.ProviderSecret) { s.State = "PARTY" },
			"deletion":     func(s *kms.ProviderSecret) { s.DeletionDate = start },
			"lease":        func(s *kms.ProviderSecret) { s.Lease = 0 },
			"no version":   func(s *kms.ProviderSecret) { s.Versions = nil },
			"number":       func(s *kms.ProviderSecret) { s.Versions[0].Number = 2 },
			"weight":       func(s *kms.ProviderSecret) { s.Versions[0].Weight = 99 },
			"no value":     func(s *kms.ProviderSecret) { s.Versions[0].Value = nil },
			"fingerprint":  func(s *kms.ProviderSecret) { s.Versions[0].FingerprintVersion = 0 },
			"half rollout": func(s *kms.ProviderSecret) { s.Rollout = &kms.Rollout{State: kms.RolloutRunning, From: 1, To: 2} },
		} {
			s := sampleSecret(tenant.ID, "unusable/"+name)
			s.Path = "unusable"
			spoil(s)
			wantKind(t, name, e.CreateSecret(ctx, s), kms.KindInvalidArgument)
		}
	})
}

// testDamagedSecrets proves of rows with the right code that what they hold must
// make a secret, and that one that does not takes nothing else down.
func testDamagedSecrets(t *testing.T, driver keystore.Driver) {
	e := newEnvWith(t, driver, blindRows{})
	ctx := t.Context()
	tenant := e.tenant(t, "damaged")
	good := e.secret(t, tenant.ID, "good")
	db := driver.(Damager)
	sequence := 0
	try := func(t *testing.T, d Damage, of func(*kms.ProviderSecret) any) {
		t.Helper()
		sequence++
		s := e.secret(t, tenant.ID, fmt.Sprintf("bad-%d", sequence))
		d.KeyValue = of(s)
		if !db.Damage(t, d) {
			return // this database cannot be damaged so
		}
		_, err := newEnvWith(t, driver, blindRows{}).Secret(ctx, tenant.ID, s.ID)
		wantDamage(t, d.Table+"."+d.Column, err, keystore.ObjectProviderSecret)
	}
	byID := func(s *kms.ProviderSecret) any { return s.ID[:] }
	for column, values := range map[string][]any{
		"path": {null, blank, wrong, "a//b"}, "state": {null, blank, unknown, "DESTROYED", "PENDING_DELETION"},
		"document": {null, []byte{}, []byte("{"), []byte("{}"), []byte(`{"provider":"x","surprise":1}`), []byte("null"), wrong},
		"due":      {int64(1), unknown}, "revision": {null, zero, wrong},
	} {
		for i, value := range values {
			t.Run(fmt.Sprintf("secrets.%s/%d", column, i), func(t *testing.T) {
				try(t, Damage{Table: "secrets", Column: column, Value: value, Key: "id"}, byID)
			})
		}
	}
	for column, values := range map[string][]any{
		"number": {null, zero, int64(2), huge, wrong}, "data_key": {null, []byte{}, unknown}, "value": {null, []byte{}, unknown},
	} {
		for i, value := range values {
			t.Run(fmt.Sprintf("secret_versions.%s/%d", column, i), func(t *testing.T) {
				try(t, Damage{Table: "secret_versions", Column: column, Value: value, Key: "secret_id"}, byID)
			})
		}
	}
	lost := e.secret(t, tenant.ID, "lost")
	db.Delete(t, "secret_versions", "secret_id", lost.ID[:])
	_, err := newEnvWith(t, driver, blindRows{}).Secret(ctx, tenant.ID, lost.ID)
	wantDamage(t, "a secret without its value", err, keystore.ObjectProviderSecret)
	again := newEnvWith(t, driver, blindRows{})
	if got, err := again.SecretByPath(ctx, tenant.ID, "good"); err != nil || got.ID != good.ID {
		t.Errorf("the secret beside them: %+v, %v", got, err)
	}
	list, _, err := again.ListSecrets(ctx, tenant.ID, "good", kms.Page{Size: 100})
	if err != nil || len(list) != 1 {
		t.Errorf("the list: %d, %v", len(list), err)
	}
}
