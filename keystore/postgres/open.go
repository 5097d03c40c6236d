package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/migrations"
)

var (
	_ keystore.Driver       = (*DB)(nil)
	_ keystore.ChangeDriver = (*DB)(nil)
)

const (
	// defaultConnections is how many connections a process has: each tenant
	// may have four loads under way (see keystore), and writes are short.
	defaultConnections = 16
	// statementTimeout ends a statement that the server works on, or waits in,
	// for longer than any statement here may take.
	statementTimeout = "30s"
	// idleTimeout ends a transaction whose process has gone without telling.
	idleTimeout = "60s"
	// connectTimeout bounds the making of one connection.
	connectTimeout = 5 * time.Second
	// maxURLFile bounds the file of a URL, which is one line.
	maxURLFile = 16 << 10
)

// Config is what Open needs. Of each URL and its file at most one is set; a
// file keeps the password out of the configuration, and its content is trimmed
// of white space. URLs are those of libpq ("postgres://…"); sslmode=verify-full
// is recommended for any server that is not on this machine.
type Config struct {
	// URL connects as the service.
	URL     string
	URLFile string
	// OwnerURL connects as the owner of the schema, to migrate it. When both
	// are empty Open does not migrate, and expects the schema to be no older
	// than this program.
	OwnerURL     string
	OwnerURLFile string
	// Connections bounds the connections of this process, without the one that
	// listens; 0: 16.
	Connections int32
}

// DB is an open database. All methods are safe for concurrent use.
type DB struct {
	pool   *pgxpool.Pool
	listen *pgx.ConnConfig
}

// Open connects, brings the schema up to date if it has the owner's URL, and
// checks that the service may not do more than it must.
func Open(ctx context.Context, c Config) (*DB, error) {
	service, err := parseURL(c.URL, c.URLFile)
	if err != nil {
		return nil, err
	}
	if service == "" {
		return nil, errors.New("postgres: open: the URL is missing")
	}
	owner, err := parseURL(c.OwnerURL, c.OwnerURLFile)
	if err != nil {
		return nil, err
	}
	if owner != "" {
		if err := migrate(ctx, owner); err != nil {
			return nil, err
		}
	}
	config, err := pgxpool.ParseConfig(service)
	if err != nil {
		return nil, errURL
	}
	if owner != "" {
		if err := admit(ctx, owner, config.ConnConfig.User); err != nil {
			return nil, err
		}
	}
	prepareConfig(config.ConnConfig)
	config.MaxConns = defaultConnections
	if c.Connections > 0 {
		config.MaxConns = c.Connections
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: open: %w", translate(err))
	}
	db := &DB{pool: pool, listen: config.ConnConfig.Copy()}
	if err := db.check(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return db, nil
}

// admit makes the service's login a member of the role that may use the
// schema, so that setting a database up takes two logins and nothing more.
func admit(ctx context.Context, owner, login string) error {
	conn, err := pgx.Connect(ctx, owner)
	if err != nil {
		return fmt.Errorf("postgres: open: connecting as the owner: %w", translate(err))
	}
	defer conn.Close(ctx)
	var member bool
	if err := conn.QueryRow(ctx, "SELECT pg_has_role($1, 'sluice_service', 'MEMBER')", login).Scan(&member); err != nil {
		return fmt.Errorf("postgres: open: looking up the service's login: %w", translate(err))
	}
	if member {
		return nil
	}
	// Statements of this kind take no parameters; the name is quoted.
	if _, err := conn.Exec(ctx, "GRANT sluice_service TO "+pgx.Identifier{login}.Sanitize()); err != nil {
		return fmt.Errorf("postgres: open: admitting the service's login: %w", translate(err))
	}
	return nil
}

// Close waits for calls under way and closes the connections.
func (db *DB) Close() error {
	db.pool.Close()
	return nil
}

// errURL does not say what is wrong: what it could quote may hold a password.
var errURL = errors.New("postgres: open: the URL is not one of PostgreSQL")

func parseURL(url, file string) (string, error) {
	if file == "" {
		return url, nil
	}
	if url != "" {
		return "", errors.New("postgres: open: a URL and its file are both set")
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("postgres: open: the file of the URL: %w", err)
	}
	if info.Size() > maxURLFile {
		return "", fmt.Errorf("postgres: open: the file of the URL is larger than %d bytes", maxURLFile)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("postgres: open: the file of the URL: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// prepareConfig sets what every connection needs, whatever its URL says.
func prepareConfig(c *pgx.ConnConfig) {
	c.RuntimeParams["search_path"] = "sluice"
	c.RuntimeParams["application_name"] = "sluice"
	c.RuntimeParams["statement_timeout"] = statementTimeout
	c.RuntimeParams["idle_in_transaction_session_timeout"] = idleTimeout
	c.ConnectTimeout = connectTimeout
}

// provider offers the migrations of this dialect. Whoever migrates holds a lock
// of the server meanwhile, so that of several processes one does.
func provider(db *sql.DB) (*goose.Provider, error) {
	// Twice a second, for five minutes: others wait for a migration to end.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, migrations.PostgreSQL(),
		goose.WithDisableGlobalRegistry(true), goose.WithSessionLocker(locker))
}

func migrate(ctx context.Context, owner string) error {
	db, err := openOwner(ctx, owner)
	if err != nil {
		return err
	}
	p, err := provider(db)
	if err == nil {
		err = window(ctx, db)
	}
	if err == nil {
		_, err = p.Up(ctx)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	return nil
}

// selectOldest reads what window wrote: the schema's comment begins with it.
const selectOldest = `SELECT coalesce(substring(obj_description('sluice'::regnamespace, 'pg_namespace') FROM '^oldest step: (\d+)'), '0')::bigint`

// window declares for which programs the schema is, in its comment; one for
// which this program is too old is refused.
func window(ctx context.Context, db *sql.DB) error {
	latest, err := migrations.Latest(migrations.PostgreSQL())
	if err != nil {
		return err
	}
	var oldest int64
	if err := db.QueryRowContext(ctx, selectOldest).Scan(&oldest); err != nil {
		return translate(err)
	}
	if err := migrations.Window(latest, oldest); err != nil || oldest >= migrations.Oldest {
		return err
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf(`COMMENT ON SCHEMA sluice IS 'oldest step: %d'`, migrations.Oldest))
	return translate(err)
}

// openOwner connects as the owner and makes the schema.
func openOwner(ctx context.Context, owner string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(owner)
	if err != nil {
		return nil, errURL
	}
	prepareConfig(config)
	// A migration takes as long as it takes.
	delete(config.RuntimeParams, "statement_timeout")
	db := stdlib.OpenDB(*config)
	_, err = db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS sluice`)
	// Two processes that make it at once meet in the catalogue.
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == codeUnique || e.Code == codeDuplicateSchema) {
		err = nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: migrate: %w", translate(err)), db.Close())
	}
	return db, nil
}

const (
	selectPrivileges = `SELECT r.rolsuper OR r.rolbypassrls OR pg_has_role(current_user, c.relowner, 'MEMBER')
		FROM pg_roles r, pg_class c WHERE r.rolname = current_user AND c.oid = 'sluice.tenants'::regclass`
	selectDurability = `SELECT current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off'`
	selectSchema     = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`
)

// check refuses to work with a schema, a role or a server that is not the right
// one.
func (db *DB) check(ctx context.Context) error {
	sources, err := migrations.Latest(migrations.PostgreSQL())
	if err != nil {
		return err
	}
	var schema int64
	if err := db.pool.QueryRow(ctx, selectSchema).Scan(&schema); err != nil {
		return fmt.Errorf("postgres: open: reading the version of the schema: %w", translate(err))
	}
	var oldest int64
	if err := db.pool.QueryRow(ctx, selectOldest).Scan(&oldest); err != nil {
		return fmt.Errorf("postgres: open: reading for which programs the schema is: %w", translate(err))
	}
	if err := migrations.Window(sources, oldest); err != nil {
		return fmt.Errorf("postgres: open: %w", err)
	}
	if schema < sources {
		return fmt.Errorf("postgres: open: the schema has version %d, this program needs %d; start it once with the owner's URL", schema, sources)
	}
	var mighty, durable bool
	if err := db.pool.QueryRow(ctx, selectPrivileges).Scan(&mighty); err != nil {
		return fmt.Errorf("postgres: open: reading the role's privileges: %w", translate(err))
	}
	if mighty {
		return errors.New("postgres: open: the service's role is not bound by row-level security; it must be no superuser, not bypass it, and not be or become the owner")
	}
	if err := db.pool.QueryRow(ctx, selectDurability).Scan(&durable); err != nil {
		return fmt.Errorf("postgres: open: reading the server's settings: %w", translate(err))
	}
	if !durable {
		return errors.New("postgres: open: the server does not sync its commits (fsync, synchronous_commit)")
	}
	return nil
}
