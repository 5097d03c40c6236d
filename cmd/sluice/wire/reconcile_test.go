package wire_test

import (
	"context"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// changedObjects drives one change of most kinds through REST and returns the
// service's journal of them.
func changedObjects(t *testing.T) (*wiretest.Service, string) {
	t.Helper()
	s := wiretest.StartTwoOperators(t, t.TempDir())
	do := func(credential, method, path string, body object) answer {
		t.Helper()
		status, a := call(t, s, credential, method, path, body)
		if status/100 != 2 {
			t.Fatalf("%s %s: %d %s: %s", method, path, status, a.Code, a.Detail)
		}
		return a
	}
	do(s.Operator, "POST", "/v1/tenants", object{"name": "reconciled", "allow_sealed": true, "tier": "platinum"})
	do(s.Operator, "PATCH", "/v1/tenants/reconciled", object{"tier": "silver"})
	do(s.Operator, "POST", "/v1/tenants/reconciled/projects", object{"name": "mail"})
	c := do(s.Operator, "POST", "/v1/tenants/reconciled/credentials",
		object{"name": "app", "scopes": []string{"key:*", "key:manage", "key:destroy"}})
	do(s.Operator, "POST", "/v1/tenants/reconciled/credentials/"+c.ID+"/rotate", object{})
	key := do(s.Demo, "POST", "/v1/keys", object{"name": "signed", "spec": "ECC_NIST_P256"})
	for _, step := range []struct{ method, path string }{
		{"POST", "/rotate"}, {"POST", "/disable"}, {"POST", "/enable"},
		{"POST", "/versions/1/disable"}, {"POST", "/versions/1/enable"},
	} {
		do(s.Demo, step.method, "/v1/keys/"+key.ID+step.path, object{})
	}
	do(s.Demo, "PUT", "/v1/aliases/moved", object{"key": "signed"})
	do(s.Operator, "POST", "/v1/tenants/reconciled/credentials/"+c.ID+"/revoke", object{})
	secret := do(s.Demo, "POST", "/v1/secrets", object{"path": "reconciled", "provider": "openai", "value": "sk-1"})
	for _, step := range []struct {
		path string
		body object
	}{
		{"/versions", object{"value": "sk-2"}}, {"/activate", object{"version": 2}}, {"/rollback", object{}}, {"/versions/2/disable", object{}},
	} {
		do(s.Demo, "POST", "/v1/secrets/"+secret.ID+step.path, step.body)
	}
	return s, s.Config.Journal.Dir
}

// What requests left in the journal before their change is enough to tell
// afterwards that it was made.
func TestAnIntentTellsThatItsChangeWasMade(t *testing.T) {
	s, journal := changedObjects(t)
	ctx := context.Background()
	made := map[uuid.UUID]bool{}
	var intents []*kms.Entry
	err := audit.Read(journal, 1, func(e *kms.Entry, _ audit.Position) error {
		switch {
		case e.Phase == kms.PhaseIntent:
			intents = append(intents, e)
		case e.Outcome == "ok":
			made[e.RequestID] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if open, err := audit.OpenIntents(ctx, journal); err != nil || len(open) != 0 {
		t.Errorf("%d intents are open after answers, %v", len(open), err)
	}
	ops := map[kms.Op]bool{}
	for _, e := range intents {
		if !made[e.RequestID] {
			continue
		}
		ops[e.Op] = true
		got := reconciled(t, s, e)
		if got != kms.OutcomeFoundDone && got != kms.OutcomeFoundChanged {
			t.Errorf("%s was made, and is %s", e.Op, got)
		}
	}
	if len(ops) < 12 {
		t.Fatalf("only %d kinds of changes were made: %v", len(ops), ops)
	}
}

// reconciled has the service close an intent and returns the outcome that the
// journal then has, of which it checks that it charges nothing.
func reconciled(t *testing.T, s *wiretest.Service, intent *kms.Entry) string {
	t.Helper()
	e := *intent
	e.RequestID = uuid.NewV7() // its own has an outcome already
	if n, err := s.App.Service.Reconcile(context.Background(), []*kms.Entry{&e}); n != 1 || err != nil {
		t.Fatalf("%s: closed %d, %v", e.Op, n, err)
	}
	outcome := ""
	err := audit.Read(s.Config.Journal.Dir, s.App.Journal.Head().Sequence, func(o *kms.Entry, _ audit.Position) error {
		if o.RequestID != e.RequestID || o.Phase != kms.PhaseOutcome || o.Op != e.Op || o.Charged != 0 || o.Settlement != kms.Cancelled {
			t.Errorf("%s is closed by %+v", e.Op, o)
		}
		outcome = o.Outcome
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

// What became of a change of an alias follows from its revision: where it leads
// would say of one that was set again as it was that it was made.
func TestAnIntentOfAnAliasIsClosedByItsRevision(t *testing.T) {
	s, _ := changedObjects(t)
	ctx := context.Background()
	demo, err := s.App.Store.TenantByRef(ctx, "demo")
	if err != nil {
		t.Fatal(err)
	}
	key, err := s.App.Store.Lookup(ctx, demo.ID, "moved")
	if err != nil {
		t.Fatal(err)
	}
	revision, err := s.App.Store.AliasRevision(ctx, demo.ID, "moved")
	if err != nil || revision < kms.FirstAliasRevision {
		t.Fatal(revision, err)
	}
	if err := s.App.Store.SetAlias(ctx, demo.ID, key.ID, "moved"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op       kms.Op
		key      uuid.UUID
		revision uint64
		want     string
	}{
		{kms.OpSetAlias, key.ID, revision + 1, kms.OutcomeFoundUndone},
		{kms.OpSetAlias, key.ID, revision, kms.OutcomeFoundDone},
		{kms.OpSetAlias, uuid.NewV7(), revision, kms.OutcomeFoundChanged},
		{kms.OpDeleteAlias, uuid.Nil(), revision + 1, kms.OutcomeFoundUndone},
		{kms.OpDeleteAlias, uuid.Nil(), revision, kms.OutcomeFoundChanged},
		// From before aliases had revisions: that of the key.
		{kms.OpSetAlias, key.ID, key.Revision, kms.OutcomeFoundDone},
	} {
		e := kms.Entry{Op: c.op, Phase: kms.PhaseIntent, Time: time.Now(), Tenant: demo.ID, Key: c.key, Resource: "moved", Revision: c.revision}
		if got := reconciled(t, s, &e); got != c.want {
			t.Errorf("%s behind revision %d is %s, want %s", c.op, c.revision, got, c.want)
		}
	}
}

// The table has every operation that changes something, so a new one cannot be
// forgotten: what its intent looks like when nothing came of it, and what it
// is called then.
func TestAnIntentOfAChangeThatWasNotMadeIsClosedAsUndone(t *testing.T) {
	s, _ := changedObjects(t)
	ctx := context.Background()
	tenant, err := s.App.Store.TenantByRef(ctx, "reconciled")
	if err != nil {
		t.Fatal(err)
	}
	demo, err := s.App.Store.TenantByRef(ctx, "demo")
	if err != nil {
		t.Fatal(err)
	}
	key, err := s.App.Store.Lookup(ctx, demo.ID, "signed")
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := s.App.Store.ListCredentials(ctx, tenant.ID, kms.Page{Size: 10})
	if err != nil || len(list) == 0 {
		t.Fatal(err, len(list))
	}
	credential := list[0]
	onKey := kms.Entry{Tenant: demo.ID, Key: key.ID, Revision: key.Revision}
	onTenant := kms.Entry{Tenant: s.App.System.ID, Target: tenant.ID, Resource: tenant.ID.String(), Revision: tenant.Revision}
	onCredential := kms.Entry{Tenant: s.App.System.ID, Target: tenant.ID, Resource: credential.ID.String(), Revision: credential.Revision}
	secret, err := s.App.Store.SecretByPath(ctx, demo.ID, "reconciled")
	if err != nil {
		t.Fatal(err)
	}
	onSecret := kms.Entry{Tenant: demo.ID, Resource: secret.ID.String(), Revision: secret.Revision}
	absent := uuid.NewV7()
	tested := map[kms.Op]bool{}
	for op, c := range map[kms.Op]struct {
		intent  kms.Entry
		outcome string // "": undone
	}{
		kms.OpCreateKey: {intent: kms.Entry{Tenant: demo.ID, Key: absent}},
		kms.OpImportKey: {intent: kms.Entry{Tenant: demo.ID, Key: absent}},
		kms.OpUpdateKey: {intent: onKey}, kms.OpRotateKey: {intent: onKey},
		kms.OpEnableKey: {intent: onKey}, kms.OpDisableKey: {intent: onKey},
		kms.OpDeleteKey: {intent: onKey}, kms.OpCancelDel: {intent: onKey},
		kms.OpEnableVersion: {intent: onKey}, kms.OpDisableVersion: {intent: onKey},
		kms.OpDestroyVersion: {intent: onKey}, kms.OpCancelDestroy: {intent: onKey},
		kms.OpSetAlias:      {intent: kms.Entry{Tenant: demo.ID, Key: key.ID, Resource: "never-set"}},
		kms.OpDeleteAlias:   {intent: kms.Entry{Tenant: demo.ID, Resource: "moved"}},
		kms.OpCreateWebhook: {intent: kms.Entry{Tenant: demo.ID, Resource: absent.String()}},
		// One that is gone was deleted, by whomever.
		kms.OpDeleteWebhook:    {intent: kms.Entry{Tenant: demo.ID, Resource: absent.String(), Revision: 1}, outcome: kms.OutcomeFoundDone},
		kms.OpLiftCost:         {intent: kms.Entry{Tenant: s.App.System.ID, Target: tenant.ID}},
		kms.OpCreateTenant:     {intent: kms.Entry{Tenant: s.App.System.ID, Target: absent, Resource: absent.String()}},
		kms.OpUpdateTenant:     {intent: onTenant},
		kms.OpSuspendTenant:    {intent: onTenant},
		kms.OpResumeTenant:     {intent: onTenant},
		kms.OpDeleteTenant:     {intent: onTenant},
		kms.OpCreateProject:    {intent: kms.Entry{Tenant: s.App.System.ID, Target: tenant.ID, Resource: "absent"}},
		kms.OpCreateCredential: {intent: kms.Entry{Tenant: s.App.System.ID, Target: tenant.ID, Resource: absent.String()}},
		kms.OpRotateCredential: {intent: onCredential}, kms.OpRevokeCredential: {intent: onCredential},
		kms.OpClearCredential: {intent: onCredential}, kms.OpEnrolCode: {intent: onCredential},
		kms.OpProveCredential: {intent: onCredential}, kms.OpKeeperFlag: {intent: onCredential},
		kms.OpGiveSecretGrant: {intent: onCredential}, kms.OpTakeSecretGrant: {intent: onCredential},
		// An approval that is gone has expired, and tells nothing.
		kms.OpSetNodeMode:  {intent: kms.Entry{Tenant: s.App.System.ID, Resource: "node-1"}},
		kms.OpPutPolicy:    {intent: kms.Entry{Tenant: s.App.System.ID, Resource: "1"}},
		kms.OpApprove:      {intent: kms.Entry{Tenant: s.App.System.ID, Approval: absent}, outcome: kms.OutcomeFoundUnknown},
		kms.OpKeeperRotate: {intent: onKey}, kms.OpKeeperDestroy: {intent: onKey},
		kms.OpKeeperRevoke: {intent: onCredential},
		kms.OpRewrapTenant: {intent: onTenant},
		// How far they came nobody can say; repeating them does the rest.
		kms.OpRewrapKeys:   {intent: onTenant, outcome: kms.OutcomeFoundUnknown},
		kms.OpRetireRoots:  {intent: kms.Entry{Tenant: s.App.System.ID}, outcome: kms.OutcomeFoundUnknown},
		kms.OpInitDomain:   {outcome: kms.OutcomeFoundUnknown},
		kms.OpJoinDomain:   {outcome: kms.OutcomeFoundUnknown},
		kms.OpReplaceRoots: {outcome: kms.OutcomeFoundUnknown},
		kms.OpGiveRoots:    {outcome: kms.OutcomeFoundUnknown},
		kms.OpRestore:      {intent: kms.Entry{Tenant: s.App.System.ID}, outcome: kms.OutcomeFoundUnknown},
		kms.OpKeeperErase:  {intent: onTenant}, kms.OpKeeperShred: {intent: onTenant},
		kms.OpCreateSecret: {intent: kms.Entry{Tenant: demo.ID, Resource: absent.String()}},
		kms.OpUpdateSecret: {intent: onSecret}, kms.OpDeleteSecret: {intent: onSecret}, kms.OpAddSecretVersion: {intent: onSecret},
		kms.OpActivateSecret: {intent: onSecret}, kms.OpRollbackSecret: {intent: onSecret}, kms.OpDisableSecret: {intent: onSecret},
		kms.OpDestroySecret: {intent: onSecret}, kms.OpRestoreSecret: {intent: onSecret},
		kms.OpKeeperAdvanceSecret: {intent: onSecret}, kms.OpKeeperRollbackSecret: {intent: onSecret}, kms.OpKeeperDestroySecret: {intent: onSecret},
		kms.OpPutRoute: {intent: kms.Entry{Tenant: demo.ID, Resource: "never-put"}},
		// One that is gone was deleted, by whomever.
		kms.OpDeleteRoute: {intent: kms.Entry{Tenant: demo.ID, Resource: "never-put", Revision: 1}, outcome: kms.OutcomeFoundDone},
		kms.OpCreateJob:   {intent: kms.Entry{Tenant: demo.ID, Resource: absent.String()}},
		// Of one that is gone nobody knows whether it was cancelled before.
		kms.OpCancelJob: {intent: kms.Entry{Tenant: demo.ID, Resource: absent.String(), Revision: 2}, outcome: kms.OutcomeFoundUnknown},
		kms.OpDeleteJob: {intent: kms.Entry{Tenant: demo.ID, Resource: absent.String(), Revision: 3}, outcome: kms.OutcomeFoundDone},
		// Some of the credentials may have been changed.
		kms.OpSetSecretGrants: {intent: onSecret, outcome: kms.OutcomeFoundUnknown},
	} {
		c.intent.Op, c.intent.Phase, c.intent.Time = op, kms.PhaseIntent, time.Now()
		want := c.outcome
		if want == "" {
			want = kms.OutcomeFoundUndone
		}
		if got := reconciled(t, s, &c.intent); got != want {
			t.Errorf("%s that was not made is %s, want %s", op, got, want)
		}
		// And of an object that is gone altogether nobody can say.
		gone := c.intent
		gone.Key, gone.Resource, gone.Revision = absent, absent.String(), 7
		if op.Info().PerKey && op != kms.OpSetAlias && op != kms.OpKeeperDestroy {
			if got := reconciled(t, s, &gone); got != kms.OutcomeFoundUnknown {
				t.Errorf("%s of a missing object is %s", op, got)
			}
		}
		tested[op] = true
	}
	for _, info := range kms.Ops() {
		if info.Changes && !tested[info.Op] {
			t.Errorf("%s changes something and is not in this table", info.Op)
		}
	}
}
