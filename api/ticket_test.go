package api_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// journalled sends a request from an address, past the network, and returns
// the entry that the journal has of it.
func (w *world) journalled(from string, header http.Header) kms.Entry {
	w.t.Helper()
	w.outcomes()
	r := httptest.NewRequest("POST", "/v1/random", strings.NewReader(`{"bytes":16}`))
	r.RemoteAddr = from
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+w.acme.token)
	for name, values := range header {
		r.Header[name] = values
	}
	recorder := httptest.NewRecorder()
	w.handler.ServeHTTP(recorder, r)
	entries := w.outcomes()
	if recorder.Code != 200 || len(entries) != 1 {
		w.t.Fatalf("%d %s, %d entries", recorder.Code, recorder.Body, len(entries))
	}
	return entries[0]
}

// forgeries are the headers in which the world's software looks for a
// client's address.
func forgeries(address string) http.Header {
	h := http.Header{}
	for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Fastly-Client-Ip"} {
		h.Set(name, address)
	}
	h.Set("Forwarded", "for="+address)
	return h
}

// TestNobodySpoofsHisAddress: without configured proxies the connection
// alone counts (echo CVE-2026-118653, GHSA-h53f-rm2w-w7rg).
func TestNobodySpoofsHisAddress(t *testing.T) {
	w := newWorld(t)
	for from, want := range map[string]string{
		"198.51.100.9:4711": "198.51.100.9", "127.0.0.1:1": "127.0.0.1", "10.1.2.3:1": "10.1.2.3",
		"[2001:db8::1]:1": "2001:db8::1", "[::ffff:198.51.100.9]:1": "198.51.100.9", "[fe80::1%eth0]:1": "fe80::1",
	} {
		if got := w.journalled(from, forgeries("203.0.113.66")).Address.String(); got != want {
			t.Errorf("from %s: %s, want %s", from, got, want)
		}
	}
}

func TestTrustedProxyNamesTheClient(t *testing.T) {
	w := newWorld(t, func(c *api.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	})
	for _, c := range []struct {
		name, from string
		forwarded  []string
		want       string
	}{
		{"stranger's word", "198.51.100.9:1", []string{"203.0.113.66"}, "198.51.100.9"},
		{"proxy without a word", "10.0.0.1:1", nil, "10.0.0.1"},
		{"one proxy", "10.0.0.1:1", []string{"203.0.113.66"}, "203.0.113.66"},
		{"what the client invented is to the left", "10.0.0.1:1", []string{"192.0.2.1, 203.0.113.66"}, "203.0.113.66"},
		{"an invented proxy", "10.0.0.1:1", []string{"10.9.9.9, 203.0.113.66"}, "203.0.113.66"},
		{"two proxies", "10.0.0.1:1", []string{"203.0.113.66, 10.0.0.2"}, "203.0.113.66"},
		{"two headers", "10.0.0.1:1", []string{"203.0.113.66", "10.0.0.2"}, "203.0.113.66"},
		{"IPv6", "[2001:db8:1::5]:1", []string{"2001:db8:2::7"}, "2001:db8:2::7"},
		{"mapped", "[::ffff:10.0.0.1]:1", []string{"::ffff:203.0.113.66"}, "203.0.113.66"},
		{"garbage", "10.0.0.1:1", []string{"203.0.113.66, canary"}, "10.0.0.1"},
		{"garbage to the left", "10.0.0.1:1", []string{"canary, 10.0.0.2"}, "10.0.0.2"},
		{"empty", "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"with a port", "10.0.0.1:1", []string{"203.0.113.66:80"}, "10.0.0.1"},
		{"proxies only", "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"thousands", "10.0.0.1:1", []string{"203.0.113.66" + strings.Repeat(", 10.0.0.2", 5000)}, "10.0.0.2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := forgeries("192.0.2.200")
			delete(h, "X-Forwarded-For")
			if c.forwarded != nil {
				h["X-Forwarded-For"] = c.forwarded
			}
			if got := w.journalled(c.from, h).Address.String(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestNetworksOfACredentialBindTheConnection(t *testing.T) {
	w := newWorld(t)
	bound := w.must(201, "POST", "/v1/credentials", w.acme.token,
		`{"name":"bound","scopes":["key:*"],"networks":["203.0.113.0/24"]}`).text("credential")
	for name := range forgeries("203.0.113.66") {
		if a := w.send("GET", "/v1/keys", bound, "", name, "203.0.113.66"); a.status != 401 {
			t.Errorf("with %s: %d", name, a.status)
		}
	}
}

func TestForwardedSchemeIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"X-Forwarded-Proto", "X-Forwarded-Ssl", "X-Url-Scheme"} {
		if a := w.send("GET", "/v1/keys", w.acme.token, "", name, "https"); a.header.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s switches HSTS on in the clear", name)
		}
	}
	server := httptest.NewUnstartedServer(w.handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	response, err := server.Client().Get(server.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.Header.Get("Strict-Transport-Security") == "" || response.ProtoMajor != 2 {
		t.Errorf("over TLS: HTTP/%d, %v", response.ProtoMajor, response.Header)
	}
}

func TestWhatAClientSaysOfItselfIsBoundedAndClean(t *testing.T) {
	w := newWorld(t)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	good := "00-" + trace + "-00f067aa0ba902b7-01"
	for _, c := range []struct {
		name, header string
		values       []string
		got          func(kms.Entry) string
		want         string
	}{
		{"request id", "X-Request-Id", []string{"order-17"}, func(e kms.Entry) string { return e.ClientRequestID }, "order-17"},
		{"long request id", "X-Request-Id", []string{strings.Repeat("a", 1000)}, func(e kms.Entry) string { return e.ClientRequestID }, strings.Repeat("a", 128)},
		{"request id of control characters", "X-Request-Id", []string{"a\n\x00b\x1b[31mü"}, func(e kms.Entry) string { return e.ClientRequestID }, "a__b_[31m__"},
		{"user agent", "User-Agent", []string{"curl/8.0 (x)"}, func(e kms.Entry) string { return e.UserAgent }, "curl/8.0 (x)"},
		{"long user agent", "User-Agent", []string{strings.Repeat("b", 5000)}, func(e kms.Entry) string { return e.UserAgent }, strings.Repeat("b", 256)},
		{"trace", "Traceparent", []string{good}, func(e kms.Entry) string { return e.TraceID }, trace},
		{"trace of a later version", "Traceparent", []string{"42" + good[2:] + "-more"}, func(e kms.Entry) string { return e.TraceID }, trace},
		{"two traces", "Traceparent", []string{good, good}, func(e kms.Entry) string { return e.TraceID }, ""},
		{"trace of zeros", "Traceparent", []string{strings.Replace(good, trace, strings.Repeat("0", 32), 1)}, func(e kms.Entry) string { return e.TraceID }, ""},
		{"parent of zeros", "Traceparent", []string{strings.Replace(good, "00f067aa0ba902b7", strings.Repeat("0", 16), 1)}, func(e kms.Entry) string { return e.TraceID }, ""},
		{"trace in upper case", "Traceparent", []string{strings.ToUpper(good)}, func(e kms.Entry) string { return e.TraceID }, ""},
		{"trace of version ff", "Traceparent", []string{"ff" + good[2:]}, func(e kms.Entry) string { return e.TraceID }, ""},
		{"longer trace of version 00", "Traceparent", []string{good + "-more"}, func(e kms.Entry) string { return e.TraceID }, ""},
		{"cut trace", "Traceparent", []string{good[:54]}, func(e kms.Entry) string { return e.TraceID }, ""},
		{"trace of 64 kB", "Traceparent", []string{good + strings.Repeat("-x", 1<<15)}, func(e kms.Entry) string { return e.TraceID }, ""},
		{"trace with wrong dashes", "Traceparent", []string{strings.Replace(good, "-", "_", 1)}, func(e kms.Entry) string { return e.TraceID }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.got(w.journalled("192.0.2.1:1", http.Header{c.header: c.values})); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestUrgencyAndDeadlineAreKnownValuesOrRefused(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"Sluice-Urgency", "interactive", 200}, {"Sluice-Urgency", "normal", 200}, {"Sluice-Urgency", "bulk", 200},
		{"Sluice-Urgency", "Bulk", 400}, {"Sluice-Urgency", " ", 400}, {"Sluice-Urgency", canary, 400},
		{"Sluice-Deadline-Ms", "1", 200}, {"Sluice-Deadline-Ms", "60000", 200},
		{"Sluice-Deadline-Ms", "60001", 400}, {"Sluice-Deadline-Ms", "0", 400}, {"Sluice-Deadline-Ms", "-1", 400},
		{"Sluice-Deadline-Ms", "1.5", 400}, {"Sluice-Deadline-Ms", canary, 400}, {"Sluice-Deadline-Ms", "99999999999999999999", 400},
	} {
		a := w.raw("POST", "/v1/random", w.acme.token, strings.NewReader(`{"bytes":16}`),
			http.Header{"Content-Type": {"application/json"}, c.header: {c.value}})
		if a.status != c.status || leaks(string(a.body)) {
			t.Errorf("%s: %s: %d %s", c.header, c.value, a.status, a.body)
		}
		a = w.raw("POST", "/v1/random", w.acme.token, strings.NewReader(`{"bytes":16}`),
			http.Header{"Content-Type": {"application/json"}, c.header: {c.value, c.value}})
		if a.status != 400 {
			t.Errorf("%s twice: %d", c.header, a.status)
		}
	}
}

// TestTicketCarriesWhatTheClientAskedFor looks at what the scheduler is told.
func TestTicketCarriesWhatTheClientAskedFor(t *testing.T) {
	var flows flowRecorder
	w := newWorldScheduled(t, &flows)
	w.must(200, "POST", "/v1/random", w.acme.token, `{"bytes":16}`, "Sluice-Urgency", "bulk", "Sluice-Deadline-Ms", "500")
	f := flows.last()
	if f.Urgency != kms.UrgencyBulk || f.MaxWait <= 0 || f.MaxWait > 500*time.Millisecond {
		t.Errorf("flow %+v", f)
	}
	w.must(200, "POST", "/v1/random", w.acme.token, `{"bytes":16}`)
	if f := flows.last(); f.Urgency != kms.UrgencyNormal || f.MaxWait != 0 {
		t.Errorf("flow without headers %+v", f)
	}
}
