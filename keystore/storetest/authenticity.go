package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// testAuthenticity proves that rows are believed only as the service wrote
// them, where it wrote them.
func testAuthenticity(t *testing.T, open func(*testing.T) keystore.Driver) {
	driver := open(t)
	e := newEnv(t, driver)
	s, other := makeScene(t, e, "scene"), makeScene(t, e, "other")
	db := driver.(Damager)
	all := s.tamperings(other)

	t.Run("EveryColumnIsCovered", func(t *testing.T) {
		covered := map[string]bool{}
		for _, c := range all {
			covered[s.victims()[c.victim].table+"."+c.column] = true
		}
		for table, columns := range db.Columns(t) {
			for _, column := range columns {
				name := table + "." + column
				_, excused := unauthenticated[name]
				_, tableExcused := unauthenticated[table+".*"]
				if covered[name] == (excused || tableExcused) {
					t.Errorf("%s: must either be tampered with or be excused", name)
				}
			}
		}
	})
	for i, c := range all {
		t.Run(fmt.Sprintf("TamperedRowIsRefusedAlone/%s.%s/%d", c.victim, c.column, i), func(t *testing.T) {
			testTampering(t, driver, s, other, c)
		})
	}
	t.Run("SwappedRowsAreRefused", func(t *testing.T) { testSwaps(t, driver, s, other) })
	t.Run("DestroyedMaterialPutBackIsRefused", func(t *testing.T) { testPutBack(t, e, driver, other) })
	t.Run("MissingPartsAreNoticed", func(t *testing.T) { testDeletedParts(t, driver, s) })
}

// testTampering changes a row, looks, and puts it right again.
func testTampering(t *testing.T, driver keystore.Driver, s, other *scene, c tampering) {
	db, ctx := driver.(Damager), t.Context()
	victims := s.victims()
	v := victims[c.victim]
	// What goes with the column comes first, so that no key is taken.
	var changes []Damage
	for column, value := range c.also {
		changes = append(changes, Damage{Table: v.table, Column: column, Value: value, Key: v.key})
	}
	changes = append(changes, Damage{Table: v.table, Column: c.column, Value: c.value, Key: v.key})
	var undo []Damage
	for _, d := range changes {
		d.Value = db.Value(t, v.table, d.Column, v.key, v.value)
		undo = append(undo, d)
	}
	slices.Reverse(undo)
	where := v.value
	write := func(changes []Damage) {
		t.Helper()
		for _, d := range changes {
			d.KeyValue = where
			if !db.Damage(t, d) {
				t.Fatalf("%s cannot hold a value that would be a good one", d.Column)
			}
			if d.Column == v.key {
				where = d.Value
			}
		}
	}
	write(changes)
	e := newEnv(t, driver)
	wantRefused(t, "read", v.read(ctx, e), c.moves)
	if c.elsewhere != nil {
		wantRefused(t, "read where it is now", c.elsewhere(ctx, e), false)
	}
	if c.victim != "tenant" {
		// Lists read neither nonces nor documents.
		if held := s.lists(t, e); held[c.victim] && c.victim != "nonces" && c.column != "document" {
			t.Error("a list holds it")
		}
	}
	for name, w := range victims {
		if name == c.victim || slices.Contains(v.takes, name) || name == "nonces" && v.table == "key_versions" {
			continue
		}
		if slices.Contains(c.spoils, name) {
			wantRefused(t, name, w.read(ctx, e), false)
			continue
		}
		if err := w.read(ctx, e); err != nil {
			t.Errorf("the %s beside it: %v", name, err)
		}
	}
	for name, w := range other.victims() {
		if err := w.read(ctx, e); err != nil {
			t.Errorf("the other tenant's %s: %v", name, err)
		}
	}
	write(undo)
	again := newEnv(t, driver)
	if err := v.read(ctx, again); err != nil {
		t.Errorf("put right again: %v", err)
	}
}

// wantRefused expects an object to be refused as damaged, or, if its row is
// elsewhere, to be missing.
func wantRefused(t *testing.T, what string, err error, missing bool) {
	t.Helper()
	if missing {
		if err != kms.ErrNotFound {
			t.Errorf("%s: %v, want that it is missing", what, err)
		}
		return
	}
	if _, ok := errors.AsType[*keystore.RowError](err); !ok || kms.KindOf(err) != kms.KindInternal {
		t.Errorf("%s: %v, want a RowError", what, err)
	}
}

// swaps lists what is exchanged between the rows of two victims: everything
// but the columns by which a row is found.
var swaps = []struct {
	a, b    string // victims; b of the other scene where it is the same
	columns []string
}{
	{"tenant", "tenant", []string{"tier", "state", "allow_sealed", "sealing_id", "sealing_domain", "sealing_generation",
		"sealing_wrapped", "created", "revision", "mac", "mac_version"}},
	{"deleted", "deleted", []string{"tier", "state", "sealing_id", "sealing_domain", "deleted_at", "void_at", "erased_at", "shredded_at",
		"revision", "mac", "mac_version"}},
	{"project", "project", []string{"created", "mac", "mac_version"}},
	{"key", "key", keySwap},
	{"key", "pending", keySwap},
	{"version", "version", []string{"state", "created", "destroy_at", "public_key", "blob", "nonces", "mac", "mac_version",
		"nonces_mac", "nonces_mac_version"}},
	{"name", "name", []string{"kind", "key_id", "mac", "mac_version"}},
	{"credential", "credential", credentialSwap},
	{"credential", "revoked", credentialSwap},
	{"approval", "approval", []string{"op", "resource", "fingerprint", "requested_by", "approved_by", "used", "created", "expires",
		"revision", "mac", "mac_version"}},
	{"node", "node", []string{"mode", "changed", "revision", "mac", "mac_version"}},
	{"webhook", "webhook", []string{"url", "types", "secret", "state", "created", "revision", "mac", "mac_version"}},
	{"policy", "policy", []string{"document", "digest", "comment", "created", "created_by", "mac", "mac_version"}},
}

var (
	keySwap = []string{"project", "name", "spec", "usage", "protection", "state", "description", "tags", "created", "deletion_date",
		"deletion_protection", "origin", "rotation_period", "next_rotation", "due", "primary_version", "highest_version", "revision",
		"mac", "mac_version"}
	credentialSwap = []string{"project", "name", "component", "scopes", "networks", "created", "expires", "revoked", "revision",
		"mac", "mac_version"}
)

func testSwaps(t *testing.T, driver keystore.Driver, s, other *scene) {
	for _, swap := range swaps {
		from := s
		if swap.a == swap.b {
			from = other
		}
		a, b := s.victims()[swap.a], from.victims()[swap.b]
		t.Run(swap.a+" and "+swap.b, func(t *testing.T) {
			exchange(t, driver.(Damager), a, b, swap.columns)
			e := newEnv(t, driver)
			wantRefused(t, "one", a.read(t.Context(), e), false)
			wantRefused(t, "the other", b.read(t.Context(), e), false)
			exchange(t, driver.(Damager), a, b, swap.columns)
			again := newEnv(t, driver)
			for _, v := range []victim{a, b} {
				if err := v.read(t.Context(), again); err != nil {
					t.Errorf("put right again: %v", err)
				}
			}
		})
	}
}

func exchange(t *testing.T, db Damager, a, b victim, columns []string) {
	t.Helper()
	for _, column := range columns {
		left, right := db.Value(t, a.table, column, a.key, a.value), db.Value(t, b.table, column, b.key, b.value)
		db.Damage(t, Damage{Table: a.table, Column: column, Value: right, Key: a.key, KeyValue: a.value})
		db.Damage(t, Damage{Table: b.table, Column: column, Value: left, Key: b.key, KeyValue: b.value})
	}
}

// snapshot is a row's columns at some time.
type snapshot map[string]any

func takeSnapshot(t *testing.T, db Damager, v victim) snapshot {
	t.Helper()
	s := snapshot{}
	for _, column := range db.Columns(t)[v.table] {
		if column != v.key {
			s[column] = db.Value(t, v.table, column, v.key, v.value)
		}
	}
	return s
}

func (s snapshot) restore(t *testing.T, db Damager, v victim) {
	t.Helper()
	for column, value := range s {
		db.Damage(t, Damage{Table: v.table, Column: column, Value: value, Key: v.key, KeyValue: v.value})
	}
}

// testPutBack destroys a version and a key and puts rows from before back, one
// table at a time.
func testPutBack(t *testing.T, e *env, driver keystore.Driver, s *scene) {
	ctx, db := t.Context(), driver.(Damager)
	version, key := s.victims()["version"], s.victims()["key"]
	before := takeSnapshot(t, db, version)
	if _, err := e.DestroyVersion(ctx, s.tenant.ID, s.key.ID, s.key.Revision, 1); err != nil {
		t.Fatal(err)
	}
	destroyed, keyBefore := takeSnapshot(t, db, version), takeSnapshot(t, db, key)
	before.restore(t, db, version)
	wantRefused(t, "a key with a destroyed version that is back", key.read(ctx, newEnv(t, driver)), false)
	destroyed.restore(t, db, version)
	if err := key.read(ctx, newEnv(t, driver)); err != nil {
		t.Fatalf("put right again: %v", err)
	}

	if err := e.DestroyKey(ctx, s.tenant.ID, s.key.ID, s.key.Revision+1); err != nil {
		t.Fatal(err)
	}
	tombstone := takeSnapshot(t, db, key)
	wantRefused(t, "a destroyed key", key.read(ctx, newEnv(t, driver)), true)
	keyBefore.restore(t, db, key)
	wantRefused(t, "a destroyed key that is back without its versions", key.read(ctx, newEnv(t, driver)), false)
	tombstone.restore(t, db, key)
	wantRefused(t, "put right again", key.read(ctx, newEnv(t, driver)), true)
}

// testDeletedParts removes parts of objects for good.
func testDeletedParts(t *testing.T, driver keystore.Driver, s *scene) {
	db := driver.(Damager)
	for name, of := range map[string]string{"version": "key", "secret": "credential"} {
		v, whole := s.victims()[name], s.victims()[of]
		db.Delete(t, v.table, v.key, v.value)
		wantRefused(t, "a "+of+" without a "+name, whole.read(t.Context(), newEnv(t, driver)), false)
	}
}
