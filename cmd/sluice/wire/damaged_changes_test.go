package wire_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A node reads what the others changed for as long as it runs. A record of a
// change that nobody should have written, in each of its columns, does not stop
// it from following those that come after.
func TestDamagedChangesAreFollowedAllTheSame(t *testing.T) {
	c := newCluster(t)
	a, b := c.start(t, 1), c.start(t, 2)
	a.Operator = c.operator(t, a.app)
	decrypt := ordersOn(t, a, b)
	serves := func() bool { status, _ := decrypt(); return status == http.StatusOK }
	within(t, 2*time.Second, "a new key", serves)
	raw := rawPostgres(t, c.urls.Admin)
	damaged := 0
	for _, column := range raw.columns["changes"] {
		if column.name == "xid" {
			continue // of the transaction: it is how the row is found
		}
		for _, value := range column.values {
			row := map[string]string{"object": "'key'", "tenant": "gen_random_uuid()", "id": "gen_random_uuid()",
				"name": "NULL", "revision": "1", "made": "now()"}
			row[column.name] = value
			var names, values []string
			for name, value := range row {
				names, values = append(names, name), append(values, value)
			}
			raw.exec(t, fmt.Sprintf(`INSERT INTO changes (%s) VALUES (%s)`, strings.Join(names, ", "), strings.Join(values, ", ")))
			damaged++
		}
	}
	raw.exec(t, `NOTIFY sluice_changes`)
	const polled = 1500 * time.Millisecond // as in TestNodeThatHearsNoAnnouncementsFollowsByPolling
	for range 2 {
		must(t, a.Service, "/v1/keys/orders/disable", object{})
		within(t, polled, "disabling the key", func() bool {
			status, code := decrypt()
			if status != http.StatusOK && status != http.StatusConflict {
				t.Fatalf("%d %s", status, code)
			}
			return status == http.StatusConflict
		})
		must(t, a.Service, "/v1/keys/orders/enable", object{})
		within(t, polled, "enabling the key", serves)
	}
	t.Logf("%d damaged records of changes", damaged)
	if damaged < 10 {
		t.Errorf("only %d records were damaged", damaged)
	}
}
