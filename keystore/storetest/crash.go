package storetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/keystore"
)

// OpenFunc opens the database at a location, the name of which is the driver's
// business.
type OpenFunc func(ctx context.Context, location string) (keystore.Driver, error)

// crashLocation is the environment variable that turns a test binary into the
// victim of RunCrash.
const crashLocation = "SLUICE_STORETEST_CRASH"

const (
	crashRounds = 10
	// crashWriters write at once, so that the kill meets several commits.
	crashWriters = 4
	// crashAfter is how many creates are acknowledged before the kill; the
	// round number is added, so that rounds differ.
	crashAfter = 25
)

// CrashVictim must be called by TestMain of a test that uses RunCrash. In the
// process that RunCrash starts it creates keys until it is killed; otherwise
// it does nothing.
func CrashVictim(open OpenFunc) {
	location := os.Getenv(crashLocation)
	if location == "" {
		return
	}
	err := createUntilKilled(open, location)
	fmt.Fprintln(os.Stderr, "the victim ended by itself:", err)
	os.Exit(1)
}

// RunCrash kills a process (SIGKILL) while it creates keys, ten times on one
// database, and expects every create that was acknowledged to be there, whole.
func RunCrash(t *testing.T, location string, open OpenFunc) {
	ctx := t.Context()
	tenant := sampleTenant(crashTenant)
	inStore(t, location, open, func(store *keystore.Store) {
		if err := store.CreateTenant(ctx, tenant); err != nil {
			t.Fatal(err)
		}
	})

	var acknowledged []string
	for round := range crashRounds {
		acknowledged = append(acknowledged, killVictim(t, location, crashAfter+round)...)
		inStore(t, location, open, func(store *keystore.Store) {
			for _, id := range acknowledged {
				k, err := store.Lookup(ctx, tenant.ID, id)
				if err != nil || len(k.Versions) != 1 {
					t.Errorf("round %d: an acknowledged key is %+v, %v", round, k, err)
				}
			}
		})
	}
	t.Logf("%d kills, %d acknowledged creates, none lost", crashRounds, len(acknowledged))
}

const crashTenant = "crash"

// inStore runs f on a store that is opened for it.
func inStore(t *testing.T, location string, open OpenFunc, f func(*keystore.Store)) {
	t.Helper()
	driver, err := open(t.Context(), location)
	if err != nil {
		t.Fatal(err)
	}
	store := keystore.New(driver, keystore.Options{})
	if err := Bootstrap(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	f(store)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// killVictim starts a victim, kills it after some creates, and returns the
// ids of all that it acknowledged.
func killVictim(t *testing.T, location string, after int) []string {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashLocation+"="+location)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		ids = append(ids, lines.Text())
		if len(ids) == after {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The error says that it was killed.
	_ = cmd.Wait()
	if len(ids) < after {
		t.Fatalf("the victim acknowledged %d creates, want %d: %s", len(ids), after, complaints.String())
	}
	for _, id := range ids {
		if _, err := uuid.Parse(id); err != nil {
			t.Fatalf("not an id from the victim: %q", id)
		}
	}
	return ids
}

func createUntilKilled(open OpenFunc, location string) error {
	ctx := context.Background()
	driver, err := open(ctx, location)
	if err != nil {
		return err
	}
	store := keystore.New(driver, keystore.Options{})
	if err := Bootstrap(ctx, store, nil); err != nil {
		return err
	}
	tenant, err := store.TenantByRef(ctx, crashTenant)
	if err != nil {
		return err
	}
	var out sync.Mutex
	failed := make(chan error)
	for range crashWriters {
		go func() {
			for {
				id := uuid.NewV7()
				k := sampleKey(tenant, "key-"+id.String())
				k.ID = id
				if err := store.CreateKey(ctx, k); err != nil {
					failed <- err
					return
				}
				out.Lock()
				// One write, which a pipe passes on whole.
				_, err := io.WriteString(os.Stdout, id.String()+"\n")
				out.Unlock()
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}
