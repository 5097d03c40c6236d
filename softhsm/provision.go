package softhsm

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxPathLength bounds the absolute path of a token's folder, in bytes:
// SoftHSM reads its configuration into a buffer of 1024 bytes a line.
const maxPathLength = 900

// maxLabelLength is the length of CK_TOKEN_INFO.label in bytes (PKCS#11
// v2.40, 3.2).
const maxLabelLength = 32

// pinBytes is the number of random bytes in a PIN, written as twice as many
// hexadecimal digits: out of reach for guessing, and far below SoftHSM's limit
// of 255 characters.
const pinBytes = 16

// The files of a token's folder.
const (
	libraryFile = "libsofthsm2.so"
	confFile    = "softhsm2.conf"
	tokensDir   = "tokens"
	userPINFile = "user.pin"
	soPINFile   = "so.pin"
	tokenFile   = "token.json"
)

// libraries are the places where distributions install SoftHSM.
var libraries = []string{
	"/usr/lib/softhsm/libsofthsm2.so",
	"/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
	"/usr/lib/aarch64-linux-gnu/softhsm/libsofthsm2.so",
	"/usr/lib64/softhsm/libsofthsm2.so",
	"/usr/lib64/pkcs11/libsofthsm2.so",
	"/usr/local/lib/softhsm/libsofthsm2.so",
}

// Token is a provisioned token: what a PKCS#11 client needs to open it.
type Token struct {
	Module string            // absolute path of the token's copy of the library
	Env    map[string]string // to be set when the module is initialised
	Label  string
	Serial string

	dir string
}

// UserPIN reads the user's PIN.
func (t *Token) UserPIN() ([]byte, error) { return t.pin(userPINFile) }

// SOPIN reads the security officer's PIN.
func (t *Token) SOPIN() ([]byte, error) { return t.pin(soPINFile) }

func (t *Token) pin(name string) ([]byte, error) {
	pin, err := os.ReadFile(filepath.Join(t.dir, name))
	if err != nil {
		return nil, fmt.Errorf("read the PIN of token %s: %w", t.Label, err)
	}
	return pin, nil
}

// Available returns nil when SoftHSM is installed, and otherwise an error
// that tells where it was looked for. The environment variable
// SOFTHSM2_MODULE names a library in another place.
func Available() error {
	_, err := findLibrary()
	return err
}

func findLibrary() (string, error) {
	places := libraries
	if named := os.Getenv("SOFTHSM2_MODULE"); named != "" {
		places = []string{named}
	}
	for _, place := range places {
		if info, err := os.Stat(place); err == nil && info.Mode().IsRegular() {
			return place, nil
		}
	}
	return "", fmt.Errorf("SoftHSM is not installed: no library at %s", strings.Join(places, ", "))
}

// Provision returns the token in the folder dir, which it makes if there is
// none. A folder that an interrupted call left half made is begun again: no
// key can be in it yet. The label has 1 to 32 bytes; an existing token under
// another label is an error.
//
// It may run concurrently with anything but another call for the same folder.
func Provision(dir, label string) (*Token, error) {
	t, err := provision(dir, label)
	if err != nil {
		return nil, fmt.Errorf("provision SoftHSM token: %w", err)
	}
	return t, nil
}

func provision(dir, label string) (*Token, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if len(label) == 0 || len(label) > maxLabelLength {
		return nil, fmt.Errorf("the label must have 1 to %d bytes", maxLabelLength)
	}
	// SoftHSM's configuration has no quoting: these end a value.
	if len(dir) > maxPathLength || strings.ContainsAny(dir, "#=\r\n") {
		return nil, fmt.Errorf("the folder's path must have at most %d bytes and no '#', '=' or line break", maxPathLength)
	}
	t := &Token{
		Module: filepath.Join(dir, libraryFile),
		Env:    map[string]string{"SOFTHSM2_CONF": filepath.Join(dir, confFile)},
		Label:  label,
		dir:    dir,
	}
	switch err := t.readIdentity(label); {
	case err == nil:
		return t, t.restoreLibrary()
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	return t, t.create()
}

// identity is the content of token.json.
type identity struct {
	Label  string `json:"label"`
	Serial string `json:"serial"`
}

func (t *Token) readIdentity(label string) error {
	raw, err := os.ReadFile(filepath.Join(t.dir, tokenFile))
	if err != nil {
		return err
	}
	var id identity
	if err := json.Unmarshal(raw, &id); err != nil {
		return fmt.Errorf("read %s: %w", tokenFile, err)
	}
	if id.Label != label {
		return errors.New("the folder holds a token with another label")
	}
	t.Serial = id.Serial
	return nil
}

// restoreLibrary copies the installed library again when the folder was moved
// to another machine without it.
func (t *Token) restoreLibrary() error {
	if _, err := os.Stat(t.Module); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return t.copyLibrary()
}

func (t *Token) copyLibrary() error {
	library, err := findLibrary()
	if err != nil {
		return err
	}
	code, err := os.ReadFile(library)
	if err != nil {
		return err
	}
	return writeFile(t.Module, code)
}

func (t *Token) create() error {
	if err := makeDir(t.dir); err != nil {
		return err
	}
	// What an interrupted attempt left would show as a second token.
	if err := os.RemoveAll(filepath.Join(t.dir, tokensDir)); err != nil {
		return err
	}
	if err := makeDir(filepath.Join(t.dir, tokensDir)); err != nil {
		return err
	}
	if err := t.copyLibrary(); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(t.dir, confFile), t.configuration()); err != nil {
		return err
	}
	userPIN, soPIN := newPIN(), newPIN()
	defer clear(userPIN)
	defer clear(soPIN)
	if err := writeFile(filepath.Join(t.dir, userPINFile), userPIN); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(t.dir, soPINFile), soPIN); err != nil {
		return err
	}
	serial, err := initToken(t, userPIN, soPIN)
	if err != nil {
		return err
	}
	t.Serial = serial
	raw, err := json.Marshal(identity{Label: t.Label, Serial: serial})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(t.dir, tokenFile), raw)
}

// configuration: ERROR because SoftHSM formats every message of the levels
// below it on the hot path; not removable, so that the slot list is fixed.
func (t *Token) configuration() []byte {
	return fmt.Appendf(nil, `directories.tokendir = %s
objectstore.backend = file
log.level = ERROR
slots.removable = false
`, filepath.Join(t.dir, tokensDir))
}

func newPIN() []byte {
	var raw [pinBytes]byte
	rand.Read(raw[:])
	return hex.AppendEncode(nil, raw[:])
}

// makeDir makes a folder for its owner alone, whatever the umask.
func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, 0o700)
}

// writeFile replaces a file as a whole, so that an interruption leaves the old
// content or the new, and a library that is mapped by a process stays intact.
func writeFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(content); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
