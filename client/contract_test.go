package client_test

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// withoutMethod are the routes that no method of Client calls, and why.
var withoutMethod = map[string]string{
	"delete-key":       "schedule-key-deletion does the same",
	"read-job-results": "its answer is lines: TestResultsOfAJobAreReadAsFarAsTheyAre",
	"watch-secrets":    "its answer is a stream: TestAWatchYieldsEventsUntilItEnds",
}

// TestEveryRouteHasAMethodThatSpeaksItsLanguage holds the client against the
// service's table of routes: every route is called by a method, whose request
// has no field that the service does not know, and from whose output no field
// of the answer is missing.
func TestEveryRouteHasAMethodThatSpeaksItsLanguage(t *testing.T) {
	called := map[string]bool{}
	for _, tc := range calls {
		t.Run(tc.name, func(t *testing.T) {
			var item jsontext.Value // what the method should return
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				route := routeOf(r.Method, tc.target)
				if route == nil {
					t.Errorf("the service has no route for %s %s", r.Method, tc.target)
					return
				}
				called[route.Name] = true
				if given := r.Header.Get("Idempotency-Key") != ""; given != route.Op.Info().Changes {
					t.Errorf("an Idempotency-Key is sent: %v, and the route changes something: %v", given, route.Op.Info().Changes)
				}
				if body := readAll(t, r.Body); body != "" && route.Body == "" {
					if route.Request == nil {
						t.Error("the route takes no body")
						return
					}
					if err := json.Unmarshal([]byte(body), reflect.New(route.Request).Interface(), json.RejectUnknownMembers(true)); err != nil {
						t.Errorf("the service cannot read %s: %v", body, err)
					}
				}
				answer := reflect.New(route.Response)
				fill(answer.Elem(), "")
				body, err := json.Marshal(answer.Interface())
				if err != nil {
					t.Error(err)
				}
				item = firstItem(t, route, body)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(route.Success)
				w.Write(body)
			})
			got, err := tc.do(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := canonical(t, encoded), canonical(t, item); got != want {
				t.Errorf("the output has lost or changed a field:\n got %s\nwant %s", got, want)
			}
		})
	}
	for _, r := range api.Routes() {
		// The routes of the Vault facade are for clients of Vault.
		if !called[r.Name] && !r.Public && r.Vault == nil && withoutMethod[r.Name] == "" {
			t.Errorf("no method calls %s (%s %s): write one, or say in withoutMethod why there is none", r.Name, r.Method, r.Path)
		}
	}
}

// routeOf finds the route of a request.
func routeOf(method, target string) *api.Route {
	u, err := url.Parse(target)
	if err != nil {
		return nil
	}
	segments := strings.Split(u.EscapedPath(), "/")
	for _, r := range api.Routes() {
		pattern := strings.Split(r.Path, "/")
		match := r.Method == method && len(pattern) == len(segments)
		for i := 0; match && i < len(pattern); i++ {
			match = pattern[i] == segments[i] || strings.HasPrefix(pattern[i], "{")
		}
		if match {
			return &r
		}
	}
	return nil
}

// fill gives every field a value, so that none is left out of the JSON.
func fill(v reflect.Value, name string) {
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		return
	case reflect.TypeFor[uuid.UUID]():
		v.Set(reflect.ValueOf(uuid.NewV7()))
		return
	case reflect.TypeFor[api.Cost]():
		v.SetInt(int64(12*kms.Credit + kms.Credit/10))
		return
	case reflect.TypeFor[api.PolicyDocument]():
		v.SetBytes([]byte(`{"gate":{"safe_percent":85}}`))
		return
	case reflect.TypeFor[api.SecretText]():
		v.SetBytes([]byte("[redacted]")) // what a Value makes of itself in JSON
		return
	case reflect.TypeFor[api.BatchOutcome]():
		v.SetBytes([]byte(`{"mac":"+/8="}`))
		return
	case reflect.TypeFor[api.Bytes]():
		v.SetBytes([]byte{0xfb, 0xff})
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(map[string]string{
			"networks":   "10.0.0.0/8",
			"credential": "[redacted]", // what a Token makes of itself in JSON
			"secret":     "[redacted]", // the same, of a webhook
		}[name])
		if v.String() == "" {
			v.SetString("text")
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name)
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, "")
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("name"), value)
	case reflect.Struct:
		for i := range v.NumField() {
			tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if tag != "next_page_token" {
				fill(v.Field(i), tag)
			}
		}
	}
}

// firstItem is what a method returns of an answer: all of it, or the first
// item of a list that pages.
func firstItem(t *testing.T, r *api.Route, body []byte) jsontext.Value {
	if _, paged := r.Response.FieldByName("NextPageToken"); !paged || !strings.Contains(r.Name, "list") {
		return body
	}
	var lists map[string]jsontext.Value
	if err := json.Unmarshal(body, &lists); err != nil {
		t.Error(err)
	}
	for _, list := range lists {
		var items []jsontext.Value
		if json.Unmarshal(list, &items) == nil {
			return items[0]
		}
	}
	t.Errorf("%s has no list", body)
	return nil
}

func canonical(t *testing.T, v jsontext.Value) string {
	t.Helper()
	v = v.Clone()
	if err := v.Canonicalize(); err != nil {
		t.Fatal(err)
	}
	return string(v)
}
