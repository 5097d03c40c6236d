package p11

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-kms/sluice/hsm"
)

// Replace gives the domain of cfg.Domain a further generation of both roots and
// returns its new description, which names the generation before among the
// earlier ones. The roots are made and moved as in Ceremony: generated on a
// backup token, given to every other backup and member after Confirm, and
// compared everywhere. Those of the generations before stay as they are.
//
// All of the domain's tokens should take part: one that does not is refused
// with the new description until it joined. Interrupted, it can be repeated:
// new roots that are there are verified and kept. A domain whose last
// replacement is not complete, since roots of an earlier generation exist
// still, is refused with ClassRequest.
func Replace(ctx context.Context, cfg CeremonyConfig) (*hsm.Domain, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	switch {
	case cfg.Domain == nil:
		return nil, driverError(hsm.ClassRequest, "replace roots", "the domain has no description")
	case len(cfg.Domain.Earlier) > 0:
		return nil, driverError(hsm.ClassRequest, "replace roots",
			fmt.Sprintf("the roots of generation %d are not retired yet", cfg.Domain.Oldest()))
	}
	c := &ceremony{cfg: cfg, replace: true}
	domain, err := c.make(ctx)
	if err != nil {
		return nil, fmt.Errorf("replace roots: %w", err)
	}
	return domain, nil
}

// Retire destroys the roots of an earlier generation on all tokens of cfg,
// verifies that they are gone, and returns the description without them. It
// begins when every token has shown that it holds the newest roots, members
// first. Nothing can bring the roots back.
//
// Tokens that do not hold the generation are left as they are, so that it can
// be repeated. What tokens hold that do not take part is their owner's to see
// to: VerifyBackup tells.
func Retire(ctx context.Context, cfg CeremonyConfig, generation uint32) (*hsm.Domain, error) {
	switch {
	case cfg.Domain == nil:
		return nil, driverError(hsm.ClassRequest, "retire roots", "the domain has no description")
	case generation < 1 || generation >= cfg.Domain.Generation:
		return nil, driverError(hsm.ClassRequest, "retire roots",
			fmt.Sprintf("generation %d is not an earlier one than %d", generation, cfg.Domain.Generation))
	}
	r := &retirement{ceremony{cfg: cfg}, generation}
	if err := r.run(ctx); err != nil {
		return nil, fmt.Errorf("retire roots: %w", err)
	}
	domain := *cfg.Domain
	domain.Earlier = slices.DeleteFunc(slices.Clone(domain.Earlier), func(g hsm.Generation) bool { return g.Generation == generation })
	return &domain, nil
}

// retirement is the retirement of a generation under way.
type retirement struct {
	ceremony
	generation uint32
}

func (r *retirement) run(ctx context.Context) (err error) {
	defer func() {
		if cerr := r.close(); err == nil {
			err = cerr
		}
	}()
	// Members first: while a backup holds the roots, they can be given again.
	for i, t := range slices.Concat(r.cfg.Members, r.cfg.Backups) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.admit(t, i >= len(r.cfg.Members)); err != nil {
			return err
		}
	}
	newest := *r.cfg.Domain
	newest.Earlier = nil
	for _, p := range r.parties {
		p.ids = rootIDs(&newest)
		if err := p.verify(&newest); err != nil {
			return fmt.Errorf("token %s: %w", p, err)
		}
	}
	for _, p := range r.parties {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.destroy(p); err != nil {
			return fmt.Errorf("token %s: %w", p, err)
		}
	}
	return nil
}

// destroy destroys the generation's roots on a token and looks whether they are
// gone.
func (r *retirement) destroy(p *party) error {
	for _, kind := range rootKinds {
		id := rootID{r.cfg.Domain.ID, r.generation, kind}
		roots, err := p.conn.findRoots(kind)
		if err != nil {
			return err
		}
		for object, have := range roots {
			if have != id {
				continue
			}
			if err := p.conn.mod.ctx.DestroyObject(p.conn.session, object); err != nil {
				return moduleError("C_DestroyObject", err)
			}
			r.progress("destroyed the %s, on %s", id, p)
		}
		if held, err := p.conn.holds(id); err != nil || held {
			if err == nil {
				err = driverError(hsm.ClassAmbiguous, "C_DestroyObject", "the token holds the "+id.String()+" still")
			}
			return err
		}
	}
	return nil
}

// verify locates the roots of p.ids and compares their check values with the
// description's.
func (p *party) verify(domain *hsm.Domain) error {
	if err := p.locate(); err != nil {
		return err
	}
	checks := checksOf(domain)
	for _, id := range p.ids {
		if _, ok := p.roots[id]; !ok {
			return driverError(hsm.ClassRootGone, "check root", "the token does not hold the "+id.String())
		}
		value, err := p.checkValue(id)
		if err != nil {
			return err
		}
		if !slices.Equal(value, checks[id]) {
			return driverError(hsm.ClassRootGone, "check root", "the token holds another "+id.String())
		}
	}
	return nil
}
