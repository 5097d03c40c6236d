package probe

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluice-kms/sluice/client/outcome"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/provider"
)

// ModelList is where a provider lists its models, and in which header it takes
// the key; "": as a bearer token.
type ModelList struct {
	URL    string
	Header string
}

// ModelLists are those of the providers that are known, by the name that secrets
// give them. They are the providers' public addresses: a key is tried out there
// and nowhere else, because an address that a tenant's route or metadata names
// could be that of somebody who may not read the secret.
func ModelLists() map[string]ModelList {
	return map[string]ModelList{
		string(outcome.OpenAI):    {URL: "https://api.openai.com/v1/models"},
		string(outcome.Anthropic): {URL: "https://api.anthropic.com/v1/models", Header: "X-Api-Key"},
		string(outcome.Gemini):    {URL: "https://generativelanguage.googleapis.com/v1beta/models", Header: "X-Goog-Api-Key"},
		string(outcome.DeepSeek):  {URL: "https://api.deepseek.com/models"},
		string(outcome.Moonshot):  {URL: "https://api.moonshot.cn/v1/models"},
		string(outcome.Qwen):      {URL: "https://dashscope.aliyuncs.com/compatible-mode/v1/models"},
	}
}

// anthropicVersion is the header without which Anthropic answers nobody.
const anthropicVersion = "2023-06-01"

// Trials implements kms.KeyTrials. Every field is required.
type Trials struct {
	Lists map[string]ModelList
	Get   func(*http.Request) (*http.Response, error) // confined to public addresses
	Log   *slog.Logger
	Clock func() time.Time
}

// TryKey implements kms.KeyTrials.
func (t *Trials) TryKey(ctx context.Context, name string, key []byte) (kms.KeyValidation, bool) {
	list, ok := t.Lists[name]
	if !ok {
		return kms.KeyValidation{}, false
	}
	v := t.ask(ctx, list, name, key)
	return kms.KeyValidation{State: provider.KeyOf(v), Class: string(v.Class), At: t.Clock()}, true
}

func (t *Trials) ask(ctx context.Context, list ModelList, name string, key []byte) outcome.Verdict {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, list.URL, http.NoBody)
	if err != nil {
		return outcome.OfError(err)
	}
	r.Header.Set("User-Agent", userAgent)
	if list.Header == "" {
		r.Header.Set("Authorization", "Bearer "+string(key))
	} else {
		r.Header.Set(list.Header, string(key))
	}
	if name == string(outcome.Anthropic) {
		r.Header.Set("Anthropic-Version", anthropicVersion)
	}
	answer, err := t.Get(r)
	if err != nil {
		// The error of a header that cannot be sent quotes it.
		t.Log.Info("a provider did not answer the trial of a key", slog.String("provider", name))
		return outcome.OfError(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, outcome.MaxBody))
	return outcome.Of(outcome.Provider(name), answer.StatusCode, answer.Header, body, t.Clock())
}
