package wire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/kms"
)

// Ceremony is the file of `sluice hsm init`.
type Ceremony struct {
	Name    string        `koanf:"name"`    // of the domain
	File    string        `koanf:"file"`    // to which its description is written
	Journal string        `koanf:"journal"` // folder; default: beside file, with ".journal"
	Members []TokenConfig `koanf:"members"` // that will serve
	Backups []TokenConfig `koanf:"backups"` // offline, two at least
}

// InitDomain makes the domain that a ceremony file describes and returns the
// path of its description.
func InitDomain(ctx context.Context, path string, confirm func(token, fingerprint string) error, progress func(string)) (string, error) {
	c, err := readCeremony(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(c.File); err == nil {
		return "", fmt.Errorf("%s exists: the domain is made already; to add tokens to it, join them", c.File)
	}
	return c.File, c.recorded(ctx, kms.OpInitDomain, nil, func(l *ceremonyLog) (*hsm.Domain, error) {
		domain, err := p11.Ceremony(ctx, c.config(nil, l.confirm(ctx, confirm), progress))
		if err != nil {
			return nil, err
		}
		return domain, WriteDomain(c.File, domain)
	})
}

// JoinDomain gives the roots of the domain that a ceremony file describes to
// the member tokens in it that do not hold them yet, from its backup tokens.
// Where the members can hold more than the domain has self-test keys for, as
// with a profile, the keys are added to its description.
func JoinDomain(ctx context.Context, path string, confirm func(token, fingerprint string) error, progress func(string)) error {
	c, domain, err := readCeremonyOf(path)
	if err != nil {
		return err
	}
	return c.recorded(ctx, kms.OpJoinDomain, domain, func(l *ceremonyLog) (*hsm.Domain, error) {
		joined, err := p11.Ceremony(ctx, c.config(domain, l.confirm(ctx, confirm), progress))
		if err != nil || joined == domain {
			return joined, err
		}
		return joined, WriteDomain(c.File, joined)
	})
}

func (c *Ceremony) config(domain *hsm.Domain, confirm func(token, fingerprint string) error, progress func(string)) p11.CeremonyConfig {
	return p11.CeremonyConfig{
		Name: c.Name, Members: c.tokens(c.Members), Backups: c.tokens(c.Backups), Domain: domain, Confirm: confirm, Progress: progress,
	}
}

func readCeremony(path string) (*Ceremony, error) {
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		return nil, fmt.Errorf("reading the ceremony file: %w", err)
	}
	var c Ceremony
	err := k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		TagName: "koanf", ErrorUnused: true,
	}})
	if err == nil {
		err = c.validate()
	}
	if c.Journal == "" {
		c.Journal = journalOf(c.File)
	}
	if err != nil {
		return nil, fmt.Errorf("ceremony file: %w", err)
	}
	return &c, nil
}

func (c *Ceremony) validate() error {
	var errs []error
	if c.Name == "" || c.File == "" {
		errs = append(errs, errors.New("name and file: are needed"))
	}
	if len(c.Members) < 1 || len(c.Backups) < 2 {
		errs = append(errs, errors.New("members and backups: name at least one member and two backup tokens"))
	}
	for kind, tokens := range map[string][]TokenConfig{"members": c.Members, "backups": c.Backups} {
		for i, t := range tokens {
			if !filepath.IsAbs(t.Module) || t.Label == "" && t.Serial == "" || t.checkPIN() != nil || t.SOPINFile == "" {
				errs = append(errs, fmt.Errorf("%s[%d]: needs module (an absolute path), label or serial, pin_file and so_pin_file", kind, i))
			}
			if err := t.checkProfile(); err != nil {
				errs = append(errs, fmt.Errorf("%s[%d].profile: %w", kind, i, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (c *Ceremony) tokens(list []TokenConfig) []p11.CeremonyToken {
	var tokens []p11.CeremonyToken
	for _, t := range list {
		tokens = append(tokens, p11.CeremonyToken{
			Module: t.Module, Env: t.Env, InitArgs: t.InitArgs, TokenLabel: t.Label, TokenSerial: t.Serial,
			UserPIN: t.pin(), SOPIN: pinFrom(t.SOPINFile), Profile: t.profile(),
		})
	}
	return tokens
}
