package api_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// spellings are the forms in which a secret could stand in a sink.
func spellings(secret string) []string {
	b64 := base64.StdEncoding.EncodeToString([]byte(secret))
	return []string{secret, b64[:len(b64)/4*4-4], base64.RawURLEncoding.EncodeToString([]byte(secret))[:12],
		hex.EncodeToString([]byte(secret)), url.QueryEscape(secret)}
}

// sampleOf is a canary in the JSON that a field of the type takes.
func sampleOf(t reflect.Type) any {
	switch {
	case t == reflect.TypeFor[api.Bytes]():
		return base64.StdEncoding.EncodeToString([]byte(canary))
	case t.Kind() == reflect.Slice:
		return []string{canary}
	case t.Kind() == reflect.Struct && t != reflect.TypeFor[time.Time]():
		fields := map[string]any{}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields[name] = sampleOf(f.Type)
		}
		return fields
	case t.Kind() == reflect.Map:
		return map[string]string{canary: canary}
	}
	return canary
}

// TestNoSinkShowsWhatAClientSent puts a canary into every field of every
// request, and the credential beside it, and lets the request fail in every
// way there is. Neither may be found in an answer, the log, the journal or
// the metrics (Vault CVE-2024-8365, CVE-2024-0831; OpenBao CVE-2025-62513,
// -62705).
func TestNoSinkShowsWhatAClientSent(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecAES256, "", "")
	disabled := w.key(w.acme, kms.SpecAES256, "", "")
	w.must(200, "POST", "/v1/keys/"+disabled+"/disable", w.acme.token, "")
	var sinks strings.Builder
	sent := 0
	try := func(r *api.Route, path, token, body string) {
		sent++
		a := w.sendBad(r.Method, path, token, body)
		if a.status < 400 {
			return // what succeeds may answer with what it was asked to keep
		}
		fmt.Fprintf(&sinks, "%s: %v %s\n", r.Name, a.header, a.body)
	}
	ways := []struct {
		name  string
		begin func()
		token string
		key   string
	}{
		{"as it is", func() {}, w.acme.token, key},
		{"without a credential", func() {}, strings.Replace(w.acme.token, "_", "-", 1), key},
		{"with a missing key", func() {}, w.acme.token, "missing"},
		{"with a disabled key", func() {}, w.acme.token, disabled},
		{"over quota", func() { w.quotaFault = kms.Errorf(kms.KindQuotaExceeded, "too fast") }, w.acme.token, key},
		{"by an unknown error", func() { w.quotaFault = errors.New("unknown") }, w.acme.token, key},
		{"without a journal", func() { w.journalFault = errors.New("disk full") }, w.acme.token, key},
		{"with a panic", func() { w.panicOnAuth = true }, w.acme.token, key},
	}
	for _, way := range ways {
		way.begin()
		for _, r := range api.Routes() {
			if r.Request == nil {
				continue
			}
			path := strings.NewReplacer("{key}", way.key, "{tenant}", "acme", "{credential}", "none", "{version}", "1", "{alias}", "an-alias").Replace(r.Path)
			for _, f := range reflect.VisibleFields(r.Request) {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				try(&r, path, way.token, object(map[string]any{name: sampleOf(f.Type)}))
			}
			try(&r, path, way.token, `{"`+canary+`":"`+canary+`"}`)
			try(&r, path, way.token, canary)
		}
		w.quotaFault, w.journalFault, w.panicOnAuth = nil, nil, false
	}
	for _, e := range w.outcomes() {
		e.Resource, e.KeyName = "", "" // names of objects are there to be shown
		fmt.Fprintf(&sinks, "%+v\n", e)
	}
	sinks.WriteString(w.logs.String())
	metrics, err := w.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metrics {
		sinks.WriteString(m.String())
	}
	for _, secret := range []string{canary, "canary-in-a-panic", strings.SplitN(w.acme.token, "_", 3)[2]} {
		for _, form := range spellings(secret) {
			if at := strings.Index(sinks.String(), form); at >= 0 {
				t.Errorf("%q is shown: …%s…", form, sinks.String()[max(0, at-200):at+len(form)])
			}
		}
	}
	if sent < 500 || testutil.CollectAndCount(w.metrics) < 10 {
		t.Errorf("only %d requests were sent", sent)
	}
}
