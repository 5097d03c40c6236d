package wire

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/notify/smtp"
)

// Config is the configuration of `sluice server`. It is read from a YAML file
// and from the environment (SLUICE_ and the upper-case path, "__" between
// levels: SLUICE_DATABASE__PATH); unknown names are errors. Secrets are never
// in it: they are in files that it names.
type Config struct {
	// Node names this API node in the journal. Default: the host name.
	Node string `koanf:"node"`
	// DataDir holds the journal and what else has no path of its own.
	DataDir string `koanf:"data_dir"`
	// Listen is the address of the API. Default 127.0.0.1:8440.
	Listen string `koanf:"listen"`
	// OpsListen is the address of /livez, /readyz, /metrics and pprof.
	// Default 127.0.0.1:8441.
	OpsListen string `koanf:"ops_listen"`
	// TLS of the API. Without it the API may listen on loopback only, unless
	// AllowPlaintext says that something in front of it ends TLS.
	TLS            TLSConfig `koanf:"tls"`
	AllowPlaintext bool      `koanf:"allow_plaintext"`
	// TrustedProxies are the networks whose X-Forwarded-For is believed.
	TrustedProxies []string `koanf:"trusted_proxies"`
	// MaxBodyBytes bounds a request's body. Default 2 MiB.
	MaxBodyBytes int64 `koanf:"max_body_bytes"`
	// MaxConnections bounds the connections of the API, and those of operations:
	// 64 to 1048576, but never more than the process may have open files.
	// Default 16384.
	MaxConnections int `koanf:"max_connections"`

	Database DatabaseConfig `koanf:"database"`
	HSM      HSMConfig      `koanf:"hsm"`
	Journal  JournalConfig  `koanf:"journal"`
	Audit    AuditConfig    `koanf:"audit"`
	Deletion DeletionConfig `koanf:"deletion"`
	Quota    QuotaConfig    `koanf:"quota"`
	Webhooks WebhooksConfig `koanf:"webhooks"`
	Mail     MailConfig     `koanf:"mail"`
	Metrics  MetricsConfig  `koanf:"metrics"`
	Tracing  TracingConfig  `koanf:"tracing"`
	Abuse    AbuseConfig    `koanf:"abuse"`

	// TwoOperators tells whether deleting a tenant, putting a policy, minting an
	// operator's credential and giving another's a new secret take the approval
	// of a second operator. Default true.
	TwoOperators bool `koanf:"two_operators"`
}

// DeletionConfig says how long copies of a deleted tenant can live. It promises
// what operators do; the date that a deletion shows is made of it.
type DeletionConfig struct {
	// RootRotation is after how long at most the sealing root is replaced.
	// Default 8760h, a year.
	RootRotation time.Duration `koanf:"root_rotation"`
	// BackupRetention is how long backups are kept. Default 840h, 35 days.
	BackupRetention time.Duration `koanf:"backup_retention"`
}

// TLSConfig names the certificate and the key of the API, PEM files.
type TLSConfig struct {
	CertFile string `koanf:"cert_file"`
	KeyFile  string `koanf:"key_file"`
}

// DatabaseConfig says where tenants, credentials and keys are stored.
type DatabaseConfig struct {
	// Driver is "sqlite" (the default) or "postgres", which several API nodes
	// share.
	Driver string `koanf:"driver"`
	// Path of the SQLite file. Default <data_dir>/sluice.db.
	Path string `koanf:"path"`
	// URLFile holds the URL with which the service connects to PostgreSQL, as
	// a role that owns nothing.
	URLFile string `koanf:"url_file"`
	// OwnerURLFile holds the URL of the schema's owner. With it the schema is
	// brought up to date at start; without it the schema must be.
	OwnerURLFile string `koanf:"owner_url_file"`
	// Staleness is how long cached state is used while the database cannot be
	// asked for changes of other nodes. Default 30s.
	Staleness time.Duration `koanf:"staleness"`
}

// HSMConfig lists the domains and their tokens.
type HSMConfig struct {
	Domains []DomainConfig `koanf:"domains"`
	// EngineSlots is how many operations the in-process engine runs at once.
	// Default: the number of CPUs.
	EngineSlots int `koanf:"engine_slots"`
	// AllowUnenforced admits tokens that do not enforce unwrap templates, on
	// which the user PIN is enough to extract keys. Default false.
	AllowUnenforced bool `koanf:"allow_unenforced"`
}

// DomainConfig is one domain: its description, which `sluice hsm init` wrote,
// and its tokens.
type DomainConfig struct {
	File   string        `koanf:"file"`
	Tokens []TokenConfig `koanf:"tokens"`
}

// TokenConfig is one token of a domain.
type TokenConfig struct {
	// ID names the node; letters, digits and "-". Required, unique.
	ID string `koanf:"id"`
	// Module is the path of the PKCS#11 library.
	Module string `koanf:"module"`
	// Label or Serial choose the token; the serial wins.
	Label  string `koanf:"label"`
	Serial string `koanf:"serial"`
	// PINFile holds the user PIN; a newline at its end does not count.
	PINFile string `koanf:"pin_file"`
	// PINEnv names the variable of the environment that holds the user PIN, in
	// place of PINFile.
	PINEnv string `koanf:"pin_env"`
	// SOPINFile holds the security officer's PIN; only `sluice hsm init`
	// reads it.
	SOPINFile string `koanf:"so_pin_file"`
	// Slots is how many operations run on the token at once. Default 4.
	Slots int `koanf:"slots"`
	// Env is set in the environment before the library is initialised.
	Env map[string]string `koanf:"env"`
	// InitArgs is the reserved string that NSS takes at initialisation.
	InitArgs string `koanf:"init_args"`
	// Profile describes the vendor's mechanisms for SM2, SM4 and HMAC-SM3: the
	// name of one that is built in, or the absolute path of a file. Default
	// none: such keys are SEALED.
	Profile string `koanf:"profile"`
	// Role is what the node is for, while no operator has given it another
	// mode: "active", "standby" (it takes what active nodes of its domain
	// cannot) or "cold" (it stays closed). Default "active".
	Role string `koanf:"role"`
	// MaxLoads is how many keys the library may load until the token is opened
	// anew, for one that leaks: 1000 at least. Default 0: what is known of the
	// library, for most no bound.
	MaxLoads uint64 `koanf:"max_loads"`
	// Process runs the library in a process of its own, so that its crash or
	// hang takes down this node only. Default false: it costs time in every
	// operation.
	Process bool `koanf:"process"`
}

// JournalConfig says where and how the journal is written.
type JournalConfig struct {
	// Dir of the segments. Default <data_dir>/journal.
	Dir string `koanf:"dir"`
	// SegmentBytes is the size at which a new segment begins. Default 64 MiB.
	SegmentBytes int64 `koanf:"segment_bytes"`
	// ReserveBytes of disk are kept for state changes. Default 16 MiB.
	ReserveBytes int64 `koanf:"reserve_bytes"`
	// Chain is the hash function of the chain, "sha256" (the default) or "sm3";
	// a change takes effect with the next segment. With "sm3" heads are signed
	// by an SM2 key.
	Chain string `koanf:"chain"`
	// SignInterval is how often the head is signed and anchored, if it changed,
	// 1s (the default) to 1h: what may be cut off unnoticed.
	SignInterval time.Duration `koanf:"sign_interval"`
	// Grouped are the operations whose successes are answered before their
	// entries are on the disk, which they are within 50 ms: a crash can lose
	// so many. Default none.
	Grouped []string `koanf:"grouped"`
	// AnchorFile is an absolute path to which signed heads are appended beside
	// the database: in another machine's file system, or a write-once one.
	// Default none.
	AnchorFile string `koanf:"anchor_file"`
}

// AuditConfig says how long the database keeps the audit trail, which is the
// journals of all API nodes, and the usage that is summed up from it. Every
// node removes what is older. The journal's files stay.
type AuditConfig struct {
	// KeepEntries is how long entries are kept. Default 2160h, 90 days.
	KeepEntries time.Duration `koanf:"keep_entries"`
	// KeepMinutes, KeepHours and KeepDays are how long usage by the minute, by
	// the hour and by the day is kept. Bills are made of days. Default 48h,
	// 2160h (90 days) and 26280h (3 years).
	KeepMinutes time.Duration `koanf:"keep_minutes"`
	KeepHours   time.Duration `koanf:"keep_hours"`
	KeepDays    time.Duration `koanf:"keep_days"`
}

// Defaults of the configuration.
const (
	DefaultListen       = "127.0.0.1:8440"
	DefaultOpsListen    = "127.0.0.1:8441"
	DefaultMaxBodyBytes = 2 << 20
	// DefaultMaxConnections takes some 400 MiB when all are idle.
	DefaultMaxConnections = 1 << 14
	DefaultSlots          = 4
	DefaultSegmentBytes   = 64 << 20
	DefaultReserveBytes   = 16 << 20

	DefaultRootRotation    = 365 * 24 * time.Hour
	DefaultBackupRetention = 35 * 24 * time.Hour

	DefaultKeepEntries = 90 * 24 * time.Hour
	DefaultKeepMinutes = 48 * time.Hour
	DefaultKeepHours   = 90 * 24 * time.Hour
	DefaultKeepDays    = 3 * 365 * 24 * time.Hour
	// minKeep leaves time to look at what happened; maxKeep is a mistake in the
	// unit.
	minKeep = time.Hour
	maxKeep = 30 * 365 * 24 * time.Hour

	// maxCopiesLive bounds both periods: a date beyond is no promise.
	maxCopiesLive = 10 * 365 * 24 * time.Hour
)

// envPrefix begins the environment variables that override the file.
const envPrefix = "SLUICE_"

// clientEnv are variables of the command-line client, which share the prefix.
var clientEnv = map[string]bool{
	"SLUICE_ADDRESS": true, "SLUICE_CREDENTIAL": true, "SLUICE_CREDENTIAL_FILE": true, "SLUICE_REQUIRE": true,
}

// LoadConfig reads a configuration file, applies the environment and the
// defaults, and validates the result.
func LoadConfig(path string, environ func() []string) (*Config, error) {
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	err := k.Load(env.Provider(".", env.Opt{
		Prefix: envPrefix,
		TransformFunc: func(name, value string) (string, any) {
			if clientEnv[name] {
				return "", nil
			}
			return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "__", "."), value
		},
		EnvironFunc: environ,
	}), nil)
	if err != nil {
		return nil, fmt.Errorf("reading the environment: %w", err)
	}
	c := Config{TwoOperators: true}
	err = k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		TagName: "koanf", ErrorUnused: true, WeaklyTypedInput: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToSliceHookFunc(",")),
	}})
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c.setDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return &c, nil
}

func (c *Config) setDefaults() {
	setDefault(&c.Listen, DefaultListen)
	setDefault(&c.OpsListen, DefaultOpsListen)
	setDefault(&c.MaxBodyBytes, DefaultMaxBodyBytes)
	setDefault(&c.MaxConnections, DefaultMaxConnections)
	if c.Node == "" {
		c.Node, _ = os.Hostname()
	}
	setDefault(&c.Database.Driver, "sqlite")
	setDefault(&c.Database.Path, filepath.Join(c.DataDir, "sluice.db"))
	setDefault(&c.Journal.Dir, filepath.Join(c.DataDir, "journal"))
	setDefault(&c.Journal.SegmentBytes, DefaultSegmentBytes)
	setDefault(&c.Journal.ReserveBytes, DefaultReserveBytes)
	setDefault(&c.Journal.Chain, chainSHA256)
	setDefault(&c.Journal.SignInterval, time.Second)
	setDefault(&c.Deletion.RootRotation, DefaultRootRotation)
	setDefault(&c.Deletion.BackupRetention, DefaultBackupRetention)
	setDefault(&c.Metrics.TopTenants, DefaultTopTenants)
	setDefault(&c.Tracing.Sample, DefaultTraceSample)
	setDefault(&c.Audit.KeepEntries, DefaultKeepEntries)
	setDefault(&c.Audit.KeepMinutes, DefaultKeepMinutes)
	setDefault(&c.Audit.KeepHours, DefaultKeepHours)
	setDefault(&c.Audit.KeepDays, DefaultKeepDays)
	setDefault(&c.Mail.Security, string(smtp.StartTLS))
	setDefault(&c.Webhooks.GiveUp, DefaultGiveUp)
	setDefault(&c.Webhooks.DisableAfter, DefaultDisableAfter)
	for i := range c.HSM.Domains {
		for j := range c.HSM.Domains[i].Tokens {
			setDefault(&c.HSM.Domains[i].Tokens[j].Slots, DefaultSlots)
		}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate checks the whole and says everything that is wrong.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.DataDir != "", "data_dir: is missing")
	check(c.Node != "", "node: is missing and the host has no name")
	check(c.Database.Driver == "sqlite" || c.Database.Driver == "postgres", "database.driver: must be sqlite or postgres")
	check(c.Database.Driver != "postgres" || c.Database.URLFile != "", "database.url_file: is missing")
	check(c.Database.Staleness >= 0 && c.Database.Staleness <= time.Hour, "database.staleness: must be at most 1h")
	check(c.MaxConnections >= 64 && c.MaxConnections <= 1<<20, "max_connections: must be 64 to 1048576")
	check(c.MaxBodyBytes >= 1<<10 && c.MaxBodyBytes <= 64<<20, "max_body_bytes: must be 1 KiB to 64 MiB")
	check((c.TLS.CertFile == "") == (c.TLS.KeyFile == ""), "tls: cert_file and key_file come together")
	check(c.TLS.CertFile != "" || c.AllowPlaintext || isLoopback(c.Listen),
		"listen: without tls the API listens on loopback only, unless allow_plaintext is true")
	check(isLoopback(c.OpsListen) || c.AllowPlaintext,
		"ops_listen: it has no authentication and listens on loopback only, unless allow_plaintext is true")
	_, err := c.trustedProxies()
	check(err == nil, "trusted_proxies: %v", err)
	check(c.Journal.SegmentBytes >= 1<<20, "journal.segment_bytes: must be at least 1 MiB")
	check(c.Journal.ReserveBytes >= 1<<20, "journal.reserve_bytes: must be at least 1 MiB")
	err = audit.CheckGrouped(c.Journal.grouped())
	check(err == nil, "journal.grouped: %v", err)
	check(c.Journal.Chain == chainSHA256 || c.Journal.Chain == chainSM3, "journal.chain: must be %s or %s", chainSHA256, chainSM3)
	check(c.Journal.SignInterval >= time.Second && c.Journal.SignInterval <= time.Hour, "journal.sign_interval: must be 1s to 1h")
	check(c.Journal.AnchorFile == "" || filepath.IsAbs(c.Journal.AnchorFile), "journal.anchor_file: must be an absolute path")
	for name, period := range map[string]time.Duration{
		"root_rotation": c.Deletion.RootRotation, "backup_retention": c.Deletion.BackupRetention} {
		check(period >= time.Hour && period <= maxCopiesLive, "deletion.%s: must be 1h to %.0fh", name, maxCopiesLive.Hours())
	}
	for name, period := range map[string]time.Duration{"keep_entries": c.Audit.KeepEntries, "keep_minutes": c.Audit.KeepMinutes,
		"keep_hours": c.Audit.KeepHours, "keep_days": c.Audit.KeepDays} {
		check(period >= minKeep && period <= maxKeep, "audit.%s: must be %.0fh to %.0fh", name, minKeep.Hours(), maxKeep.Hours())
	}
	for name, period := range map[string]time.Duration{"give_up": c.Webhooks.GiveUp, "disable_after": c.Webhooks.DisableAfter} {
		check(period >= time.Minute && period <= maxWebhookPeriod, "webhooks.%s: must be 1m to %.0fh", name, maxWebhookPeriod.Hours())
	}
	check(c.Metrics.TopTenants >= 1 && c.Metrics.TopTenants <= maxTopTenants, "metrics.top_tenants: must be 1 to %d", maxTopTenants)
	err = c.Tracing.check()
	check(err == nil, "tracing.%v", err)
	err = c.Mail.check()
	check(err == nil, "mail.%v", err)
	_, err = c.Webhooks.networks()
	check(err == nil, "webhooks.allow_networks: %v", err)
	check(len(c.HSM.Domains) > 0, "hsm.domains: name at least one")
	ids := map[string]bool{}
	for i, d := range c.HSM.Domains {
		check(d.File != "", "hsm.domains[%d].file: is missing", i)
		check(len(d.Tokens) > 0, "hsm.domains[%d].tokens: name at least one", i)
		for j, t := range d.Tokens {
			at := fmt.Sprintf("hsm.domains[%d].tokens[%d]", i, j)
			check(kms.ValidName(t.ID) && !strings.Contains(t.ID, "/") && !ids[t.ID] && t.ID != string(hsm.EngineID),
				"%s.id: must be unique, of letters, digits and -_. and not cpu", at)
			ids[t.ID] = true
			check(filepath.IsAbs(t.Module), "%s.module: must be an absolute path", at)
			check(t.Label != "" || t.Serial != "", "%s: needs label or serial", at)
			err = t.checkPIN()
			check(err == nil, "%s.%v", at, err)
			check(t.Slots > 0 && t.Slots <= 1024, "%s.slots: must be 1 to 1024", at)
			err := t.checkProfile()
			check(err == nil, "%s.profile: %v", at, err)
			check(slices.Contains([]kms.NodeMode{"", kms.NodeActive, kms.NodeStandby, kms.NodeCold}, kms.NodeMode(t.Role)),
				"%s.role: must be active, standby or cold", at)
			check(t.MaxLoads == 0 || t.MaxLoads >= 1000, "%s.max_loads: must be 0 for the default, or at least 1000", at)
		}
	}
	return errors.Join(errs...)
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func (c *Config) trustedProxies() ([]netip.Prefix, error) {
	list := make([]netip.Prefix, 0, len(c.TrustedProxies))
	for _, s := range c.TrustedProxies {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, errors.New("must be networks such as 10.0.0.0/8")
		}
		list = append(list, p)
	}
	return list, nil
}
