package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func sampleWebhook(tenant uuid.UUID) *kms.Webhook {
	return &kms.Webhook{ID: uuid.NewV7(), Tenant: tenant, URL: "https://hooks.example.com/sluice",
		Types: []kms.EventType{kms.EventDaySoft}, Secret: []byte("sealed secret"), State: kms.WebhookActive, Created: start, Revision: 1}
}

func (e *env) webhook(t testing.TB, tenant uuid.UUID) *kms.Webhook {
	t.Helper()
	w := sampleWebhook(tenant)
	if err := e.CreateWebhook(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	return w
}

// sampleDelivery makes a delivery to a webhook; once "": its event's own.
func sampleDelivery(w *kms.Webhook, once string) kms.Delivery {
	d := kms.Delivery{Tenant: w.Tenant, Webhook: w.ID, Event: uuid.NewV7(), Once: once, Type: kms.EventDaySoft,
		Body: []byte(`{"type":"quota.day_soft_limit"}`), Created: start}
	if once == "" {
		d.Once = d.Event.String()
	}
	return d
}

func (e *env) enqueue(t testing.TB, list ...kms.Delivery) (dropped int) {
	t.Helper()
	for _, d := range list {
		n, err := e.Enqueue(t.Context(), d.Tenant, []kms.Delivery{d})
		if err != nil {
			t.Fatal(err)
		}
		dropped += n
	}
	return dropped
}

func testWebhooks(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant := e.tenant(t, "acme")

	t.Run("KeptDisabledAndDeleted", func(t *testing.T) {
		want := e.webhook(t, tenant.ID)
		all := sampleWebhook(tenant.ID)
		all.Types = nil
		if err := e.CreateWebhook(ctx, all); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*kms.Webhook{want, all} {
			if got, err := e.Webhook(ctx, tenant.ID, w.ID); err != nil || !reflect.DeepEqual(got, w) {
				t.Errorf("Webhook = %+v, %v; want %+v", got, err, w)
			}
		}
		wantKind(t, "an id that is taken", e.CreateWebhook(ctx, want), kms.KindConflict)
		wantKind(t, "another revision", e.DisableWebhook(ctx, tenant.ID, want.ID, 2), kms.KindPreconditionFailed)
		if err := e.DisableWebhook(ctx, tenant.ID, want.ID, 1); err != nil {
			t.Fatal(err)
		}
		want.State, want.Revision = kms.WebhookDisabled, 2
		if got, err := e.Webhook(ctx, tenant.ID, want.ID); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("disabled: %+v, %v", got, err)
		}
		e.enqueue(t, sampleDelivery(want, ""))
		if err := e.DeleteWebhook(ctx, tenant.ID, want.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Webhook(ctx, tenant.ID, want.ID); err != kms.ErrNotFound {
			t.Errorf("deleted: %v", err)
		}
		if list, err := e.ClaimDeliveries(ctx, time.Minute, nil, 10); err != nil || len(list) != 0 {
			t.Errorf("what waited for it: %v, %v", list, err)
		}
	})
	t.Run("NotesOfDeliveries", func(t *testing.T) {
		w := e.webhook(t, tenant.ID)
		note := func(taken bool, failing, delivered time.Time) {
			t.Helper()
			if err := e.NoteDelivery(ctx, tenant.ID, w.ID, taken); err != nil {
				t.Fatal(err)
			}
			got, err := e.Webhook(ctx, tenant.ID, w.ID)
			if err != nil || !got.FailingSince.Equal(failing) || !got.Delivered.Equal(delivered) {
				t.Errorf("%+v, %v; want failing since %v, delivered %v", got, err, failing, delivered)
			}
		}
		first := e.clock()
		note(false, first, time.Time{})
		e.advance(time.Hour)
		note(false, first, time.Time{})
		note(true, time.Time{}, e.clock())
		if err := e.NoteDelivery(ctx, tenant.ID, uuid.NewV7(), false); err != nil {
			t.Errorf("of a webhook that is gone: %v", err)
		}
	})
	t.Run("ListIsInTheOrderOfIDsAndBounded", func(t *testing.T) {
		other := e.tenant(t, "full")
		var want []string
		for range kms.MaxWebhooks {
			want = append(want, e.webhook(t, other.ID).ID.String())
		}
		wantKind(t, "one more", e.CreateWebhook(ctx, sampleWebhook(other.ID)), kms.KindConflict)
		slices.Sort(want)
		for _, size := range []int{1, 7, 100} {
			checkPages(t, size, want, func(p kms.Page) ([]string, string, error) {
				list, next, err := e.ListWebhooks(ctx, other.ID, p)
				return namesOf(list, func(w *kms.Webhook) string { return w.ID.String() }), next, err
			})
		}
	})
	t.Run("UnusableWebhooksAreRefused", func(t *testing.T) {
		for name, spoil := range map[string]func(*kms.Webhook){
			"id":       func(w *kms.Webhook) { w.ID = uuid.Nil() },
			"tenant":   func(w *kms.Webhook) { w.Tenant = uuid.Nil() },
			"url":      func(w *kms.Webhook) { w.URL = "" },
			"long url": func(w *kms.Webhook) { w.URL = string(make([]byte, kms.MaxWebhookURL+1)) },
			"type":     func(w *kms.Webhook) { w.Types = []kms.EventType{""} },
			"secret":   func(w *kms.Webhook) { w.Secret = nil },
			"state":    func(w *kms.Webhook) { w.State = "PARTY" },
			"no date":  func(w *kms.Webhook) { w.Created = time.Time{} },
			"revision": func(w *kms.Webhook) { w.Revision = 2 },
		} {
			w := sampleWebhook(tenant.ID)
			spoil(w)
			wantKind(t, name, e.CreateWebhook(ctx, w), kms.KindInvalidArgument)
		}
	})
}

func testDeliveries(t *testing.T, open func(*testing.T) keystore.Driver) {
	claim := func(t *testing.T, e *env, busy ...uuid.UUID) []kms.Delivery {
		t.Helper()
		list, err := e.ClaimDeliveries(t.Context(), time.Minute, busy, 100)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	t.Run("LeasedRetriedAndEnded", func(t *testing.T) {
		e := newEnv(t, open(t))
		ctx := t.Context()
		w := e.webhook(t, e.tenant(t, "acme").ID)
		want := sampleDelivery(w, "")
		e.enqueue(t, want)
		want.Attempts = 1
		if list := claim(t, e); len(list) != 1 || !reflect.DeepEqual(list[0], want) {
			t.Fatalf("claimed %+v, want %+v", list, want)
		}
		if list := claim(t, e); len(list) != 0 {
			t.Errorf("claimed twice: %+v", list)
		}
		e.advance(time.Minute)
		if list := claim(t, e); len(list) != 1 || list[0].Attempts != 2 {
			t.Errorf("after a sender that died: %+v", list)
		}
		if err := e.RetryDelivery(ctx, &want, e.clock().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		e.advance(time.Hour - time.Microsecond)
		if list := claim(t, e); len(list) != 0 {
			t.Errorf("before it is due again: %+v", list)
		}
		e.advance(time.Microsecond)
		if list := claim(t, e); len(list) != 1 {
			t.Errorf("when it is due again: %+v", list)
		}
		if err := e.EndDelivery(ctx, &want); err != nil {
			t.Fatal(err)
		}
		e.advance(24 * time.Hour)
		if list := claim(t, e); len(list) != 0 {
			t.Errorf("after its end: %+v", list)
		}
	})
	t.Run("OnceIsOnceEvenAfterItsEnd", func(t *testing.T) {
		e := newEnv(t, open(t))
		ctx := t.Context()
		tenant := e.tenant(t, "acme")
		one, other := e.webhook(t, tenant.ID), e.webhook(t, tenant.ID)
		first := sampleDelivery(one, "quota/20260301")
		e.enqueue(t, first, sampleDelivery(one, "quota/20260301"), sampleDelivery(other, "quota/20260301"))
		if list := claim(t, e); len(list) != 2 || list[0].Webhook == list[1].Webhook {
			t.Errorf("claimed %+v", list)
		}
		if err := e.EndDelivery(ctx, &first); err != nil {
			t.Fatal(err)
		}
		e.enqueue(t, sampleDelivery(one, "quota/20260301"))
		if list := claim(t, e); len(list) != 0 {
			t.Errorf("what ended is sent again: %+v", list)
		}
		purged := func() int {
			n, err := e.driver.DeleteEndedDeliveries(ctx, keystore.DeleteEndedDeliveriesParams{
				Before: e.clock().Add(-kms.DeliveriesKept).UnixMicro(), Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := purged(); n != 0 {
			t.Errorf("%d forgotten at once", n)
		}
		e.advance(kms.DeliveriesKept)
		if n := purged(); n != 1 {
			t.Errorf("%d forgotten, want the one that ended", n)
		}
	})
	t.Run("OneOfAWebhookAndFewOfATenantAtOnce", func(t *testing.T) {
		e := newEnv(t, open(t))
		big, small := e.tenant(t, "big"), e.tenant(t, "small")
		for range 5 {
			w := e.webhook(t, big.ID)
			e.enqueue(t, sampleDelivery(w, ""), sampleDelivery(w, ""))
		}
		w := e.webhook(t, small.ID)
		e.enqueue(t, sampleDelivery(w, ""), sampleDelivery(w, ""))
		of := map[uuid.UUID]int{}
		webhooks := map[uuid.UUID]int{}
		for _, d := range claim(t, e) {
			of[d.Tenant]++
			webhooks[d.Webhook]++
		}
		if of[big.ID] != kms.MaxClaims || of[small.ID] != 1 || len(webhooks) != kms.MaxClaims+1 {
			t.Errorf("%v of tenants, %v of webhooks", of, webhooks)
		}
		if list := claim(t, e, big.ID); len(list) != 1 || list[0].Tenant != small.ID {
			t.Errorf("beside a busy tenant: %+v", list)
		}
	})
	t.Run("TheOldestAreDroppedFromAFullQueue", func(t *testing.T) {
		e := newEnv(t, open(t))
		w := e.webhook(t, e.tenant(t, "acme").ID)
		var params []keystore.InsertDeliveriesParams
		for i := range 7 {
			d := sampleDelivery(w, fmt.Sprint("event-", i))
			params = append(params, keystore.InsertDeliveriesParams{Tenant: d.Tenant, Keep: 5, Deliveries: []keystore.DeliveryRecord{{Tenant: d.Tenant, Webhook: d.Webhook,
				Event: d.Event, Once: d.Once, Type: string(d.Type), Body: d.Body, Created: start.Add(time.Duration(i) * time.Second).UnixMicro()}}})
		}
		dropped := 0
		for _, p := range params {
			n, err := e.driver.InsertDeliveries(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			dropped += n
		}
		left := map[string]bool{}
		for range 10 {
			e.advance(time.Second)
			rows, err := e.driver.ClaimDeliveries(t.Context(), keystore.ClaimDeliveriesParams{
				Now: e.clock().UnixMicro(), Until: e.clock().Add(time.Hour).UnixMicro(), OfTenant: 10, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				left[r.Once.String] = true
			}
		}
		if dropped != 2 || len(left) != 5 || left["event-0"] || left["event-1"] {
			t.Errorf("%d dropped, %v left", dropped, left)
		}
	})
	t.Run("ManySendersClaimEachOnce", func(t *testing.T) {
		e := newEnv(t, open(t))
		const tenants = 40
		for i := range tenants {
			e.enqueue(t, sampleDelivery(e.webhook(t, e.tenant(t, fmt.Sprint("tenant-", i)).ID), ""))
		}
		other := newEnv(t, e.driver)
		var mu sync.Mutex
		claimed := map[uuid.UUID]int{}
		var all sync.WaitGroup
		for i := range 8 {
			store := []*env{e, other}[i%2]
			all.Go(func() {
				for range 20 {
					list, err := store.ClaimDeliveries(t.Context(), time.Minute, nil, 3)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					for _, d := range list {
						claimed[d.Event]++
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for event, n := range claimed {
			if n != 1 {
				t.Errorf("%s was claimed %d times", event, n)
			}
		}
		if len(claimed) != tenants {
			t.Errorf("%d of %d were claimed", len(claimed), tenants)
		}
	})
	t.Run("AnotherTenantsWebhookGetsNothing", func(t *testing.T) {
		e := newEnv(t, open(t))
		ctx := t.Context()
		owner, intruder := e.tenant(t, "owner"), e.tenant(t, "intruder")
		w := e.webhook(t, owner.ID)
		forged := sampleDelivery(w, "")
		if _, err := e.Enqueue(ctx, intruder.ID, []kms.Delivery{forged}); kms.KindOf(err) != kms.KindInvalidArgument {
			t.Errorf("as the owner: %v", err)
		}
		forged.Tenant = intruder.ID
		e.enqueue(t, forged)
		if err := e.NoteDelivery(ctx, intruder.ID, w.ID, false); err != nil {
			t.Error(err)
		}
		if got, err := e.Webhook(ctx, owner.ID, w.ID); err != nil || !got.FailingSince.IsZero() {
			t.Errorf("noted: %+v, %v", got, err)
		}
		if list := claim(t, e); len(list) != 0 {
			t.Errorf("queued: %+v", list)
		}
	})
	t.Run("AnotherTenantsDeliveryStays", func(t *testing.T) {
		e := newEnv(t, open(t))
		ctx := t.Context()
		d := sampleDelivery(e.webhook(t, e.tenant(t, "owner").ID), "")
		e.enqueue(t, d)
		foreign := d
		foreign.Tenant = e.tenant(t, "intruder").ID
		if err := errors.Join(e.RetryDelivery(ctx, &foreign, start.Add(time.Hour)), e.EndDelivery(ctx, &foreign)); err != nil {
			t.Error(err)
		}
		if list := claim(t, e); len(list) != 1 {
			t.Errorf("claimed %+v", list)
		}
	})
	t.Run("TamperedDeliveriesAreNotHandedOut", func(t *testing.T) {
		driver := open(t)
		e := newEnv(t, driver)
		tenant, rival := e.tenant(t, "acme"), e.tenant(t, "rival")
		w, theirs := e.webhook(t, tenant.ID), e.webhook(t, rival.ID)
		id := uuid.NewV7()
		for column, values := range map[string][]any{
			"event": {id[:]}, "once": {"another", blank}, "type": {string(kms.EventMonthSoft), blank},
			"body": {[]byte(`{"type":"node.down"}`), []byte{}}, "created": {start.Add(time.Second).UnixMicro()},
			"attempts": {null}, "webhook": {theirs.ID[:]}, "tenant": {rival.ID[:]},
			"mac": {null, make([]byte, 32)}, "mac_version": {null, zero, int64(1), int64(9)},
		} {
			for _, value := range values {
				d := sampleDelivery(w, "")
				e.enqueue(t, d)
				db := driver.(Damager)
				if db.Damage(t, Damage{Table: "deliveries", Column: column, Value: value, Key: "event", KeyValue: d.Event[:]}) {
					if list := claim(t, e); len(list) != 0 {
						t.Errorf("%s is %v: handed out %+v", column, value, list)
					}
				}
				event := d.Event[:]
				if column == "event" {
					event = id[:]
				}
				db.Delete(t, "deliveries", "event", event)
			}
		}
	})
}
