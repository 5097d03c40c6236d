package wire

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"log/slog"
	"slices"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/hsm/remote"
)

// HSMWorkerCommand is the command by which the program becomes the worker
// process of a node, whose id is its argument: the service starts it.
const HSMWorkerCommand = "hsm-worker"

// thisProgram is the binary that runs, also after another took its place on
// the disk: service and worker process are always of one version.
const thisProgram = "/proc/self/exe"

// workerSettings say to a worker process what to open.
type workerSettings struct {
	Token  TokenConfig
	Domain hsm.Domain
}

// openToken opens a token, in this process or in one of its own.
func openToken(ctx context.Context, t TokenConfig, domain *hsm.Domain, log *slog.Logger) (hsm.Token, error) {
	if !t.Process {
		token, err := p11.Open(ctx, t.open(domain))
		if err != nil {
			return nil, err // and no token, rather than one that is nil
		}
		return token, nil
	}
	settings, err := json.Marshal(workerSettings{t, *domain})
	if err != nil {
		return nil, err
	}
	token, err := remote.Open(ctx, remote.Config{
		Program: thisProgram, Args: []string{"sluice", HSMWorkerCommand, t.ID},
		Settings: settings, PIN: t.pin(), Log: log.With(slog.String("node", t.ID)),
	})
	if err != nil {
		return nil, err
	}
	return token, nil
}

// ServeHSM is the life of a worker process. The program ends when it returns.
func ServeHSM() error {
	return remote.Serve(func(raw, pin []byte) (hsm.Token, error) {
		var s workerSettings
		if err := json.Unmarshal(raw, &s, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("reading the settings: %w", err)
		}
		c := s.Token.open(&s.Domain)
		c.PIN = func() ([]byte, error) { return slices.Clone(pin), nil }
		token, err := p11.Open(context.Background(), c)
		if err != nil {
			return nil, err
		}
		return token, nil
	})
}
