package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

// Dev is what `sluice dev` runs on: a data folder that holds everything.
type Dev struct {
	Dir   string
	Nodes int // HSM nodes, 1 to MaxDevNodes
	Log   *slog.Logger
	// TwoOperators is Config.TwoOperators; false: one is enough.
	TwoOperators bool
	// Tracing is Config.Tracing; zero: nothing is traced.
	Tracing TracingConfig
	// SignInterval is JournalConfig.SignInterval; 0: its default.
	SignInterval time.Duration
	// AbuseOff is AbuseConfig.Off; false: credentials are watched.
	AbuseOff bool
	// Progress is told what the first start is doing. nil: nobody.
	Progress func(string)

	lock *os.File
}

// MaxDevNodes bounds the SoftHSM tokens of a development domain: each is a
// copy of the library with threads and memory of its own.
const MaxDevNodes = 8

// devBackups is the number of offline backup tokens of a development domain;
// the ceremony asks for two at least.
const devBackups = 2

// The files of a development folder.
const (
	domainFile             = "domain.json"
	OperatorCredentialFile = "operator.credential"
	DemoCredentialFile     = "demo.credential"
	tokensDir              = "tokens"
	backupDir              = "backup-tokens"
	lockFile               = "lock"
)

// DemoTenant is the tenant that `sluice dev` makes for trying things out.
const DemoTenant = "demo"

// demoScopes let the demo credential do everything inside the demo tenant.
var demoScopes = []string{"key:*", "key:manage", "key:destroy", "key:import", "secret:*", "secret:destroy", "route:*", "tenant:admin", "usage:read", "audit:read", "debug"}

// Open makes what is missing in the folder and opens the service on it. Only
// one process can have a folder open.
func (d *Dev) Open(ctx context.Context) (*App, *Config, error) {
	if d.Nodes < 1 || d.Nodes > MaxDevNodes {
		return nil, nil, fmt.Errorf("nodes: must be 1 to %d", MaxDevNodes)
	}
	dir, err := filepath.Abs(d.Dir)
	if err != nil {
		return nil, nil, err
	}
	d.Dir = dir
	if err := d.take(); err != nil {
		return nil, nil, err
	}
	app, config, err := d.open(ctx)
	if err != nil {
		d.lock.Close()
		return nil, nil, err
	}
	app.closes = append([]func() error{d.lock.Close}, app.closes...)
	return app, config, nil
}

// take makes the folder private and locks it.
func (d *Dev) take() error {
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(d.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.Dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("the data folder %s is in use by another process", d.Dir)
	}
	d.lock = f
	return nil
}

func (d *Dev) open(ctx context.Context) (*App, *Config, error) {
	domain, err := d.domain(ctx)
	if err != nil {
		return nil, nil, err
	}
	c := DevConfig(d.Dir)
	c.TwoOperators = d.TwoOperators
	c.Abuse.Off = d.AbuseOff
	if d.SignInterval > 0 {
		c.Journal.SignInterval = d.SignInterval
	}
	// A developer's receivers are on his machine, as everything else is.
	c.Webhooks.AllowNetworks = []string{"127.0.0.0/8", "::1/128"}
	c.HSM.Domains = []DomainConfig{*domain}
	c.Tracing.OTLPEndpoint = d.Tracing.OTLPEndpoint
	if d.Tracing.Sample > 0 {
		c.Tracing.Sample = d.Tracing.Sample
	}
	c.setDefaults()
	if err := c.Validate(); err != nil {
		return nil, nil, err
	}
	app, err := Open(ctx, c, d.Log)
	if err != nil {
		return nil, nil, err
	}
	if err := d.firstCredentials(ctx, app); err != nil {
		return nil, nil, errors.Join(err, app.Close())
	}
	return app, c, nil
}

// DevConfig is where a development folder, given as an absolute path, has its
// state; tokens are not in it.
func DevConfig(dir string) *Config {
	c := &Config{DataDir: dir, Node: "dev"}
	c.HSM.Domains = []DomainConfig{{File: filepath.Join(dir, domainFile)}}
	c.setDefaults()
	return c
}

// domain returns the configuration of the folder's domain and makes its tokens
// and roots if they do not exist yet.
func (d *Dev) domain(ctx context.Context) (*DomainConfig, error) {
	file := filepath.Join(d.Dir, domainFile)
	_, err := os.Stat(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	made := err == nil
	config := &DomainConfig{File: file}
	if !made {
		d.say(fmt.Sprintf("first start in %s: making %d SoftHSM tokens and %d backup tokens", d.Dir, d.Nodes, devBackups))
	}
	members, err := d.tokens(tokensDir, "node", d.Nodes, made)
	if err != nil {
		return nil, err
	}
	for i, t := range members {
		dir := filepath.Join(d.Dir, tokensDir, fmt.Sprintf("node-%d", i+1))
		config.Tokens = append(config.Tokens, TokenConfig{
			ID: fmt.Sprintf("node-%d", i+1), Module: t.Module, Serial: t.Serial, Label: t.Label, Env: t.Env,
			PINFile: filepath.Join(dir, "user.pin"), SOPINFile: filepath.Join(dir, "so.pin"),
		})
	}
	if made {
		return config, nil
	}
	backups, err := d.tokens(backupDir, "backup", devBackups, false)
	if err != nil {
		return nil, err
	}
	d.say("making the domain's root keys, which takes some seconds")
	domain, err := p11.Ceremony(ctx, p11.CeremonyConfig{
		Name: "dev", Members: ceremonyTokens(members), Backups: ceremonyTokens(backups),
		// Every token was made by this process a moment ago.
		Confirm: func(string, string) error { return nil },
	})
	if err != nil {
		return nil, fmt.Errorf("making the domain: %w", err)
	}
	return config, WriteDomain(file, domain)
}

// tokens provisions n tokens; when the domain is made already they must exist.
func (d *Dev) tokens(folder, name string, n int, made bool) ([]*softhsm.Token, error) {
	if err := softhsm.Available(); err != nil {
		return nil, err
	}
	var tokens []*softhsm.Token
	for i := 1; i <= n; i++ {
		label := fmt.Sprintf("%s-%d", name, i)
		dir := filepath.Join(d.Dir, folder, label)
		if _, err := os.Stat(dir); made && err != nil {
			return nil, fmt.Errorf("the domain in %s was made with fewer nodes than %d; start with fewer, or with a new data folder", d.Dir, n)
		}
		t, err := softhsm.Provision(dir, "sluice-dev-"+label)
		if err != nil {
			return nil, fmt.Errorf("token %s: %w", label, err)
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

func ceremonyTokens(tokens []*softhsm.Token) []p11.CeremonyToken {
	var list []p11.CeremonyToken
	for _, t := range tokens {
		list = append(list, p11.CeremonyToken{
			Module: t.Module, Env: t.Env, TokenLabel: t.Label, TokenSerial: t.Serial, UserPIN: t.UserPIN, SOPIN: t.SOPIN,
		})
	}
	return list
}

// firstCredentials mints the operator's and the demo tenant's credentials,
// each unless its file exists.
func (d *Dev) firstCredentials(ctx context.Context, app *App) error {
	if err := app.OperatorCredential(ctx, filepath.Join(d.Dir, OperatorCredentialFile)); err != nil {
		return fmt.Errorf("minting the operator's credential: %w", err)
	}
	err := credentialFile(filepath.Join(d.Dir, DemoCredentialFile), func() (string, error) {
		tenant, err := app.demoTenant(ctx)
		if err != nil {
			return "", err
		}
		return app.FirstCredential(ctx, tenant, credentialName("demo"), demoScopes)
	})
	if err != nil {
		return fmt.Errorf("minting the demo credential: %w", err)
	}
	return nil
}

// demoTenant returns the demo tenant, which it makes if there is none.
func (a *App) demoTenant(ctx context.Context) (*kms.Tenant, error) {
	tenant, err := a.Store.TenantByRef(ctx, DemoTenant)
	if err == nil || kms.KindOf(err) != kms.KindNotFound {
		return tenant, err
	}
	by, err := a.operator()
	if err != nil {
		return nil, err
	}
	t := &kms.Ticket{RequestID: uuid.NewV7(), By: by, Received: time.Now(), Urgency: kms.UrgencyNormal}
	return a.Service.CreateTenant(ctx, t, kms.CreateTenantInput{Name: DemoTenant, Tier: kms.TierPlatinum, AllowSealed: true})
}

func (d *Dev) say(what string) {
	if d.Progress != nil {
		d.Progress(what)
	}
}
