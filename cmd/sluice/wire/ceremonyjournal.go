package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"
	"path/filepath"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// ceremonyNode writes the journals of ceremonies.
const ceremonyNode = "ceremony"

// ceremonyLog records what is done about a domain's roots by people with the
// tokens at hand: before there is a service, or beside it. What it cannot record
// is not done.
type ceremonyLog struct {
	journal *audit.Log
	entry   kms.Entry // of the act as a whole
}

// recorded has act done with a journal of it: its intent before, its outcome
// after. known is the domain, nil when it is to be made; act returns it as it
// is then.
func (c *Ceremony) recorded(ctx context.Context, op kms.Op, known *hsm.Domain, act func(*ceremonyLog) (*hsm.Domain, error)) (err error) {
	l, err := c.openJournal(ctx)
	if err != nil {
		return fmt.Errorf("the ceremony's journal: %w", err)
	}
	defer func() { err = errors.Join(err, l.journal.Close()) }()
	l.entry = kms.Entry{
		Time: time.Now(), RequestID: uuid.NewV7(), Op: op, Component: ceremonyNode, Subject: operator(),
		Settlement: kms.Cancelled, Resource: c.Name,
	}
	l.about(known)
	if err := l.record(ctx, l.entry, kms.PhaseIntent, nil); err != nil {
		return err
	}
	domain, err := act(l)
	l.about(domain)
	// Canceled or not, what was done is recorded.
	return cmp.Or(err, l.record(context.WithoutCancel(ctx), l.entry, kms.PhaseOutcome, err))
}

// openJournal opens the journal, and closes the intents of an act that was
// interrupted: how far it came, the tokens show when it is repeated.
func (c *Ceremony) openJournal(ctx context.Context) (*ceremonyLog, error) {
	journal, err := audit.Open(ctx, audit.Config{Dir: c.Journal, Node: ceremonyNode})
	if err != nil {
		return nil, err
	}
	l := &ceremonyLog{journal: journal}
	open, err := audit.OpenIntents(ctx, c.Journal)
	for _, intent := range open {
		intent.Outcome = kms.OutcomeFoundUnknown
		err = cmp.Or(err, l.record(ctx, *intent, kms.PhaseOutcome, nil))
	}
	if err != nil {
		return nil, errors.Join(err, journal.Close())
	}
	return l, nil
}

// operator is who works at the machine, as its operating system knows him.
func operator() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// about notes the domain and the newest generation of its roots.
func (l *ceremonyLog) about(domain *hsm.Domain) {
	if domain != nil {
		l.entry.Resource, l.entry.Version = domain.ID.String(), domain.Generation
	}
}

// record records a phase. The total of an outcome counts from the intent.
func (l *ceremonyLog) record(ctx context.Context, e kms.Entry, phase kms.Phase, failed error) error {
	now := time.Now()
	if phase == kms.PhaseOutcome {
		e.Total, e.Outcome = max(now.Sub(e.Time), 0), cmp.Or(e.Outcome, outcomeOf(failed))
	}
	e.Phase, e.Time = phase, now
	if err := l.journal.Record(ctx, &e); err != nil {
		return fmt.Errorf("the journal cannot record what is done, so it is not done: %w", err)
	}
	return nil
}

func outcomeOf(err error) string {
	if err == nil {
		return "ok"
	}
	return kms.KindOf(err).String()
}

// confirm has people compare a token's fingerprint, and records what they said
// before a root goes to the token.
func (l *ceremonyLog) confirm(ctx context.Context, ask func(token, fingerprint string) error) func(token, fingerprint string) error {
	return func(token, fingerprint string) error {
		err := ask(token, fingerprint)
		said := error(nil)
		if err != nil {
			said = kms.Errorf(kms.KindPermissionDenied, "not confirmed")
		}
		return cmp.Or(l.token(ctx, kms.OpGiveRoots, token, fingerprint, said), err)
	}
}

// token records what was done with one token; key is the fingerprint of its
// transport key, "" where none plays a part.
func (l *ceremonyLog) token(ctx context.Context, op kms.Op, token, key string, failed error) error {
	e := l.entry
	e.Op, e.Node, e.KeyName = op, kms.NodeID(token), key
	return l.record(ctx, e, kms.PhaseOutcome, failed)
}

// journalOf is where the journal is unless the ceremony file says otherwise:
// beside the domain's description.
func journalOf(file string) string {
	return strings.TrimSuffix(file, filepath.Ext(file)) + ".journal"
}
