package wire_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// ownRows are the rows without which there is no service: those of the system
// tenant, of the pepper and the row key, and of the mark that rows have codes.
var ownRows = []struct{ table, where string }{
	{"tenants", "name = 'system'"},
	{"system_secrets", "name = 'credential-pepper'"},
	{"system_secrets", "name = 'row-key'"},
	{"row_authentication", "1 = 1"},
}

// starts tells whether the service starts, which it then does with everything
// that it had.
func (s *site) starts(t *testing.T) error {
	t.Helper()
	app, err := s.open(t)
	if err != nil {
		return err
	}
	handler, err := app.API("test")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler.Handler())
	defer func() {
		server.Close()
		if err := app.Close(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	}()
	running := &wiretest.Service{App: app, URL: server.URL}
	if status, a := call(t, running, s.operator(t, app), http.MethodGet, "/v1/tenants", nil); status != http.StatusOK {
		t.Errorf("it started, and the operator's credential gives %d %s", status, a.Code)
	}
	return nil
}

// A row of the service's own that is damaged cannot be passed over. The start
// ends with an error, or the value decides nothing; nothing else happens, and
// with the row put right the service is what it was.
func TestDamagedRowOfTheServiceItselfStopsTheStart(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *site{"SQLite": sqliteSite, "PostgreSQL": postgresSite} {
		t.Run(name, func(t *testing.T) {
			site := open(t)
			if err := site.starts(t); err != nil {
				t.Fatal(err)
			}
			raw := site.raw(t)
			refused, went := 0, 0
			start := func(what string) {
				t.Helper()
				if err := site.starts(t); err == nil {
					went++
					t.Logf("%s: it starts", what)
					return
				}
				refused++
			}
			for i, own := range ownRows {
				saved := fmt.Sprintf("saved_%d", i)
				raw.exec(t, fmt.Sprintf(`CREATE TABLE %s AS SELECT * FROM %s`, saved, own.table))
				putRight := func() {
					raw.exec(t, `DELETE FROM `+own.table)
					raw.exec(t, fmt.Sprintf(`INSERT INTO %s SELECT * FROM %s`, own.table, saved))
				}
				for _, column := range raw.columns[own.table] {
					value, last := column.values[0], column.values[len(column.values)-1]
					if !raw.damage(t, own.table, column.name, value, own.where) {
						if value = last; !raw.damage(t, own.table, column.name, value, own.where) {
							continue
						}
					}
					start(fmt.Sprintf("%s with %s = %s", own.where, column.name, value))
					putRight()
				}
				raw.exec(t, fmt.Sprintf(`DELETE FROM %s WHERE %s`, own.table, own.where))
				start("without the row " + own.where)
				putRight()
			}
			if err := site.starts(t); err != nil {
				t.Errorf("with every row put right: %v", err)
			}
			t.Logf("%d damaged rows stopped the start, %d did not", refused, went)
			if refused < 25 {
				t.Errorf("only %d damaged rows stopped the start", refused)
			}
		})
	}
}
