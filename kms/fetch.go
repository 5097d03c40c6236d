package kms

import (
	"context"
	"log/slog"
	"strconv"
	"time"
	"uuid"
)

// FetchStatus says what became of one item of a fetch.
type FetchStatus string

// The statuses. A path that the caller may not read is FetchNotFound, whatever
// is there, unless the caller may list secrets.
const (
	FetchOK          FetchStatus = "ok"
	FetchUnchanged   FetchStatus = "unchanged"
	FetchNotFound    FetchStatus = "not_found"
	FetchDenied      FetchStatus = "denied"
	FetchDisabled    FetchStatus = "disabled" // there is no version to use
	FetchUnavailable FetchStatus = "unavailable"
)

// FetchStatuses returns the statuses. The caller must not change them.
func FetchStatuses() []FetchStatus {
	return []FetchStatus{FetchOK, FetchUnchanged, FetchNotFound, FetchDenied, FetchDisabled, FetchUnavailable}
}

// FetchItem asks for one secret.
type FetchItem struct {
	Path string
	Have uint64 // the revision that the caller has; 0: none
}

// FetchInput is the input of Service.FetchSecrets.
type FetchInput struct {
	Items []FetchItem // 1 to MaxFetchItems
	// MinRevision is what the caller knows of: the answer must not be older. 0:
	// any will do.
	MinRevision uint64
	// Narrow picks those of the versions that share the calls that the caller
	// wants; the others are neither opened nor recorded, and an item of which
	// none is left is FetchDisabled. It may change the list. nil: all.
	Narrow func(s *ProviderSecret, usable []*SecretVersion) []*SecretVersion
}

// Fetched is what became of one item.
type Fetched struct {
	Path   string
	Status FetchStatus
	Secret *ProviderSecret // nil: none is told of
	// Values are the versions that share the calls; with FetchOK only. Their
	// values belong to the caller, who wipes them.
	Values []FetchedValue
	// FreshUntil and LeaseEnd are set with FetchOK and FetchUnchanged.
	FreshUntil, LeaseEnd time.Time
	// RetryAfter is set with FetchUnavailable.
	RetryAfter time.Duration

	usable []*SecretVersion
}

// FetchedValue is the value of a version with its share of the calls.
type FetchedValue struct {
	Version, Weight uint32
	Value           []byte
}

const (
	// freshWait is how long a fetch waits for changes that its caller has heard
	// of and this process not yet: as long as they take at most.
	freshWait = time.Second
	// fetchRetry is when a value that no HSM could open may be asked for again.
	fetchRetry = time.Second
)

// errStaleReplica answers who knows of later changes than this process.
var errStaleReplica = &Error{Kind: KindStaleReplica, Detail: "this node does not know of that revision yet; ask another one", RetryAfter: freshWait}

// FetchSecrets returns the values of secrets, with the revision of the tenant as
// of which they are. Each item is decided on, and recorded, by itself; what the
// caller has already costs nothing. KindHSMUnavailable when nothing could be
// handed out because no HSM opened it.
func (s *Service) FetchSecrets(ctx context.Context, t *Ticket, in FetchInput) (list []Fetched, revision uint64, err error) {
	err = s.run(ctx, t, &task{op: OpFetchSecrets, allowed: reachesSecrets(OpFetchSecrets),
		prepare: func(t *Ticket) (err error) {
			if len(in.Items) == 0 || len(in.Items) > MaxFetchItems {
				return Errorf(KindInvalidArgument, "items: must be 1 to %d", MaxFetchItems)
			}
			for i := range in.Items {
				if !ValidSecretPath(in.Items[i].Path) {
					return errSecretPath("items")
				}
			}
			if revision, err = s.secretsAsOf(ctx, t.By.Tenant.ID, in.MinRevision); err != nil {
				return err
			}
			list, err = s.resolve(ctx, t, &in)
			return err
		},
		store: func(ctx context.Context, t *Ticket) error { return s.handOut(ctx, t, list) },
	})
	if err != nil {
		for i := range list {
			list[i].wipe()
		}
		return nil, 0, err
	}
	return list, revision, nil
}

// secretsAsOf returns the revision as of which this process knows a tenant's
// secrets: at least the wanted one.
func (s *Service) secretsAsOf(ctx context.Context, tenant uuid.UUID, want uint64) (uint64, error) {
	known, err := s.secrets.SecretsRevision(ctx, tenant)
	if err != nil || known >= want {
		return known, err
	}
	ctx, cancel := context.WithTimeout(ctx, freshWait)
	defer cancel()
	if known, err = s.secrets.AwaitSecretsRevision(ctx, tenant, want); err == nil && known < want {
		err = errStaleReplica
	}
	return known, err
}

// resolve decides on each item, and how many values are to be paid for.
func (s *Service) resolve(ctx context.Context, t *Ticket, in *FetchInput) ([]Fetched, error) {
	items := in.Items
	list := make([]Fetched, len(items))
	mayList := t.By.Allowed(OpListSecrets, nil)
	now := s.clock()
	for i := range items {
		f := &list[i]
		f.Path, f.Status = items[i].Path, FetchNotFound
		allowed := t.By.AllowedSecret(OpFetchSecrets, f.Path)
		if !allowed {
			t.Denied++
			if !mayList {
				continue
			}
		}
		secret, err := s.secrets.SecretByPath(ctx, t.By.Tenant.ID, f.Path)
		switch {
		case err != nil && KindOf(err) == KindNotFound:
			continue
		case err != nil:
			return nil, err
		case !allowed:
			f.Status = FetchDenied
			continue
		}
		f.Secret = secret
		f.decide(now, items[i].Have, in.Narrow)
		if f.Status == FetchOK {
			t.priced++
		}
	}
	return list, nil
}

// decide decides on an item whose secret may be read. A caller that has the
// secret's revision may still have a version that has expired since.
func (f *Fetched) decide(now time.Time, have uint64, narrow func(*ProviderSecret, []*SecretVersion) []*SecretVersion) {
	f.usable = f.Secret.usable(now)
	if narrow != nil && len(f.usable) > 0 {
		f.usable = narrow(f.Secret, f.usable)
	}
	if len(f.usable) == 0 {
		f.Status = FetchDisabled
		return
	}
	f.Status = FetchOK
	if have == f.Secret.Revision && len(f.usable) == f.Secret.shared() {
		f.Status = FetchUnchanged
	}
	f.FreshUntil, f.LeaseEnd = now.Add(f.Secret.Fresh), now.Add(f.Secret.Lease)
	for _, v := range f.usable {
		if !v.NotAfter.IsZero() && v.NotAfter.Before(f.LeaseEnd) {
			f.LeaseEnd = v.NotAfter
		}
	}
	if f.LeaseEnd.Before(f.FreshUntil) {
		f.FreshUntil = f.LeaseEnd
	}
}

// shared is how many versions share the calls, expired or not.
func (s *ProviderSecret) shared() (n int) {
	for _, v := range s.Versions {
		if v.State == SecretActive && v.Weight > 0 {
			n++
		}
	}
	return n
}

// handOut opens the values and notes what is handed out until when.
func (s *Service) handOut(ctx context.Context, t *Ticket, list []Fetched) error {
	t.Items = make([]EntryItem, len(list))
	var failed error
	served := false
	for i := range list {
		f := &list[i]
		if f.Status == FetchOK {
			if err := s.open(ctx, t, f); err != nil {
				failed = err
			}
		}
		item := EntryItem{Status: f.Status, LeaseEnd: f.LeaseEnd}
		if f.Secret != nil {
			item.Secret = f.Secret.ID
		}
		if !f.LeaseEnd.IsZero() {
			served = true
			for _, v := range f.usable {
				item.Versions = append(item.Versions, v.Number)
			}
		}
		t.Items[i] = item
	}
	if failed != nil && !served {
		return failed
	}
	return nil
}

// open opens the values of an item, all or none.
func (s *Service) open(ctx context.Context, t *Ticket, f *Fetched) error {
	for _, v := range f.usable {
		value, err := s.openSecretValue(ctx, t.By.Tenant, f.Secret, v)
		if err != nil {
			if KindOf(err) == KindInternal {
				s.log.LogAttrs(ctx, slog.LevelError, "a secret cannot be opened", slog.String("alarm", "secret_value"),
					slog.String("secret", f.Secret.ID.String()), slog.Uint64("version", uint64(v.Number)), slog.Any("error", err))
				s.tellDamaged(f.Secret, v)
			}
			f.wipe()
			f.Status, f.RetryAfter = FetchUnavailable, fetchRetry
			f.FreshUntil, f.LeaseEnd = time.Time{}, time.Time{}
			return err
		}
		f.Values = append(f.Values, FetchedValue{v.Number, v.Weight, value})
	}
	return nil
}

// tellDamaged tells the tenant of a value that does not open, once a day.
func (s *Service) tellDamaged(secret *ProviderSecret, v *SecretVersion) {
	number := strconv.FormatUint(uint64(v.Number), 10)
	s.events.Publish(Event{Type: EventSecretDamaged, Tenant: secret.Tenant,
		Once:   "secret-damaged/" + secret.ID.String() + "/" + number + "/" + s.clock().UTC().Format(time.DateOnly),
		Fields: []EventField{{"secret", secret.ID.String()}, {"path", secret.Path}, {"version", number}}})
}

func (f *Fetched) wipe() {
	for _, v := range f.Values {
		clear(v.Value)
	}
	f.Values = nil
}
