package sqlite

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// wholeTable is a step of a plan that reads a table, or an index, from end to
// end. Steps that read no table are in capitals (SCAN CONSTANT ROW).
var wholeTable = regexp.MustCompile(`^SCAN [a-z]`)

// readWhole are the statements that may read a whole table, and why.
var readWhole = map[string]string{
	selectRowAuthentication: "a table of one row",
	sealRowAuthentication:   "a table of one row",
	listNodeSettings:        "a table of one row per node",
	listShipped:             "a table of one row per node",
	selectLastOrder:         "a table of one row per table",
	countTenants:            "counts them for an operator who sells capacity",
	wantEndpoints:           "reads the few addresses that it is given",
	selectEndpoints:         "reads the few addresses that it is given, by the key",
	selectDueJobs:           "reads what runs, by an index, and the few tenants that are busy",
	claimDeliveries:         "reads what is due, by an index, and the few tenants that are busy",
}

// TestNoStatementReadsAWholeTable asks for the plan of every statement. Plans
// do not depend on how much is stored: nothing gathers statistics.
func TestNoStatementReadsAWholeTable(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "sluice.db"))
	for _, statement := range slices.Concat(readStatements, writeStatements) {
		for _, step := range plan(t, db, statement) {
			if _, excused := readWhole[statement]; wholeTable.MatchString(step) && !excused {
				t.Errorf("%s\nin\n%s", step, statement)
			}
		}
	}
}

// TestAWholeTableIsSeenInAPlan shows that the test above can fail.
func TestAWholeTableIsSeenInAPlan(t *testing.T) {
	db := openTest(t, filepath.Join(t.TempDir(), "sluice.db"))
	steps := plan(t, db, `SELECT id FROM keys WHERE description = ?`)
	if !slices.ContainsFunc(steps, wholeTable.MatchString) {
		t.Errorf("the plan is %q", steps)
	}
}

func plan(t *testing.T, db *DB, statement string) (steps []string) {
	t.Helper()
	// Arguments that are not given are NULL; plans are the same.
	rows, err := db.writer.QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+statement, make([]any, parameters(statement))...)
	if err != nil {
		t.Fatalf("%v\n%s", err, statement)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

var parameter = regexp.MustCompile(`\?(\d*)`)

// parameters counts the parameters of a statement.
func parameters(statement string) int {
	all := parameter.FindAllString(statement, -1)
	if len(all) > 0 && all[0] != "?" {
		slices.Sort(all)
		return len(slices.Compact(all))
	}
	return len(all)
}
