package wire

import (
	"context"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/kms"
)

// ReplaceRoots makes the next generation of roots of the domain that a ceremony
// file describes, on all tokens in it, and then writes the description. It
// returns that and its path.
func ReplaceRoots(ctx context.Context, path string, confirm func(token, fingerprint string) error, progress func(string)) (*hsm.Domain, string, error) {
	c, domain, err := readCeremonyOf(path)
	if err != nil {
		return nil, "", err
	}
	err = c.recorded(ctx, kms.OpReplaceRoots, domain, func(l *ceremonyLog) (*hsm.Domain, error) {
		if domain, err = p11.Replace(ctx, c.config(domain, l.confirm(ctx, confirm), progress)); err != nil {
			return nil, err
		}
		return domain, WriteDomain(c.File, domain)
	})
	return domain, c.File, err
}

// readCeremonyOf reads the ceremony file of a domain that exists, and the
// domain's description.
func readCeremonyOf(path string) (*Ceremony, *hsm.Domain, error) {
	c, err := readCeremony(path)
	if err != nil {
		return nil, nil, err
	}
	domain, err := ReadDomain(c.File)
	return c, domain, err
}

// BackupCheck is what CheckBackups found of one backup token.
type BackupCheck struct {
	ID string // in the ceremony file
	p11.BackupReport
	Err error // what is wrong with it; nil: nothing
}

// CheckBackups verifies every backup token that a ceremony file names against
// the domain's description. It changes nothing but the ceremonies' journal.
func CheckBackups(ctx context.Context, path string) ([]BackupCheck, error) {
	c, domain, err := readCeremonyOf(path)
	if err != nil {
		return nil, err
	}
	var checks []BackupCheck
	err = c.recorded(ctx, kms.OpCheckBackups, domain, func(l *ceremonyLog) (*hsm.Domain, error) {
		for i, t := range c.tokens(c.Backups) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			check := BackupCheck{ID: c.Backups[i].ID}
			check.BackupReport, check.Err = p11.VerifyBackup(t, domain)
			checks = append(checks, check)
			if err := l.token(ctx, kms.OpCheckBackups, check.ID, "", check.Err); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
	return checks, err
}
