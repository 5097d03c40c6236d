package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
)

// Snapshot writes a consistent copy of the database file at path to a new file
// at out, while a service may be using it. The copy is whole and needs no
// journal beside it; its mode is 0600.
func Snapshot(ctx context.Context, path, out string) (err error) {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("sqlite: snapshot: %w", err)
	}
	// SQLite fills a file that exists and is empty, so that it is private
	// from its first byte.
	f, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	if err != nil {
		return fmt.Errorf("sqlite: snapshot: %w", err)
	}
	defer f.Close()
	source := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"mode": {"ro"}, "_pragma": {"busy_timeout(" + busyTimeout + ")"},
	}.Encode()}
	db, err := sql.Open("sqlite", source.String())
	if err != nil {
		return fmt.Errorf("sqlite: snapshot: %w", err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", out); err != nil {
		return fmt.Errorf("sqlite: snapshot: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sqlite: snapshot: %w", err)
	}
	return nil
}
