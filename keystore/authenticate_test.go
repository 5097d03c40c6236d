package keystore

import (
	"bytes"
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"uuid"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
)

// forgedDriver has one tenant, whose code is not that of its row.
type forgedDriver struct{ tenantsDriver }

func (d *forgedDriver) Tenant(ctx context.Context, p TenantParams) (*TenantRow, error) {
	r, err := d.tenantsDriver.Tenant(ctx, p)
	r.Code.MAC.Bytes[7] = 1
	return r, err
}

func TestForgedRowRaisesAnAlarmOfItsOwn(t *testing.T) {
	var out bytes.Buffer
	registry := prometheus.NewPedanticRegistry()
	d := &forgedDriver{}
	d.revision.Store(1)
	s := newOpen(d, Options{Metrics: registry, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	defer s.Close()
	if _, err := s.Tenant(t.Context(), uuid.Nil()); kms.KindOf(err) != kms.KindInternal || err == nil {
		t.Fatalf("got %v", err)
	}
	got := gather(t, registry)
	if got["sluice_keystore_forged_objects_total"] != 1 || got["sluice_keystore_damaged_objects_total"] != 0 {
		t.Errorf("counted as %v forged and %v damaged", got["sluice_keystore_forged_objects_total"], got["sluice_keystore_damaged_objects_total"])
	}
	if !strings.Contains(out.String(), "alarm=row_authentication") || !strings.Contains(out.String(), "level=ERROR") {
		t.Errorf("logged %q", out.String())
	}
}

// TestRecordsDifferInEveryField changes the fields of records one by one, found
// by reflection, so that a new field cannot be left out of the code.
func TestRecordsDifferInEveryField(t *testing.T) {
	rows, err := kms.NewRowKey(map[uint32][]byte{1: make([]byte, kms.MACKeySize)})
	if err != nil {
		t.Fatal(err)
	}
	// left out, and why
	excused := map[string]string{
		"Code": "is the code", "NoncesCode": "is a code",
		"Due":       "follows from other fields, which is checked",
		"PublicKey": "of the version's own code", "Blob": "of the version's own code", "Created": "of the version's own code",
	}
	type key struct {
		KeyRecord
		Version VersionRecord
	}
	code := func(record any) string {
		var f fields
		switch r := record.(type) {
		case *TenantRecord:
			f = r.fields()
		case *ProjectRecord:
			f = r.fields()
		case *key:
			f = r.fields([]VersionRecord{r.Version})
		case *VersionRecord:
			f = r.fields(uuid.Nil(), uuid.Nil())
		case *KeyNameRecord:
			f = r.fields()
		case *CredentialRecord:
			f = r.fields()
		case *ApprovalRecord:
			f = r.fields()
		case *NodeSettingRecord:
			f = r.fields()
		case *PolicyRecord:
			f = r.fields()
		}
		mac, _, _ := rows.MAC(0, "table", f...)
		return string(mac[:])
	}
	for _, record := range []any{&TenantRecord{}, &ProjectRecord{}, &key{}, &VersionRecord{}, &KeyNameRecord{},
		&CredentialRecord{Secrets: make([]SecretRecord, 1)}, &ApprovalRecord{}, &NodeSettingRecord{}, &PolicyRecord{}} {
		_, isKey := record.(*key)
		seen := map[string]string{code(record): "nothing"}
		eachField(reflect.ValueOf(record).Elem(), "", func(name string, field reflect.Value) {
			parts := strings.Split(name, ".")
			last := parts[len(parts)-1]
			if reason, ok := excused[last]; ok && (isKey && parts[0] == "Version" || !strings.HasPrefix(reason, "of the version")) {
				return
			}
			before := reflect.New(field.Type()).Elem()
			before.Set(field)
			change(t, field)
			c := code(record)
			if other, ok := seen[c]; ok {
				t.Errorf("%T: a change of %s looks like one of %s", record, name, other)
			}
			seen[c] = name
			field.Set(before)
		})
	}
}

// eachField calls f with every field of a struct, those of structs inside and
// of the first elements of slices of structs included.
func eachField(v reflect.Value, prefix string, f func(name string, field reflect.Value)) {
	for i := range v.NumField() {
		name, field := prefix+v.Type().Field(i).Name, v.Field(i)
		switch {
		case field.Type() == reflect.TypeFor[Code]():
			f(name, field)
		case field.Kind() == reflect.Struct:
			eachField(field, name+".", f)
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			eachField(field.Index(0), name+".", f)
		default:
			f(name, field)
		}
	}
}

// change gives a field another value than the zero one.
func change(t *testing.T, field reflect.Value) {
	t.Helper()
	switch field.Kind() {
	case reflect.String:
		field.SetString("x")
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Int64:
		field.SetInt(1)
	case reflect.Uint32, reflect.Uint64:
		field.SetUint(1)
	case reflect.Slice:
		field.SetBytes([]byte("x"))
	case reflect.Array:
		field.Index(0).SetUint(1)
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem())) // of zero, which is not NULL
	default:
		t.Fatalf("a field of kind %s", field.Kind())
	}
}
