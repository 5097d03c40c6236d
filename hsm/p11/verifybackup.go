package p11

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-kms/sluice/hsm"
)

// BackupReport is what VerifyBackup found.
type BackupReport struct {
	Label, Serial string // of the token, when it could be opened
	// Generations are those of the domain's roots that the token holds, in
	// ascending order.
	Generations []uint32
}

// VerifyBackup opens a backup token and verifies that it holds the roots of
// every generation of the domain, by their check values, that they can be moved
// to further tokens, under trusted keys only, and used for nothing but to wrap,
// and that there are no others, such as those of a retired generation. It
// changes nothing. The report says what it found, also with an error.
func VerifyBackup(t CeremonyToken, domain *hsm.Domain) (r BackupReport, err error) {
	conn, err := connect(t.place(), 0)
	if err != nil {
		return r, fmt.Errorf("open token: %w", err)
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	r.Label, r.Serial = conn.token.Label, conn.token.SerialNumber
	p := &party{cfg: t, backup: true, conn: conn, ids: rootIDs(domain)}
	if p.session, err = conn.newSession(); err != nil {
		return r, err
	}
	defer p.session.Close()
	if p.wrapping, err = p.session.wrapMechanism(); err != nil {
		return r, err
	}
	unknown, err := p.survey(&r, domain)
	if err != nil {
		return r, err
	}
	return r, errors.Join(p.verify(domain), unknown)
}

// survey lists the generations that the token holds, and tells of roots that
// the description does not.
func (p *party) survey(r *BackupReport, domain *hsm.Domain) (unknown, err error) {
	for _, kind := range rootKinds {
		roots, err := p.conn.findRoots(kind)
		if err != nil {
			return nil, err
		}
		for _, id := range roots {
			switch {
			case id.domain != domain.ID:
				unknown = errors.Join(unknown, driverError(hsm.ClassRootGone, "check root", "the token holds a root of another domain"))
				continue
			case !slices.Contains(p.ids, id):
				unknown = errors.Join(unknown, driverError(hsm.ClassRootGone, "check root",
					fmt.Sprintf("the token holds the %s, which the description does not name", id)))
			}
			if !slices.Contains(r.Generations, id.generation) {
				r.Generations = append(r.Generations, id.generation)
			}
		}
	}
	slices.Sort(r.Generations)
	return unknown, nil
}
