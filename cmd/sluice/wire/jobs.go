package wire

import (
	"context"
	"io"
	"uuid"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

// jobShare is the part of the tokens' slots that items of jobs take up at most: a
// quarter, so that who waits finds one free.
const jobShare = 4

// startJobs begins to run chunks of jobs, whose items are calls of the API.
func (a *App) startJobs(server *api.Server) {
	slots := 0
	for _, d := range a.config.HSM.Domains {
		for _, t := range d.Tokens {
			slots += t.Slots
		}
	}
	runner := a.Service.StartJobs(kms.JobConfig{Node: a.config.Node, Items: server, Journal: ownJournal{a}, Parallel: slots / jobShare})
	a.closes = append(a.closes, runner.Close)
}

// ownJournal is this node's journal as jobs read it.
type ownJournal struct{ app *App }

// Position implements kms.JobJournal.
func (j ownJournal) Position() uint64 { return j.app.Journal.Head().Sequence }

// Since implements kms.JobJournal.
func (j ownJournal) Since(ctx context.Context, position uint64, fn func(request uuid.UUID) error) error {
	last := j.Position() // what comes behind it can still be withdrawn
	err := audit.Read(j.app.config.Journal.Dir, position+1, func(e *kms.Entry, p audit.Position) error {
		switch {
		case p.Sequence > last:
			return io.EOF
		case ctx.Err() != nil:
			return ctx.Err()
		case e.Phase != kms.PhaseOutcome:
			return nil
		}
		return fn(e.RequestID)
	}, soft.NewSM3)
	if err == io.EOF {
		return nil
	}
	return err
}
