package wire

import (
	"errors"
	"io/fs"
	"os"
	"uuid"
)

// operatorScopes let an operator do everything but use tenants' keys.
var operatorScopes = []string{"operator:admin", "tenant:admin", "audit:read", "usage:read"}

// credentialName makes a name that a credential of an earlier, interrupted
// start cannot have taken.
func credentialName(prefix string) string {
	return prefix + "-" + uuid.New().String()[:8]
}

// credentialFile mints a credential into a file of mode 0600, unless the file
// exists. A crash between minting and writing leaves a credential whose
// secret nobody knows.
func credentialFile(path string, mint func() (string, error)) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	token, err := mint()
	if err != nil {
		return err
	}
	return writeFile(path, []byte(token+"\n"))
}
