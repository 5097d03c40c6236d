package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/pressly/goose/v3"
	sqlitedriver "modernc.org/sqlite"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/migrations"
)

var _ keystore.Driver = (*DB)(nil)

const (
	// readers is the number of reading connections. Reads are short and come
	// from memory mostly, so more would only take turns on the processors.
	readers = 8
	// busyTimeout is how long a statement waits for another process, such as
	// a backup, in milliseconds. Inside this process nothing ever waits.
	busyTimeout = "5000"

	fileMode   = 0o600
	folderMode = 0o700
)

// DB is an open database. All methods are safe for concurrent use.
type DB struct {
	writer *sql.DB // one connection
	reader *sql.DB
	// prepared holds all statements by their text: preparing one takes four
	// times as long as running it.
	prepared map[string]*sql.Stmt

	failOnce sync.Once
	failed   chan struct{}
}

// Open opens the database file, which it creates with its folder if they are
// missing, and brings the schema up to date. The file and those that SQLite
// keeps beside it (-wal, -shm) can be read by their owner only, whatever the
// umask; a folder that exists keeps its mode.
func Open(ctx context.Context, path string) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open: %w", err)
	}
	if err := prepareFiles(path); err != nil {
		return nil, fmt.Errorf("sqlite: open: %w", err)
	}
	db := &DB{prepared: make(map[string]*sql.Stmt), failed: make(chan struct{})}
	if db.writer, err = connect(path, 1, url.Values{"_txlock": {"immediate"}}); err != nil {
		return nil, err
	}
	if db.reader, err = connect(path, readers, url.Values{"_query_only": {"1"}}); err != nil {
		return nil, errors.Join(err, db.writer.Close())
	}
	if err := errors.Join(db.migrate(ctx), db.prepare(ctx)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Close waits for statements under way and closes the file.
func (db *DB) Close() error {
	// The last connection to go empties the WAL, which takes one that can
	// write.
	return errors.Join(db.reader.Close(), db.writer.Close())
}

// Failed is closed when an fsync failed. Nothing can be written any more; the
// process must stop, and a new one reads what really is on the disk.
func (db *DB) Failed() <-chan struct{} { return db.failed }

// prepareFiles creates folder and file with their modes before SQLite can do
// it with others. SQLite gives the files beside it the mode of the database,
// so only those of an earlier time need setting.
func prepareFiles(path string) error {
	folder := filepath.Dir(path)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(folder, folderMode); err != nil {
			return err
		}
		if err := os.Chmod(folder, folderMode); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(fileMode), f.Close()); err != nil {
		return err
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Chmod(path+suffix, fileMode); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func connect(path string, connections int, options url.Values) (*sql.DB, error) {
	options.Set("_busy_timeout", busyTimeout)
	options.Set("_journal_mode", "WAL")
	options.Set("_synchronous", "FULL")
	options.Set("_foreign_keys", "1")
	options.Set("_dqs", "0")       // a misspelt column is an error, not a string
	options.Set("_defensive", "1") // no statement can damage the file
	// The schema comes from a file that is not trusted: it may not call
	// functions with side effects.
	options.Add("_pragma", "trusted_schema(0)")
	// What was destroyed is overwritten, not only forgotten.
	options.Add("_pragma", "secure_delete(1)")
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: options.Encode()}
	connector, err := sqlitedriver.NewConnector(dsn.String())
	if err != nil {
		return nil, fmt.Errorf("sqlite: open: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// provider offers the migrations of this dialect.
func (db *DB) provider() (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectSQLite3, db.writer, migrations.SQLite(), goose.WithDisableGlobalRegistry(true))
}

// window refuses a database for which this program is too old, and declares
// otherwise for which programs it is from now on: in user_version, which SQLite
// keeps for applications.
func (db *DB) window(ctx context.Context) error {
	latest, err := migrations.Latest(migrations.SQLite())
	if err != nil {
		return err
	}
	var oldest int64
	if err := db.writer.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&oldest); err != nil {
		return fmt.Errorf("sqlite: migrate: %w", err)
	}
	if err := migrations.Window(latest, oldest); err != nil {
		return fmt.Errorf("sqlite: open: %w", err)
	}
	if oldest >= migrations.Oldest {
		return nil
	}
	if _, err := db.writer.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, migrations.Oldest)); err != nil {
		return fmt.Errorf("sqlite: migrate: %w", err)
	}
	return nil
}

func (db *DB) migrate(ctx context.Context) error {
	p, err := db.provider()
	if err != nil {
		return fmt.Errorf("sqlite: migrate: %w", err)
	}
	if err := db.window(ctx); err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("sqlite: migrate: %w", err)
	}
	return nil
}
