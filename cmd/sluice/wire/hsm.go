package wire

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/kms"
)

func openEngine(log *slog.Logger) (hsm.Token, error) {
	if !soft.ConstantTimeSM4() {
		log.Warn("SM4 may leak timing: FORCE_SM4BLOCK_AESNI=1 was not in the environment at start")
	}
	return soft.Open()
}

// openTokens opens every token of every domain but the cold ones. A token that
// cannot be opened is left out by the pool with an alarm, so that the others
// serve, and tried again, unless its PIN was wrong.
func openTokens(ctx context.Context, c HSMConfig, log *slog.Logger) ([]hsm.NodeConfig, error) {
	var nodes []hsm.NodeConfig
	var failed error
	opened := 0
	for _, dc := range c.Domains {
		domain, err := ReadDomain(dc.File)
		if err != nil {
			return nil, err
		}
		for _, tc := range dc.Tokens {
			node := hsm.NodeConfig{ID: kms.NodeID(tc.ID), Domain: domain, Slots: tc.Slots,
				Mode: kms.NodeMode(tc.Role), MaxLoads: tc.MaxLoads}
			reopen := func(ctx context.Context) (hsm.Token, error) { return openToken(ctx, tc, domain, log) }
			node.Reopen = reopen
			if node.Mode != kms.NodeCold {
				if node.Token, node.OpenError = reopen(ctx); node.OpenError != nil {
					failed = errors.Join(failed, fmt.Errorf("token %s: %w", tc.ID, node.OpenError))
				} else {
					opened++
				}
			}
			nodes = append(nodes, node)
		}
	}
	if opened == 0 {
		return nil, errors.Join(errors.New("no token can be opened"), failed)
	}
	return nodes, nil
}

func (t TokenConfig) open(domain *hsm.Domain) p11.Config {
	return p11.Config{
		Module: t.Module, Env: t.Env, InitArgs: t.InitArgs, TokenLabel: t.Label, TokenSerial: t.Serial,
		PIN: t.pin(), Profile: t.profile(), Domain: *domain,
	}
}

// profile returns how to get the token's profile, nil when it has none.
func (t TokenConfig) profile() func() (*p11.Profile, error) {
	if t.Profile == "" {
		return nil
	}
	return func() (*p11.Profile, error) { return p11.FindProfile(t.Profile) }
}

func (t TokenConfig) checkProfile() error {
	if t.Profile == "" {
		return nil
	}
	_, err := p11.FindProfile(t.Profile)
	return err
}

// pin returns how to get the user PIN. It is read each time that the token is
// opened, and not kept.
func (t TokenConfig) pin() func() ([]byte, error) {
	if t.PINEnv == "" {
		return pinFrom(t.PINFile)
	}
	return func() ([]byte, error) {
		pin, set := os.LookupEnv(t.PINEnv)
		if !set || pin == "" {
			return nil, fmt.Errorf("reading the PIN: the variable %s is not set", t.PINEnv)
		}
		return []byte(pin), nil
	}
}

// checkPIN checks that there is one place for the user PIN.
func (t TokenConfig) checkPIN() error {
	switch {
	case (t.PINFile == "") == (t.PINEnv == ""):
		return errors.New("pin_file or pin_env: give one of them")
	case strings.HasPrefix(t.PINEnv, envPrefix):
		return fmt.Errorf("pin_env: variables that begin with %s are settings; choose another name", envPrefix)
	}
	return nil
}

// pinFrom reads a PIN from a file; a newline at its end does not count.
func pinFrom(path string) func() ([]byte, error) {
	return func() ([]byte, error) {
		pin, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading the PIN: %w", err)
		}
		return bytes.TrimRight(pin, "\r\n"), nil
	}
}

// ReadDomain reads a domain's description.
func ReadDomain(path string) (*hsm.Domain, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the domain's description: %w", err)
	}
	var d hsm.Domain
	if err := json.Unmarshal(raw, &d, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("reading the domain's description %s: %w", path, err)
	}
	if err := d.CheckGenerations(); err != nil {
		return nil, fmt.Errorf("the domain's description %s: %w", path, err)
	}
	for _, k := range d.SelfTests {
		if k.Spec.Info() == nil || k.Spec.Info().Algorithms(k.Usage) == nil {
			return nil, fmt.Errorf("the domain's description %s: a self-test key has an unknown spec or usage", path)
		}
	}
	return &d, nil
}

// WriteDomain writes a domain's description so that after a crash there is
// either the whole file or none.
func WriteDomain(path string, d *hsm.Domain) error {
	raw, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return writeFile(path, append(raw, '\n'))
}

// writeFile writes a file of mode 0600 at once: a temporary file, synced, then
// renamed, then the folder synced.
func writeFile(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
