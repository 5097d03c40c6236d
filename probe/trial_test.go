package probe

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/client/outcome/outcometest"
	"github.com/sluice-kms/sluice/kms"
)

const canary = "sk-canary-4711"

func TestAKeyIsTriedAtTheProvidersOwnAddressInAHeader(t *testing.T) {
	for name, list := range ModelLists() {
		u, err := url.Parse(list.URL)
		if err != nil || u.Scheme != "https" || u.RawQuery != "" {
			t.Errorf("%s: %s", name, list.URL)
		}
		a := &answers{by: map[string]outcometest.Case{u.Host: outcometest.Fine}}
		trials := &Trials{Lists: ModelLists(), Get: a.get, Log: slog.New(slog.DiscardHandler), Clock: time.Now}
		v, ok := trials.TryKey(t.Context(), name, []byte(canary))
		if !ok || v.State != kms.KeyOK || v.Class != "ok" || v.At.IsZero() {
			t.Errorf("%s: %+v, %v", name, v, ok)
		}
		r := a.asked[0]
		if r.URL.String() != list.URL || r.Method != http.MethodGet || strings.Contains(r.URL.String(), canary) {
			t.Errorf("%s: %s %s", name, r.Method, r.URL)
		}
		if held := fmt.Sprint(r.Header); strings.Count(held, canary) != 1 {
			t.Errorf("%s: the key is not in one header: %d", name, strings.Count(held, canary))
		}
	}
	trials := &Trials{Lists: ModelLists(), Clock: time.Now}
	if _, ok := trials.TryKey(t.Context(), "somebody", []byte(canary)); ok {
		t.Error("a key is tried out at a provider that nobody knows")
	}
}

func TestWhatAProviderSaysToAKeyIsClassified(t *testing.T) {
	list := map[string]ModelList{"openai": {URL: "https://one.example/v1/models"}}
	for name, c := range map[string]struct {
		answer outcometest.Case
		state  kms.ProviderKeyState
		class  string
	}{
		"a good key":        {outcometest.Fine, kms.KeyOK, "ok"},
		"a bad key":         {refused, kms.KeyInvalid, "credential"},
		"no money":          {outcometest.Case{Status: http.StatusPaymentRequired}, kms.KeyExhausted, "quota"},
		"a rate limit":      {outcometest.Case{Status: http.StatusTooManyRequests}, "", "rate_limit"},
		"an outage":         {broken, "", "transient"},
		"no connection":     {outcometest.Case{Err: &url.Error{Op: "Get", URL: "https://one.example/?" + canary, Err: context.DeadlineExceeded}}, "", "transient"},
		"no list of models": {outcometest.Case{Status: http.StatusNotFound}, "", "caller"},
	} {
		var log bytes.Buffer
		a := &answers{by: map[string]outcometest.Case{"one.example": c.answer}}
		trials := &Trials{Lists: list, Get: a.get, Log: slog.New(slog.NewTextHandler(&log, nil)), Clock: time.Now}
		v, _ := trials.TryKey(t.Context(), "openai", []byte(canary))
		if v.State != c.state || v.Class != c.class {
			t.Errorf("%s: %+v", name, v)
		}
		if strings.Contains(log.String(), canary) {
			t.Errorf("%s: the log has the key", name)
		}
	}
}

// A key that is no header is told to nobody.
func TestAKeyThatIsNoHeaderIsNotQuoted(t *testing.T) {
	var log bytes.Buffer
	transport := &http.Transport{}
	trials := &Trials{Lists: map[string]ModelList{"openai": {URL: "https://one.example/v1/models"}}, Get: transport.RoundTrip,
		Log: slog.New(slog.NewTextHandler(&log, nil)), Clock: time.Now}
	v, _ := trials.TryKey(t.Context(), "openai", []byte(canary+"\nHost: other"))
	if v.State == kms.KeyOK || strings.Contains(log.String()+fmt.Sprint(v), canary) {
		t.Errorf("%+v, log %s", v, log.String())
	}
}
