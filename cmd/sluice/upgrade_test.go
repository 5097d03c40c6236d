package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/hsm/soft"
	"github.com/sluice-kms/sluice/migrations"
	"github.com/sluice-kms/sluice/required"
)

// previousRef names what is built as the release before: the revision in
// SLUICE_PREVIOUS_REF, or the newest tag of a release that is not this revision,
// or, before there is one, the last revision without the newest migration.
func previousRef(t *testing.T) string {
	t.Helper()
	if ref := os.Getenv("SLUICE_PREVIOUS_REF"); ref != "" {
		return ref
	}
	out, err := git("tag", "--list", "v*", "--sort=-v:refname", "--no-contains", "HEAD")
	required.Part(t, "git", err)
	if tags := strings.Fields(out); len(tags) > 0 {
		return tags[0]
	}
	steps, err := fs.Glob(migrations.PostgreSQL(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	out, err = git("log", "--format=%H", "--diff-filter=A", "--", ":/migrations/postgres/"+steps[len(steps)-1])
	if err == nil && strings.TrimSpace(out) == "" {
		err = errors.New("the history of the newest migration is not there")
	}
	required.Part(t, "git", err)
	revisions := strings.Fields(out)
	return revisions[len(revisions)-1] + "^"
}

// git runs git in the source's repository.
func git(args ...string) (string, error) {
	var problem bytes.Buffer
	cmd := exec.Command("git", args...)
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(problem.String()))
	}
	return string(out), nil
}

// buildPrevious builds the program of a revision, in a folder of its own.
func buildPrevious(t *testing.T, ref string) (program string) {
	t.Helper()
	root, err := git("rev-parse", "--show-toplevel")
	required.Part(t, "git", err)
	source := t.TempDir()
	archive := filepath.Join(t.TempDir(), "source.tar")
	cmd := exec.Command("git", "archive", "--output", archive, ref)
	cmd.Dir = strings.TrimSpace(root)
	if out, err := cmd.CombinedOutput(); err != nil {
		required.Part(t, "git", fmt.Errorf("git archive %s: %w: %s", ref, err, out))
	}
	if out, err := exec.Command("tar", "-xf", archive, "-C", source).CombinedOutput(); err != nil {
		t.Fatalf("unpacking %s: %v: %s", ref, err, out)
	}
	program = filepath.Join(t.TempDir(), "sluice")
	build := exec.Command("go", "build", "-o", program, "./cmd/sluice")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v: %s", ref, err, out)
	}
	return program
}

// rolling is two API nodes that are replaced one after the other while clients
// use them.
type rolling struct {
	dir     string
	configs [2]string
	nodes   [2]atomic.Pointer[devProcess]
	admin   string
	stopped atomic.Bool
	done    atomic.Int64 // requests
	retried atomic.Int64
	failed  atomic.Int64
	keys    atomic.Int64
}

// retryFor is how long a client tries the nodes in turn before it gives up: as
// long as a load balancer takes to notice that one is gone, and some.
const retryFor = 10 * time.Second

// request asks the nodes in turn until one answers.
func (r *rolling) request(t *testing.T, first int, path string, body map[string]any) map[string]any {
	for try, end := first, time.Now().Add(retryFor); ; try++ {
		status, answer := r.nodes[try%2].Load().post(r.admin, path, body)
		switch {
		case status/100 == 2:
			r.done.Add(1)
			return answer
		case status == 0 || status/100 == 5 || status == http.StatusTooManyRequests || status == http.StatusConflict:
			r.retried.Add(1)
		default:
			t.Errorf("%s: %d %v", path, status, answer)
			r.failed.Add(1)
			return nil
		}
		if time.Now().After(end) {
			t.Errorf("%s: no answer for %v, the last one is %d %v", path, retryFor, status, answer)
			r.failed.Add(1)
			return nil
		}
		<-time.After(20 * time.Millisecond)
	}
}

// client encrypts with one node and decrypts with the other, signs, and makes a
// key now and then, until it is stopped.
func (r *rolling) client(t *testing.T, id int) {
	for i := id; !r.stopped.Load(); i++ {
		sent := r.request(t, i, "/v1/keys/data/encrypt", map[string]any{"plaintext": "aGVsbG8="})
		if sent == nil {
			return
		}
		got := r.request(t, i+1, "/v1/keys/data/decrypt", map[string]any{"ciphertext": sent["ciphertext"]})
		if got == nil || got["plaintext"] != "aGVsbG8=" {
			t.Errorf("decrypted %v", got)
			return
		}
		r.request(t, i, "/v1/keys/signer/sign", map[string]any{"message": "aGVsbG8="})
		if i%20 == id {
			r.request(t, i, "/v1/keys", map[string]any{"spec": "AES_256"})
			r.keys.Add(1)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// replace stops a node as an operator would and starts it with another program.
func (r *rolling) replace(t *testing.T, node int, program string) {
	t.Helper()
	before := r.done.Load()
	if err := r.nodes[node].Load().stop(t); err != nil {
		t.Errorf("stopping node %d: %v", node, err)
	}
	r.nodes[node].Store(startServer(t, program, r.dir, "--config", r.configs[node]))
	// The clients have to have used what there is now.
	for end := time.Now().Add(retryFor); r.done.Load() < before+200 && time.Now().Before(end); {
		<-time.After(10 * time.Millisecond)
	}
}

// Two API nodes of the release before are replaced by this one, one after the
// other, on one database that clients use all the while, and then by the release
// before again, on the schema of this one. No request fails that is repeated
// with the other node; what one release makes the other uses; and both journals
// verify.
func TestUpgradeAndDowngradeByOneReleaseWithTrafficOn(t *testing.T) {
	wiretest.Require(t)
	ref := previousRef(t)
	previous := buildPrevious(t, ref)
	r := &rolling{dir: t.TempDir()}
	current := buildProgram(t, filepath.Join(r.dir, "bin"))
	configure := postgresSite(t, r.dir)
	var data [2]string
	for i, name := range []string{"first", "second"} {
		r.configs[i], data[i] = configure(name)
	}
	a := startServer(t, previous, r.dir, "--config", r.configs[0], "--operator-credential", filepath.Join(r.dir, "operator"))
	r.admin = a.newTenant(t, a.credential(t, "operator"))
	r.nodes[0].Store(a)
	r.nodes[1].Store(startServer(t, previous, r.dir, "--config", r.configs[1]))
	r.request(t, 0, "/v1/keys", map[string]any{"name": "data", "spec": "AES_256"})
	r.request(t, 0, "/v1/keys", map[string]any{"name": "signer", "spec": "ECC_NIST_P256"})

	var clients sync.WaitGroup
	for id := range 3 {
		clients.Go(func() { r.client(t, id) })
	}
	for _, step := range []struct {
		node    int
		program string
	}{{0, current}, {1, current}, {0, previous}, {1, previous}} {
		r.replace(t, step.node, step.program)
		// What takes something away takes effect on the other release, too.
		name := fmt.Sprintf("step-%d-%s", step.node, filepath.Base(filepath.Dir(step.program)))
		r.request(t, step.node, "/v1/keys", map[string]any{"name": name, "spec": "AES_256"})
		r.request(t, step.node, "/v1/keys/"+name+"/disable", nil)
		refused := func() bool {
			status, _ := r.nodes[1-step.node].Load().post(r.admin, "/v1/keys/"+name+"/encrypt", map[string]any{"plaintext": "aGVsbG8="})
			return status == http.StatusConflict
		}
		for end := time.Now().Add(retryFor); !refused(); <-time.After(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("a key that node %d disabled is used by the other", step.node)
			}
		}
	}
	r.stopped.Store(true)
	clients.Wait()
	for i := range r.nodes {
		if err := r.nodes[i].Load().stop(t); err != nil {
			t.Errorf("stopping node %d: %v", i, err)
		}
		report, err := audit.Verify(filepath.Join(data[i], "journal"), audit.VerifyOptions{SM3: soft.NewSM3})
		if err != nil || report.Entries == 0 {
			t.Errorf("the journal of node %d: %d entries, %v", i, report.Entries, err)
		}
	}
	t.Logf("from %s and back: %d requests answered, %d keys made, %d tries repeated, %d failed",
		ref, r.done.Load(), r.keys.Load(), r.retried.Load(), r.failed.Load())
	if r.failed.Load() > 0 || r.keys.Load() == 0 {
		t.Error("requests failed, or there were none")
	}
}
