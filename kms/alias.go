package kms

import "context"

// SetAlias makes alias a further name of a key, moving it from another key if
// it was that one's; so a client keeps its reference while the key behind it
// changes. Moving takes the right to update both keys. An alias that is refused,
// because its row is damaged or an old one, is set anew by who may update all keys.
func (s *Service) SetAlias(ctx context.Context, t *Ticket, ref, alias string) error {
	return s.run(ctx, t, &task{op: OpSetAlias, ref: ref,
		prepare: func(t *Ticket) error {
			if !ValidName(alias) {
				return errName("alias")
			}
			t.Resource = alias
			if !t.By.mayName(alias) {
				return ErrPermissionDenied
			}
			if err := s.mayMoveAlias(ctx, t, alias); err != nil {
				return err
			}
			return s.noteAlias(ctx, t, alias)
		},
		store: func(ctx context.Context, t *Ticket) error {
			return s.aliases.SetAlias(ctx, t.By.Tenant.ID, t.Key.ID, alias)
		}})
}

// DeleteAlias takes an alias away; the key stays.
func (s *Service) DeleteAlias(ctx context.Context, t *Ticket, alias string) error {
	return s.run(ctx, t, &task{op: OpDeleteAlias,
		prepare: func(t *Ticket) error {
			if !ValidName(alias) {
				return errName("alias")
			}
			t.Resource = alias
			holder, err := s.lookup(ctx, t.By, alias)
			if err != nil {
				return err
			}
			if holder.Name == alias {
				return ErrNotFound // a name is no alias
			}
			if !t.By.Allowed(OpSetAlias, holder) {
				return ErrPermissionDenied
			}
			return s.noteAlias(ctx, t, alias)
		},
		store: func(ctx context.Context, t *Ticket) error {
			return s.aliases.DeleteAlias(ctx, t.By.Tenant.ID, alias)
		}})
}

// noteAlias puts the revision before a change into the ticket.
func (s *Service) noteAlias(ctx context.Context, t *Ticket, alias string) (err error) {
	t.Revision, err = s.aliases.AliasRevision(ctx, t.By.Tenant.ID, alias)
	return err
}

// mayMoveAlias checks the key that has the alias now, if any.
func (s *Service) mayMoveAlias(ctx context.Context, t *Ticket, alias string) error {
	holder, err := s.keys.Lookup(ctx, t.By.Tenant.ID, alias)
	switch {
	case KindOf(err) == KindNotFound && err != nil:
		return nil
	case KindOf(err) == KindInternal && err != nil && t.By.Sees("") && t.By.Allowed(OpSetAlias, nil):
		return nil // whoever's it was
	case err != nil:
		return err
	case holder.Name == alias:
		return Errorf(KindConflict, "a key has that name")
	case holder.ID == t.Key.ID:
		return nil
	case !t.By.Sees(holder.Project) || !t.By.Allowed(OpSetAlias, holder):
		return Errorf(KindConflict, "the alias belongs to another key")
	}
	return nil
}

// ListAliases returns a page of the tenant's aliases that the principal may
// see.
func (s *Service) ListAliases(ctx context.Context, t *Ticket, page Page) ([]Alias, string, error) {
	var list []Alias
	var next string
	err := s.run(ctx, t, &task{op: OpListAliases,
		prepare: func(*Ticket) error { return checkPage(page) },
		store: func(ctx context.Context, t *Ticket) error {
			all, token, err := s.aliases.ListAliases(ctx, t.By.Tenant.ID, page)
			if err != nil {
				return err
			}
			next = token
			for _, a := range all {
				if key, err := s.keys.Lookup(ctx, t.By.Tenant.ID, a.Key.String()); err == nil && t.By.Sees(key.Project) {
					list = append(list, a)
				}
			}
			return nil
		}})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}
