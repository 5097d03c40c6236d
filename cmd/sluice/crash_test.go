package main

import (
	"bytes"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// rounds is the length of a crash loop: SLUICE_CHAOS=full runs the long one.
func rounds(short, full int) int {
	if os.Getenv("SLUICE_CHAOS") == "full" {
		return full
	}
	return short
}

// post makes a request of the API. It returns status 0 when there was no
// answer, as when the service was killed under it.
func (p *devProcess) post(credential, path string, body any) (int, map[string]any) {
	return p.send(http.MethodPost, credential, path, body)
}

func (p *devProcess) get(credential, path string) (int, map[string]any) {
	return p.send(http.MethodGet, credential, path, nil)
}

// send makes a request, without a body when that is nil.
func (p *devProcess) send(method, credential, path string, body any) (int, map[string]any) {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, "http://"+p.address+path, content)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+credential)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	var a map[string]any
	if err := json.Unmarshal(answer, &a); err != nil {
		return 0, nil
	}
	return resp.StatusCode, a
}

// Whenever the process is killed: every key that was acknowledged works, what
// it encrypted decrypts, and the journal verifies and has every acknowledged
// request once.
func TestAcknowledgedSurvivesKill9(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
	data := filepath.Join(dir, "data")
	type kept struct{ name, ciphertext string }
	var mu sync.Mutex
	var keys []kept
	acknowledged := map[string]bool{} // request ids

	least := rounds(10, 200)
	// On a slow machine a round does little, so there are more of them.
	for round := 0; round < least || round < 4*least && len(keys) < least; round++ {
		dev := startDev(t, program, data)
		credential := dev.credential(t, "demo.credential")
		checked := keys
		if len(checked) > 40 {
			checked = checked[len(checked)-40:]
		}
		for _, k := range checked {
			status, a := dev.post(credential, "/v1/keys/"+k.name+"/decrypt", map[string]any{"ciphertext": k.ciphertext})
			if status != http.StatusOK || a["plaintext"] != "a2VwdA==" {
				t.Fatalf("round %d: key %s: %d %v", round, k.name, status, a)
			}
			acknowledged[a["request_id"].(string)] = true
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					name := fmt.Sprintf("k-%d-%d-%d", round, worker, i)
					status, created := dev.post(credential, "/v1/keys", map[string]any{"name": name, "spec": "AES_256"})
					if status != http.StatusCreated {
						return
					}
					encrypted, e := dev.post(credential, "/v1/keys/"+name+"/encrypt", map[string]any{"plaintext": []byte("kept")})
					mu.Lock()
					acknowledged[created["request_id"].(string)] = true
					if encrypted == http.StatusOK {
						acknowledged[e["request_id"].(string)] = true
						keys = append(keys, kept{name, e["ciphertext"].(string)})
					}
					mu.Unlock()
				}
			})
		}
		// The moment of the kill differs from round to round.
		<-time.After(time.Duration(20+(round*37)%120) * time.Millisecond)
		dev.kill()
		close(stop)
		wg.Wait()
	}
	if len(keys) < least {
		t.Fatalf("only %d keys were acknowledged: the loop tests nothing", len(keys))
	}
	journal := filepath.Join(data, "journal")
	if _, err := audit.Verify(journal, audit.VerifyOptions{TornTail: true}); err != nil {
		t.Errorf("the journal does not verify: %v", err)
	}
	last := startDev(t, program, data) // cuts a torn tail off
	if err := last.stop(t); err != nil {
		t.Errorf("stopping: %v", err)
	}
	checkJournal(t, journal, acknowledged)
}

func TestStopEndsCleanlyAndSoon(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	dev := startDev(t, buildProgram(t, filepath.Join(dir, "bin")), filepath.Join(dir, "data"))
	if err := dev.stop(t); err != nil {
		t.Errorf("exit: %v", err)
	}
	if _, err := audit.Verify(filepath.Join(dir, "data", "journal"), audit.VerifyOptions{}); err != nil {
		t.Errorf("the journal does not verify: %v", err)
	}
}

// Whatever the umask, nobody but the owner can read what the service writes.
func TestDataFolderIsPrivate(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	dev := startDev(t, buildProgram(t, filepath.Join(dir, "bin")), data)
	dev.post(dev.credential(t, "demo.credential"), "/v1/keys", map[string]any{"name": "a", "spec": "AES_256"})
	files := 0
	err := filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || files < 10 {
		t.Errorf("%d files, %v", files, err)
	}
}
