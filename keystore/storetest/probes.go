package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/keystore"
	"github.com/sluice-kms/sluice/kms"
)

func urlsOf(list []kms.Endpoint) []string {
	urls := namesOf(list, func(e kms.Endpoint) string { return e.URL })
	slices.Sort(urls)
	return urls
}

func testProbes(t *testing.T, open func(*testing.T) keystore.Driver) {
	e := newEnv(t, open(t))
	ctx := t.Context()
	const a, b = "https://a.example/v1", "https://b.example/v1"
	want := func(until time.Duration, urls ...string) {
		t.Helper()
		if err := e.WantEndpoints(ctx, urls, e.clock().Add(until)); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(what string, expected ...string) []kms.Endpoint {
		t.Helper()
		list, err := e.ClaimEndpoints(ctx, time.Minute, 10)
		if got := urlsOf(list); err != nil || !slices.Equal(got, expected) {
			t.Errorf("%s: %v, %v, want %v", what, got, err, expected)
		}
		return list
	}
	want(time.Hour, a, b)
	want(2*time.Hour, a)
	want(time.Minute, a) // shortens nothing
	claim("all are due at first", a, b)
	claim("while they are leased")
	e.advance(time.Minute)
	claim("when the leases are over", a, b)
	if err := e.EndProbe(ctx, a, 3, e.clock().Add(30*time.Second)); err != nil {
		t.Fatal(err)
	}
	e.advance(30 * time.Second)
	if list := claim("the one that is due", a); len(list) == 1 && list[0].Misses != 3 {
		t.Errorf("%+v", list)
	}
	list, err := e.Endpoints(ctx, []string{a, b, "https://none.example"})
	if err != nil || !slices.Equal(urlsOf(list), []string{a, b}) {
		t.Errorf("%+v, %v", list, err)
	}
	e.advance(time.Hour)
	claim("those that are still wanted", a)
	e.advance(time.Hour)
	if n, err := e.driver.DeleteEndpoints(ctx, keystore.DeleteEndpointsParams{Now: e.clock().UnixMicro(), Limit: 10}); err != nil || n != 2 {
		t.Errorf("%d removed, %v", n, err)
	}
	wantKind(t, "no address", e.WantEndpoints(ctx, []string{""}, e.clock()), kms.KindInvalidArgument)
}
