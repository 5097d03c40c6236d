package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

// threePages serves keys k1 to k6, two a page.
func threePages(t *testing.T, requests *atomic.Int64) *client.Client {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.FormValue("project") != "p" || r.FormValue("page_size") != "2" {
			t.Errorf("query %s", r.URL.RawQuery)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, map[string]string{
			"":    `{"keys":[{"name":"k1"},{"name":"k2"}],"next_page_token":"a/="}`,
			"a/=": `{"keys":[{"name":"k3"},{"name":"k4"}],"next_page_token":"b"}`,
			"b":   `{"keys":[{"name":"k5"},{"name":"k6"}]}`,
		}[r.FormValue("page_token")])
	})
}

func TestAListGoesThroughAllPagesEveryTime(t *testing.T) {
	var requests atomic.Int64
	keys := threePages(t, &requests).ListKeys(t.Context(), client.ListKeysInput{Project: "p", PageSize: 2})
	for range 2 {
		var names []string
		for k, err := range keys {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, k.Name)
		}
		if want := []string{"k1", "k2", "k3", "k4", "k5", "k6"}; !slices.Equal(names, want) {
			t.Errorf("got %v, want %v", names, want)
		}
	}
	if n := requests.Load(); n != 6 {
		t.Errorf("%d requests, want 2 × 3", n)
	}
}

func TestAListFetchesNoPageThatIsNotWanted(t *testing.T) {
	var requests atomic.Int64
	for k, err := range threePages(t, &requests).ListKeys(t.Context(), client.ListKeysInput{Project: "p", PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if k.Name == "k2" {
			break
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestAnErrorEndsAList(t *testing.T) {
	for name, second := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"refused":          {403, `{"code":"permission_denied"}`, client.ErrPermissionDenied},
		"a page of itself": {200, `{"keys":[{"name":"k2"}],"next_page_token":"a"}`, client.ErrBadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.FormValue("page_token") == "" {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, `{"keys":[{"name":"k1"}],"next_page_token":"a"}`)
					return
				}
				w.Header().Set("Content-Type", map[int]string{200: "application/json", 403: "application/problem+json"}[second.status])
				w.WriteHeader(second.status)
				fmt.Fprint(w, second.body)
			})
			var errs []error
			yielded := 0
			for k, err := range c.ListKeys(t.Context(), client.ListKeysInput{}) {
				if (k == nil) != (err != nil) {
					t.Errorf("yielded %v with %v", k, err)
				}
				if err != nil {
					errs = append(errs, err)
				}
				if yielded++; yielded == 10 {
					t.Fatal("the list has no end")
				}
			}
			if len(errs) != 1 || !errors.Is(errs[0], second.want) {
				t.Errorf("errors %v, want %v once", errs, second.want)
			}
		})
	}
}
