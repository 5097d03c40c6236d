package storetest

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

// listedKeys is how many keys the test of lists pages through.
const listedKeys = 1000

// trickyNames are in a different order for every collation but bytes.
var trickyNames = []string{"A", "B", "Z", "a", "a-b", "a.b", "a/b", "a0", "aB", "aZ", "a_b", "aa", "ab", "b", "z", "0", "9",
	strings.Repeat("z", kms.MaxNameLength)}

func testLists(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	tenant, other := e.tenant(t, "lists"), e.tenant(t, "other-lists")
	if err := e.CreateProject(ctx, &kms.Project{Tenant: tenant.ID, Name: "side", Created: start}); err != nil {
		t.Fatal(err)
	}
	e.key(t, other, "a-not-mine")
	names, side := createListedKeys(t, e, tenant)

	keys := func(ctx context.Context, project string, page kms.Page) ([]string, string, error) {
		list, next, err := e.ListKeys(ctx, tenant.ID, project, page)
		return namesOf(list, func(k *kms.Key) string { return k.Name }), next, err
	}
	for _, size := range []int{1000, 999, 333, 64, 1} {
		t.Run(fmt.Sprintf("KeysInByteOrderByPagesOf%d", size), func(t *testing.T) {
			checkPages(t, size, names, func(p kms.Page) ([]string, string, error) { return keys(ctx, "", p) })
		})
	}
	t.Run("KeysOfAProject", func(t *testing.T) {
		checkPages(t, 7, side, func(p kms.Page) ([]string, string, error) { return keys(ctx, "side", p) })
		if list, next, err := keys(ctx, "none", kms.Page{Size: 10}); len(list) != 0 || next != "" || err != nil {
			t.Errorf("keys of no project: %v, %q, %v", list, next, err)
		}
	})
	t.Run("ListedKeysAreWhole", func(t *testing.T) {
		list, _, err := e.ListKeys(ctx, tenant.ID, "", kms.Page{Size: 1})
		if err != nil || len(list) != 1 || list[0].Tenant.ID != tenant.ID || len(list[0].Versions) != 1 {
			t.Errorf("ListKeys = %+v, %v", list, err)
		}
	})
	t.Run("Tenants", func(t *testing.T) {
		want := []string{"lists", "other-lists", kms.SystemTenantName}
		for _, name := range trickyNames {
			want = append(want, e.tenant(t, name).Name)
		}
		slices.Sort(want)
		checkPages(t, 4, want, func(p kms.Page) ([]string, string, error) {
			list, next, err := e.ListTenants(ctx, p)
			return namesOf(list, func(t *kms.Tenant) string { return t.Name }), next, err
		})
	})
	t.Run("Projects", func(t *testing.T) {
		want := []string{kms.DefaultProject, "side"}
		for _, name := range trickyNames {
			if err := e.CreateProject(ctx, &kms.Project{Tenant: tenant.ID, Name: name, Created: start}); err != nil {
				t.Fatal(err)
			}
			want = append(want, name)
		}
		slices.Sort(want)
		checkPages(t, 4, want, func(p kms.Page) ([]string, string, error) {
			list, next, err := e.ListProjects(ctx, tenant.ID, p)
			return namesOf(list, func(p *kms.Project) string { return p.Name }), next, err
		})
	})
	t.Run("CredentialsOfOneNameByID", func(t *testing.T) {
		var want []string
		position := func(c *kms.Credential) string { return c.Name + " " + c.ID.String() }
		for range 3 {
			for _, name := range trickyNames {
				want = append(want, position(e.credential(t, tenant.ID, name)))
			}
		}
		// A space sorts before everything that a name may hold.
		slices.Sort(want)
		checkPages(t, 4, want, func(p kms.Page) ([]string, string, error) {
			list, next, err := e.ListCredentials(ctx, tenant.ID, p)
			return namesOf(list, position), next, err
		})
	})
	t.Run("Tokens", func(t *testing.T) { testTokens(t, e, tenant, other) })
}

// createListedKeys creates keys in a random order and returns their names in
// byte order, and those of the project "side".
func createListedKeys(t *testing.T, e *env, tenant *kms.Tenant) (names, side []string) {
	names = slices.Clone(trickyNames)
	for i := len(names); i < listedKeys; i++ {
		names = append(names, fmt.Sprintf("key-%d", i))
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			for i := worker; i < len(names); i += 4 {
				k := sampleKey(tenant, names[i])
				if i%10 == 0 {
					k.Project = "side"
				}
				if err := e.CreateKey(t.Context(), k); err != nil {
					t.Errorf("creating a key: %v", err)
				}
			}
		})
	}
	group.Wait()
	for i := 0; i < len(names); i += 10 {
		side = append(side, names[i])
	}
	slices.Sort(names)
	slices.Sort(side)
	return names, side
}

func namesOf[T any](list []T, name func(T) string) []string {
	names := make([]string, len(list))
	for i, item := range list {
		names[i] = name(item)
	}
	return names
}

// checkPages reads a list page by page and compares it with what it should
// hold: every page full but the last, everything once, in order.
func checkPages(t *testing.T, size int, want []string, read func(kms.Page) ([]string, string, error)) {
	t.Helper()
	var got []string
	page := kms.Page{Size: size}
	for {
		names, next, err := read(page)
		if err != nil {
			t.Fatalf("after %d items: %v", len(got), err)
		}
		got = append(got, names...)
		if next == "" {
			break
		}
		if len(names) != size {
			t.Fatalf("a page of %d items, want %d", len(names), size)
		}
		page.Token = next
	}
	if !slices.Equal(got, want) {
		t.Errorf("read %d items, want %d in byte order\n got %.300q\nwant %.300q", len(got), len(want), got, want)
	}
}

func testTokens(t *testing.T, e *env, tenant, other *kms.Tenant) {
	ctx := t.Context()
	list := func(tenant *kms.Tenant, project, token string) error {
		_, _, err := e.ListKeys(ctx, tenant.ID, project, kms.Page{Size: 10, Token: token})
		return err
	}
	_, token, err := e.ListKeys(ctx, tenant.ID, "", kms.Page{Size: 10})
	if err != nil || token == "" {
		t.Fatalf("no token to test with: %v", err)
	}
	if err := list(tenant, "", token); err != nil {
		t.Fatalf("the token itself: %v", err)
	}
	wantKind(t, "another tenant's token", list(other, "", token), kms.KindInvalidArgument)
	wantKind(t, "another project's token", list(tenant, "side", token), kms.KindInvalidArgument)
	_, _, err = e.ListProjects(ctx, tenant.ID, kms.Page{Size: 10, Token: token})
	wantKind(t, "another list's token", err, kms.KindInvalidArgument)
	for i := range len(token) {
		for _, c := range []byte("A-z") {
			if token[i] == c {
				continue
			}
			changed := []byte(token)
			changed[i] = c
			wantKind(t, "changed token", list(tenant, "", string(changed)), kms.KindInvalidArgument)
		}
		wantKind(t, "cut token", list(tenant, "", token[i+1:]+"!"), kms.KindInvalidArgument)
		if i > 0 {
			wantKind(t, "cut token", list(tenant, "", token[:i]), kms.KindInvalidArgument)
		}
	}
	for _, bad := range []string{" ", "=", "%", token + "=", token + "A", token + "\n", "A", "AAAA",
		base64.RawURLEncoding.EncodeToString(make([]byte, 64)), strings.Repeat("A", 1<<20)} {
		wantKind(t, "made-up token", list(tenant, "", bad), kms.KindInvalidArgument)
	}
	for _, size := range []int{-1, 0, kms.MaxPageSize + 1} {
		_, _, err := e.ListKeys(ctx, tenant.ID, "", kms.Page{Size: size})
		wantKind(t, "page size", err, kms.KindInvalidArgument)
	}
	// The longest name there is fits into a token.
	if _, _, err := e.ListKeys(ctx, tenant.ID, "", kms.Page{Size: 1000}); err != nil {
		t.Error(err)
	}
}
