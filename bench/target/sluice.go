package target

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-kms/sluice/bench/load"
	"github.com/sluice-kms/sluice/bench/scenarios"
	"github.com/sluice-kms/sluice/client"
)

func (t *Target) sluiceRequests(ctx context.Context, st *scenarios.Stream) ([]load.Request, error) {
	h := t.httpClient()
	defer h.CloseIdleConnections()
	api, err := client.New(client.Options{Address: t.url.String(), Credential: t.Token, HTTPClient: h, UserAgent: "sluice-bench"})
	if err != nil {
		return nil, err
	}
	defer api.Close()
	usage, field := client.Usage("ENCRYPT_DECRYPT"), "plaintext"
	if st.Operation == scenarios.Sign {
		usage, field = "SIGN_VERIFY", "message"
	}
	var all []load.Request
	for k := range st.Keys {
		name := keyName(st, k)
		_, err := api.CreateKey(ctx, client.CreateKeyInput{Name: name, Spec: client.Spec(st.Spec), Usage: usage})
		if err != nil && !errors.Is(err, client.ErrConflict) {
			return nil, fmt.Errorf("making the key %s: %w", name, err)
		}
		all = append(all, load.Request{
			Path:   "/v1/keys/" + name + "/" + string(st.Operation),
			Header: map[string]string{"Authorization": "Bearer " + t.Token.Reveal()},
			Body:   `{"` + field + `":"` + input(st) + `"}`,
		})
	}
	return all, nil
}
