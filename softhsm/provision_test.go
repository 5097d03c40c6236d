package softhsm_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sluice-kms/sluice/required"
	"github.com/sluice-kms/sluice/softhsm"
)

// require skips without SoftHSM, or fails where SLUICE_REQUIRE demands it.
func require(t *testing.T) {
	t.Helper()
	err := softhsm.Available()
	required.Part(t, "softhsm", err)
}

func TestOpeningAFolderAgainReturnsTheSameToken(t *testing.T) {
	require(t)
	dir := filepath.Join(t.TempDir(), "a")
	first, err := softhsm.Provision(dir, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := softhsm.Provision(dir, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	if first.Serial == "" || first.Serial != second.Serial || first.Module != second.Module {
		t.Errorf("serial %q then %q, module %q then %q", first.Serial, second.Serial, first.Module, second.Module)
	}
	pin1, err1 := first.UserPIN()
	pin2, err2 := second.UserPIN()
	if err1 != nil || err2 != nil || !bytes.Equal(pin1, pin2) || len(pin1) != 32 {
		t.Errorf("the user PIN changed or has %d characters (%v, %v)", len(pin1), err1, err2)
	}
	if _, err := softhsm.Provision(dir, "node-2"); err == nil {
		t.Error("a folder opened under another label")
	}
}

func TestAnInterruptedProvisionBeginsAgain(t *testing.T) {
	require(t)
	dir := t.TempDir()
	first, err := softhsm.Provision(dir, "node")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "token.json")); err != nil {
		t.Fatal(err)
	}
	second, err := softhsm.Provision(dir, "node")
	if err != nil {
		t.Fatal(err)
	}
	if first.Serial == second.Serial {
		t.Error("the half-made token was kept")
	}
	tokens, err := os.ReadDir(filepath.Join(dir, "tokens"))
	if err != nil || len(tokens) != 1 {
		t.Errorf("%d tokens in the folder (%v)", len(tokens), err)
	}
}

func TestAMissingLibraryIsCopiedAgain(t *testing.T) {
	require(t)
	dir := t.TempDir()
	first, err := softhsm.Provision(dir, "node")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(first.Module); err != nil {
		t.Fatal(err)
	}
	second, err := softhsm.Provision(dir, "node")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(second.Module); err != nil || second.Serial != first.Serial {
		t.Errorf("module: %v, serial %q then %q", err, first.Serial, second.Serial)
	}
}

func TestFilesAreTheOwnersAloneWhateverTheUmask(t *testing.T) {
	require(t)
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "token")
	if _, err := softhsm.Provision(dir, "node"); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", d.Name(), info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every provisioning sets SOFTHSM2_CONF for the whole process; the wrong
// value would put a token into another one's folder.
func TestConcurrentProvisioningKeepsTokensApart(t *testing.T) {
	require(t)
	const tokens = 8
	root := t.TempDir()
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	serials := make([]string, tokens)
	var wg sync.WaitGroup
	for i := range tokens {
		wg.Go(func() {
			token, err := softhsm.Provision(filepath.Join(root, names[i]), names[i])
			if err != nil {
				t.Error(err)
				return
			}
			serials[i] = token.Serial
		})
	}
	wg.Wait()
	slices.Sort(serials)
	if len(slices.Compact(serials)) != tokens {
		t.Errorf("serials are not distinct")
	}
	for _, name := range names {
		found, err := os.ReadDir(filepath.Join(root, name, "tokens"))
		if err != nil || len(found) != 1 {
			t.Errorf("folder %s holds %d tokens (%v)", name, len(found), err)
		}
	}
}

func TestUnusablePathsAndLabelsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ dir, label string }{
		"comment character in the path": {"a#b", "node"},
		"equals sign in the path":       {"a=b", "node"},
		"path too long":                 {strings.Repeat("d/", 500), "node"},
		"empty label":                   {"a", ""},
		"label too long":                {"a", strings.Repeat("x", 33)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), c.dir)
			if _, err := softhsm.Provision(dir, c.label); err == nil {
				t.Error("accepted")
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the folder was made")
			}
		})
	}
}

func TestAvailableNamesThePlacesItLookedAt(t *testing.T) {
	t.Setenv("SOFTHSM2_MODULE", "/nonexistent/libsofthsm2.so")
	err := softhsm.Available()
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/libsofthsm2.so") {
		t.Errorf("error: %v", err)
	}
}
