package target

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/bench/scenarios"
)

// transitTypes are Transit's names of key types.
var transitTypes = map[scenarios.Operation]map[string]string{
	scenarios.Encrypt: {"AES_128": "aes128-gcm96", "AES_256": "aes256-gcm96"},
	scenarios.Sign: {
		"ECC_NIST_P256": "ecdsa-p256", "ECC_NIST_P384": "ecdsa-p384", "ECC_NIST_P521": "ecdsa-p521", "ECC_NIST_EDWARDS25519": "ed25519",
		"RSA_2048": "rsa-2048", "RSA_3072": "rsa-3072", "RSA_4096": "rsa-4096",
	},
}

// transitRequests are those of the documented Transit API: POST /transit/keys/:name,
// /transit/encrypt/:name and /transit/sign/:name under /v1. The defaults for
// signatures are ours too: SHA-256, and PSS with RSA.
func (t *Target) transitRequests(ctx context.Context, st *scenarios.Stream) ([]load.Request, error) {
	kind, ok := transitTypes[st.Operation][st.Spec]
	if !ok {
		return nil, fmt.Errorf("a transit server cannot %s with %s", st.Operation, st.Spec)
	}
	field := "plaintext"
	if st.Operation == scenarios.Sign {
		field = "input"
	}
	h := t.httpClient()
	defer h.CloseIdleConnections()
	mount := "/v1/" + strings.Trim(t.Mount, "/")
	var all []load.Request
	for k := range st.Keys {
		name := keyName(st, k)
		if err := t.makeTransitKey(ctx, h, mount+"/keys/"+name, kind); err != nil {
			return nil, fmt.Errorf("making the key %s: %w", name, err)
		}
		all = append(all, load.Request{
			Path:   mount + "/" + string(st.Operation) + "/" + name,
			Header: map[string]string{"X-Vault-Token": t.Token.Reveal()},
			Body:   `{"` + field + `":"` + input(st) + `"}`,
		})
	}
	return all, nil
}

// maxAnswer bounds what is read of an answer that makes a key.
const maxAnswer = 64 << 10

// makeTransitKey makes a key; one that exists stays as it is.
func (t *Target) makeTransitKey(ctx context.Context, h *http.Client, path, kind string) error {
	body, err := json.Marshal(map[string]string{"type": kind})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url.String()+path, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	r.Header.Set("X-Vault-Token", t.Token.Reveal())
	r.Header.Set("Content-Type", "application/json")
	answer, err := h.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return err
	}
	if answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusNoContent {
		return nil
	}
	var said struct {
		Errors []string `json:"errors"`
	}
	if json.Unmarshal(text, &said) != nil || len(said.Errors) == 0 {
		return fmt.Errorf("the server answers %s", answer.Status)
	}
	return fmt.Errorf("the server answers %s: %s", answer.Status, strings.Join(said.Errors, "; "))
}
