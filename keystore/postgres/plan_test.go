package postgres

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-kms/sluice/keystore/postgres/pgtest"
)

// planRows is how many rows the large tables have, so many that the planner
// takes an index where it can.
const planRows = 20_000

// largeTables are the tables that grow with use, and what fills them. Their
// codes are missing, which no plan depends on.
var largeTables = map[string]string{
	"tenants": `INSERT INTO tenants (id, name, tier, state, allow_sealed, sealing_id, sealing_domain, sealing_generation,
			sealing_wrapped, created, revision)
		SELECT md5(i::text)::uuid, 'tenant-' || i, 'gold', 'ACTIVE', false, md5(i::text)::uuid, md5('d')::uuid, 1,
			'\x0102', now(), 1 FROM generate_series(1, $1) i`,
	"projects": `INSERT INTO projects (tenant, name, created)
		SELECT md5(i::text)::uuid, 'default', now() FROM generate_series(1, $1) i`,
	"keys": `INSERT INTO keys (tenant, id, project, name, spec, usage, protection, state, description, tags, created,
			deletion_protection, origin, rotation_period, next_rotation, due, primary_version, highest_version, revision)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, 'default', 'key-' || i, 'AES_256', 'ENCRYPT_DECRYPT', 'HSM',
			'ENABLED', '', '{}', now(), false, 'GENERATED', 1000000, now() + i * interval '1 minute',
			now() + i * interval '1 minute', 1, 1, 1 FROM generate_series(1, $1) i`,
	"key_versions": `INSERT INTO key_versions (tenant, key_id, id, number, state, created, blob, nonces)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, md5(i::text)::uuid, 1, 'ENABLED', now(),
			decode(repeat('00', 150), 'hex'), 0 FROM generate_series(1, $1) i`,
	"key_names": `INSERT INTO key_names (tenant, name, kind, key_id)
		SELECT md5((i / 10)::text)::uuid, 'key-' || i, CASE i % 10 WHEN 0 THEN 'ALIAS' ELSE 'NAME' END, md5(i::text)::uuid
		FROM generate_series(1, $1) i`,
	"alias_revisions": `INSERT INTO alias_revisions (tenant, name, key_id, revision)
		SELECT md5((i / 10)::text)::uuid, 'key-' || i, md5(i::text)::uuid, 4294967296 FROM generate_series(1, $1) i`,
	"credentials": `INSERT INTO credentials (tenant, id, project, name, component, scopes, networks, created, revision)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, 'default', 'credential-' || i, '', '[]', '[]', now(), 1
		FROM generate_series(1, $1) i`,
	"credential_secrets": `INSERT INTO credential_secrets (tenant, credential, position, hash, pepper_version, created)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, 0, decode(repeat('00', 32), 'hex'), 1, now()
		FROM generate_series(1, $1) i`,
	"credential_baselines": `INSERT INTO credential_baselines (tenant, credential, document, stored)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, '\x01', now() FROM generate_series(1, $1) i`,
	"idempotency": `INSERT INTO idempotency (tenant, credential, claim, fingerprint, state, resource, secret, expires)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, '\x01', decode(repeat('00', 32), 'hex'), 'IN_FLIGHT', '', false,
			now() + i * interval '1 second' FROM generate_series(1, $1) i`,
	"webhooks": `INSERT INTO webhooks (tenant, id, url, types, secret, state, created, revision)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, 'https://hooks.example.com', '[]', '\x01', 'ACTIVE', now(), 1
		FROM generate_series(1, $1) i`,
	"deliveries": `INSERT INTO deliveries (tenant, webhook, event, once, type, body, created, due, attempts, ended)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, md5(i::text)::uuid, 'once-' || i, 'node.down', '\x01', now(),
			CASE WHEN i % 2 = 0 THEN now() + i * interval '1 second' END, 1,
			CASE WHEN i % 2 = 1 THEN now() - i * interval '1 second' END FROM generate_series(1, $1) i`,
	"secrets": `INSERT INTO secrets (tenant, id, path, state, document, due, revision)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, 'llm/' || i, 'ACTIVE', '{}',
			CASE WHEN i % 10 = 0 THEN now() + i * interval '1 minute' END, i FROM generate_series(1, $1) i`,
	"secret_versions": `INSERT INTO secret_versions (tenant, secret_id, number, data_key, value)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, 1, '\x01', '\x01' FROM generate_series(1, $1) i`,
	"secret_revisions": `INSERT INTO secret_revisions (tenant, revision) SELECT md5(i::text)::uuid, 1 FROM generate_series(1, $1) i`,
	"secret_changes": `INSERT INTO secret_changes (tenant, revision, path, kind, made)
		SELECT md5((i / 10)::text)::uuid, i, 'llm/' || i, 'changed', now() + i * interval '1 second' FROM generate_series(1, $1) i`,
	"secret_outcomes": `INSERT INTO secret_outcomes (tenant, secret_id, version, ok, credential, quota, rate_limit, transient)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, 1, 0, 0, 0, 0, 0 FROM generate_series(1, $1) i`,
	"routes": `INSERT INTO routes (tenant, name, document, revision)
		SELECT md5((i / 10)::text)::uuid, 'route-' || i, '{}', 1 FROM generate_series(1, $1) i`,
	"route_ends": `INSERT INTO route_ends (tenant, name, revision)
		SELECT md5((i / 10)::text)::uuid, 'route-' || i, 1 FROM generate_series(1, $1) i`,
	"route_health": `INSERT INTO route_health (tenant, name, route, document, revision)
		SELECT md5((i / 10)::text)::uuid, 'route-' || i, md5(i::text)::uuid, '{}', 1 FROM generate_series(1, $1) i`,
	"jobs": `INSERT INTO jobs (tenant, id, credential, state, expires, document, revision, due, waits)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, md5('c')::uuid, CASE WHEN i % 100 = 0 THEN 'RUNNING' ELSE 'DONE' END,
			now() + i * interval '1 second', '{}', 1, now(), '' FROM generate_series(1, $1) i`,
	"job_chunks": `INSERT INTO job_chunks (tenant, job, number, id, first, items, state, pass, pending, failed, charged, owner, position, due,
			revision, output)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, n, md5(i::text)::uuid, n, 1, CASE WHEN i % 100 = 0 THEN 'QUEUED' ELSE 'DONE' END, 1, 0,
			0, 0, 'node', 1, CASE WHEN i % 100 = 0 THEN now() + i * interval '1 second' END, 1, '\x01'
		FROM generate_series(1, $1 / 2) i, generate_series(0, 1) n`,
	"endpoint_probes": `INSERT INTO endpoint_probes (url, misses, due, wanted)
		SELECT 'https://' || i, 0, now() + i * interval '1 second', now() + i * interval '1 second' FROM generate_series(1, $1) i`,
	"cost_incidents": `INSERT INTO cost_incidents (tenant, id, ended, document)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, now() + i * interval '1 second', '{}' FROM generate_series(1, $1) i`,
	"cost_lifts": `INSERT INTO cost_lifts (tenant, lifted) SELECT md5(i::text)::uuid, now() FROM generate_series(1, $1) i`,
	"request_records": `INSERT INTO request_records (tenant, request, document, expires)
		SELECT md5((i / 10)::text)::uuid, md5(i::text)::uuid, '{}', now() + i * interval '1 second' FROM generate_series(1, $1) i`,
	"audit_entries": `INSERT INTO audit_entries (ordinal, node, sequence, tenant, time, request, project, component, op, key_id,
			credential, outcome, payload)
		SELECT 1000 + i, 'node', i, md5((i / 10)::text)::uuid, now() + i * interval '1 second', md5(i::text)::uuid, '', '', 'sign',
			md5(i::text)::uuid, md5(i::text)::uuid, 'ok', '{}' FROM generate_series(1, $1) i`,
	"usage_rollups": `INSERT INTO usage_rollups (tenant, granularity, start, project, component, key_id, algorithm, op, reason, policy,
			requests, charged, bytes, slot, wait)
		SELECT md5((i / 10)::text)::uuid, (ARRAY['minute', 'hour', 'day'])[1 + i % 3], now() + i * interval '1 second', '', '',
			md5(i::text)::uuid, '', 'sign', '', 0, 1, 1, 1, 1, 1 FROM generate_series(1, $1) i`,
	"policies": `INSERT INTO policies (version, document, digest, comment, created, created_by)
		SELECT i, '{}', decode(repeat('00', 32), 'hex'), '', now(), md5(i::text)::uuid FROM generate_series(1, $1) i`,
	"journal_heads": `INSERT INTO journal_heads (node, hour, sequence, hash, signed, algorithm, key_version, signature)
		SELECT 'node-' || i % 4, i, i, decode(repeat('00', 32), 'hex'), now(), 'ECDSA_SHA_256', 1, '\x01'
		FROM generate_series(1, $1) i`,
	"approvals": `INSERT INTO approvals (id, op, resource, fingerprint, requested_by, used, created, expires, revision)
		SELECT md5(i::text)::uuid, 'destroy', '', decode(repeat('00', 32), 'hex'), md5('o')::uuid, false, now(),
			now() + i * interval '1 second', 1 FROM generate_series(1, $1) i`,
	"changes": `INSERT INTO changes (xid, object, tenant, id, made)
		SELECT i::text::xid8, 'key', md5((i / 10)::text)::uuid, md5(i::text)::uuid, now() - i * interval '1 second'
		FROM generate_series(1, $1) i`,
}

// smallTables may be read as a whole, and why.
var smallTables = map[string]string{
	"row_authentication": "a table of one row",
	"system_secrets":     "a row for each version of a secret of the service",
	"node_settings":      "a row for each node",
	"shipped":            "a row for each node",
	"shipping":           "a table of one row",
}

// planner explains statements as the service's role, in a database with
// planRows rows in each large table.
type planner struct {
	conn  *pgx.Conn
	plans []explained // of statements inside of functions, since the last call
}

// explained is a plan as EXPLAIN and auto_explain write it.
type explained struct{ Plan node }

// node is what a step of a plan tells, as far as it matters here.
type node struct {
	Type      string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	Index     string `json:"Index Name"`
	Condition string `json:"Index Cond"`
	Plans     []node
}

// wholeTables returns the steps that read a table, or an index, from end to end.
func (n *node) wholeTables() (steps []string) {
	index := n.Type == "Index Scan" || n.Type == "Index Only Scan" || n.Type == "Bitmap Index Scan"
	_, large := largeTables[n.Relation] // others are small, or the catalogue's
	if n.Type == "Bitmap Index Scan" {
		large = true // the table is named by the step above
	}
	if large && (n.Type == "Seq Scan" || index && n.Condition == "") {
		steps = append(steps, strings.TrimSpace(fmt.Sprintf("%s on %s %s", n.Type, n.Relation, n.Index)))
	}
	for i := range n.Plans {
		steps = append(steps, n.Plans[i].wholeTables()...)
	}
	return steps
}

func newPlanner(t *testing.T) *planner {
	t.Helper()
	p := new(planner)
	config, err := pgx.ParseConfig(newDatabase(t).Admin)
	if err != nil {
		t.Fatal(err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { p.heard(t, notice.Message) }
	if p.conn, err = pgx.ConnectConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.Close(context.WithoutCancel(t.Context())) })
	p.exec(t, `SET search_path = sluice; SET session_replication_role = replica`)
	for _, fill := range largeTables {
		if _, err := p.conn.Exec(t.Context(), fill, planRows); err != nil {
			t.Fatalf("%v\n%s", err, fill)
		}
	}
	p.exec(t, `ANALYZE`)
	p.exec(t, `SET session_replication_role = origin`)
	p.exec(t, `LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
		SET auto_explain.log_format = json; SET client_min_messages = log`)
	// Statements are prepared once and run with any arguments.
	p.exec(t, `SET plan_cache_mode = force_generic_plan; SET ROLE sluice_service`)
	p.exec(t, `SELECT set_config('app.tenant', md5('1')::uuid::text, false)`)
	return p
}

// heard keeps a plan that auto_explain reports.
func (p *planner) heard(t *testing.T, message string) {
	_, plan, found := strings.Cut(message, "plan:\n")
	if !found {
		return
	}
	var e explained
	if err := json.Unmarshal([]byte(plan), &e); err != nil {
		t.Errorf("%v in %s", err, plan)
	}
	p.plans = append(p.plans, e)
}

// exec runs statements without arguments and returns the last one's first
// column.
func (p *planner) exec(t *testing.T, sql string) (column []string) {
	t.Helper()
	results, err := p.conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	for _, row := range results[len(results)-1].Rows {
		column = append(column, string(row[0]))
	}
	return column
}

// arguments are values for parameters by their types.
var arguments = map[string]string{
	"uuid": `md5('1')::uuid`, "timestamp with time zone": `now()`, "text": `'key-1'`, "bigint": `10`, "integer": `10`,
	"bytea": `'\x01'::bytea`, "boolean": `true`, "uuid[]": `ARRAY[md5('1')::uuid]`,
	"text[]": `ARRAY['minute']`, "bigint[]": `ARRAY[10::bigint]`, "bytea[]": `ARRAY['\x01'::bytea]`, "timestamp with time zone[]": `ARRAY[now()]`,
}

func argumentsOf(t *testing.T, types []string, what string) string {
	t.Helper()
	values := make([]string, len(types))
	for i, name := range types {
		if values[i] = arguments[name]; values[i] == "" {
			t.Fatalf("no argument of type %q for\n%s", name, what)
		}
	}
	return strings.Join(values, ", ")
}

// explain returns what a statement reads as a whole. It does not run it.
func (p *planner) explain(t *testing.T, statement string) []string {
	t.Helper()
	p.exec(t, `PREPARE statement AS `+statement)
	defer p.exec(t, `DEALLOCATE statement`)
	types := p.exec(t, `SELECT unnest(parameter_types)::text FROM pg_prepared_statements WHERE name = 'statement'`)
	call := `EXECUTE statement`
	if len(types) > 0 {
		call += "(" + argumentsOf(t, types, statement) + ")"
	}
	out := p.exec(t, `EXPLAIN (FORMAT JSON) `+call)
	var plans []explained
	if err := json.Unmarshal([]byte(strings.Join(out, "\n")), &plans); err != nil || len(plans) == 0 {
		t.Fatalf("%v in %s", err, out)
	}
	var steps []string
	for i := range plans {
		steps = append(steps, plans[i].Plan.wholeTables()...)
	}
	return steps
}

// statements returns the constants of the package that are statements with a
// plan, by their names: whatever is added is found.
func statements(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	constants := make(map[string]ast.Expr)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			declaration, ok := d.(*ast.GenDecl)
			if !ok || declaration.Tok != token.CONST {
				continue
			}
			for _, s := range declaration.Specs {
				spec := s.(*ast.ValueSpec)
				for i := range spec.Values {
					constants[spec.Names[i].Name] = spec.Values[i]
				}
			}
		}
	}
	found := make(map[string]string)
	for name, e := range constants {
		if text, ok := fold(e, constants); ok && planned.MatchString(text) && complete(name, constants) {
			found[name] = text
		}
	}
	return found
}

// planned are the statements that have a plan.
var planned = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b`)

// complete tells whether a constant is a statement, and no beginning of others.
func complete(name string, constants map[string]ast.Expr) bool {
	for _, e := range constants {
		if sum, ok := e.(*ast.BinaryExpr); ok {
			for l, ok := sum.X.(*ast.BinaryExpr); ok; l, ok = sum.X.(*ast.BinaryExpr) {
				sum = l
			}
			if first, ok := sum.X.(*ast.Ident); ok && first.Name == name {
				return false
			}
		}
	}
	return true
}

// fold returns the value of a constant text.
func fold(e ast.Expr, constants map[string]ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.Ident:
		if value, ok := constants[e.Name]; ok {
			return fold(value, constants)
		}
	case *ast.BinaryExpr:
		left, ok := fold(e.X, constants)
		right, also := fold(e.Y, constants)
		return left + right, ok && also
	}
	return "", false
}

// TestNoStatementReadsAWholeTable asks for the plan of every statement of the
// package and of every one inside of the functions that they call, and shows
// that it would see one that does.
func TestNoStatementReadsAWholeTable(t *testing.T) {
	pgtest.Require(t)
	p := newPlanner(t)
	t.Run("Statements", func(t *testing.T) { testPlansOfStatements(t, p) })
	t.Run("Functions", func(t *testing.T) { testPlansOfFunctions(t, p) })
	p.exec(t, `RESET ROLE`)
	t.Run("EveryTableIsFilled", func(t *testing.T) { testTablesOfPlans(t, p) })
	t.Run("OneThatDoesIsSeen", func(t *testing.T) { testWholeTables(t, p) })
}

func testPlansOfStatements(t *testing.T, p *planner) {
	all := statements(t)
	if len(all) < 50 {
		t.Fatalf("%d statements are found: that cannot be all", len(all))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if steps := p.explain(t, all[name]); len(steps) > 0 {
			t.Errorf("%s reads as a whole: %q", name, steps)
		}
	}
}

func testPlansOfFunctions(t *testing.T, p *planner) {
	functions := p.exec(t, `SELECT oid::regproc::text || '(' || oidvectortypes(proargtypes) || ')' FROM pg_proc
		WHERE pronamespace = 'sluice'::regnamespace AND prorettype <> 'trigger'::regtype AND pronargs > 0 ORDER BY 1`)
	if len(functions) < 6 {
		t.Fatalf("%d functions are found: that cannot be all", len(functions))
	}
	for _, f := range functions {
		name, types, _ := strings.Cut(strings.TrimSuffix(f, ")"), "(")
		p.plans = nil
		p.exec(t, `BEGIN`)
		p.exec(t, `SELECT * FROM `+name+`(`+argumentsOf(t, strings.Split(types, ", "), f)+`)`)
		p.exec(t, `ROLLBACK`)
		if len(p.plans) < 2 {
			t.Errorf("%s: %d plans are reported, want that of the call and those inside", f, len(p.plans))
		}
		for i := range p.plans {
			if steps := p.plans[i].Plan.wholeTables(); len(steps) > 0 {
				t.Errorf("%s reads as a whole: %q", f, steps)
			}
		}
	}
}

// testTablesOfPlans keeps largeTables complete: the planner reads what is empty
// as a whole.
func testTablesOfPlans(t *testing.T, p *planner) {
	for _, table := range p.exec(t, `SELECT relname FROM pg_class WHERE relnamespace = 'sluice'::regnamespace AND relkind = 'r'`) {
		_, large := largeTables[table]
		_, small := smallTables[table]
		if !large && !small && !strings.HasPrefix(table, "goose") {
			t.Errorf("the table %s is neither large nor small", table)
		}
	}
}

// testWholeTables reads a table, an index, and a table inside of a function.
func testWholeTables(t *testing.T, p *planner) {
	for statement, want := range map[string]string{
		`SELECT id FROM keys WHERE description = $1`: "Seq Scan on keys",
		`SELECT id FROM credentials ORDER BY id`:     "Index Only Scan on credentials credentials_by_id",
	} {
		if steps := p.explain(t, statement); !slices.Contains(steps, want) {
			t.Errorf("%s: %q, want %q", statement, steps, want)
		}
	}
	p.exec(t, `CREATE FUNCTION careless(text) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = sluice, pg_temp
		AS $$SELECT count(*) FROM keys WHERE description = $1$$`)
	p.plans = nil
	p.exec(t, `SELECT careless('x')`)
	if !slices.ContainsFunc(p.plans, func(e explained) bool { return len(e.Plan.wholeTables()) > 0 }) {
		t.Errorf("a function that reads a whole table is not seen in %d plans", len(p.plans))
	}
}
