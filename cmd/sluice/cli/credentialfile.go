package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/sluice-kms/sluice/client"
)

// Where `sluice dev` leaves its credentials, seen from where it was started.
const (
	demoCredentialFile     = ".sluice/demo.credential"
	operatorCredentialFile = ".sluice/operator.credential"
)

// maxCredentialFile bounds the bytes that are read of a credential file: a
// credential has 97.
const maxCredentialFile = 4096

// credential finds the credential: in the file of --credential-file, in the
// environment, or where `sluice dev` leaves it.
func (s *session) credential() (client.Token, error) {
	file, text := s.credentialFile, ""
	if file == "" {
		file, text = os.Getenv(envCredentialFile), os.Getenv(envCredential)
	}
	switch {
	case file != "" && text != "":
		// One of the two would be used and the other not, and which is a guess.
		return client.Token{}, usage(s.cmd, "%s and %s are both set; unset one", envCredential, envCredentialFile)
	case text != "":
		return s.token(text, envCredential)
	case file != "":
		return s.readCredential(file)
	}
	file = demoCredentialFile
	if s.operator || s.tenant != "" {
		file = operatorCredentialFile
	}
	token, err := s.readCredential(file)
	if errors.Is(err, fs.ErrNotExist) {
		return client.Token{}, usage(s.cmd, `there is no credential: give --credential-file, or set %s or %s, or work where "sluice dev" was started (no %s here)`,
			envCredentialFile, envCredential, file)
	}
	return token, err
}

func (s *session) readCredential(file string) (client.Token, error) {
	f, err := os.Open(file)
	if err != nil {
		return client.Token{}, fmt.Errorf("opening the credential file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCredentialFile))
	if err != nil {
		return client.Token{}, fmt.Errorf("reading the credential file: %w", err)
	}
	return s.token(string(b), "the credential file")
}

// token takes a credential from a text that may have white space around it.
func (s *session) token(text, source string) (client.Token, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "slk_") || strings.ContainsAny(text, " \t\r\n") {
		return client.Token{}, usage(s.cmd, "%s does not hold a credential, which begins with slk_", source)
	}
	return client.NewToken(text), nil
}
