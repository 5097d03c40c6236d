package kms_test

import (
	"slices"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// What an entry of a change proves of an alias or a route: at least one more than
// before, and nothing when it is from before their revisions only grew.
func TestEntriesOfAliasesAndRoutesProveTheirRevisions(t *testing.T) {
	tenant := uuid.NewV7()
	of := func(object kms.RowObject, revision uint64) []kms.StoredRevision {
		return []kms.StoredRevision{{Object: object, Tenant: tenant, Name: "a", Revision: revision}}
	}
	row := func(revision uint64) []kms.StoredRevision { return of(kms.RowOfAlias, revision) }
	const first, routes = kms.FirstAliasRevision, kms.RouteRevisions
	for name, c := range map[string]struct {
		op       kms.Op
		revision uint64
		made     bool
		want     []kms.StoredRevision
	}{
		"set for the first time":      {kms.OpSetAlias, 0, true, nil},
		"moved":                       {kms.OpSetAlias, first, true, row(first + 1)},
		"not moved":                   {kms.OpSetAlias, first + 3, false, row(first + 3)},
		"taken away":                  {kms.OpDeleteAlias, first + 3, true, row(first + 4)},
		"moved by an earlier release": {kms.OpSetAlias, 7, true, nil},
		"removed by an earlier one":   {kms.OpDeleteAlias, 0, true, nil},
		"a route made":                {kms.OpPutRoute, routes, true, of(kms.RowOfRoute, routes+1)},
		"replaced":                    {kms.OpPutRoute, routes + 4, true, of(kms.RowOfRoute, routes+5)},
		"deleted":                     {kms.OpDeleteRoute, routes + 5, true, of(kms.RowOfRoute, routes+6)},
		"deleted by an earlier one":   {kms.OpDeleteRoute, 5, true, nil},
	} {
		e := kms.Entry{Op: c.op, Tenant: tenant, Key: uuid.NewV7(), Resource: "a", Revision: c.revision}
		if got := e.StoredRevisions(c.made); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
