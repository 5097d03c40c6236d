package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/quota/redis/redistest"
)

// tokenSlots is what a token has when its configuration names no number.
const tokenSlots = 4

// TestProcessesShareTheSlotsOfAToken has two processes of the real program on
// one token and one Redis: who has work has the slots, but for one that the
// other keeps, and together they have no more than the token.
func TestProcessesShareTheSlotsOfAToken(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
	redis := fmt.Sprintf("quota: {redis: {addresses: [%q]}}\n", redistest.Start(t).Address())
	configure := postgresSite(t, dir)
	start := func(node string, more ...string) *devProcess {
		t.Helper()
		config, _ := configure(node)
		file, err := os.OpenFile(config, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(redis); err != nil {
			t.Fatal(err)
		}
		return startServer(t, program, dir, append([]string{"--config", config}, more...)...)
	}
	a := start("first", "--operator-credential", filepath.Join(dir, "operator"))
	operator := a.credential(t, "operator")
	admin := a.newTenant(t, operator)
	b := start("second")
	status, minted := a.post(admin, "/v1/credentials", map[string]any{"name": "app", "scopes": []string{"key:*"}})
	if status != http.StatusCreated {
		t.Fatal(status, minted)
	}
	app := minted["credential"].(string)
	if status, answer := a.post(admin, "/v1/keys", map[string]any{"name": "k", "spec": "RSA_2048", "usage": "SIGN_VERIFY"}); status != http.StatusCreated {
		t.Fatal(status, answer)
	}
	slots := func(p *devProcess) int {
		status, answer := p.get(operator, "/v1/scheduler")
		if status != http.StatusOK {
			t.Fatal(status, answer)
		}
		for _, n := range answer["nodes"].([]any) {
			if n := n.(map[string]any); n["node"] == "node-1" {
				return int(n["slots"].(float64))
			}
		}
		t.Fatalf("the node is missing: %v", answer)
		return 0
	}
	expect := func(when string, ofA, ofB int) {
		t.Helper()
		deadline := time.Now().Add(20 * time.Second)
		for {
			gotA, gotB := slots(a), slots(b)
			if gotA == ofA && gotB == ofB {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d and %d slots, want %d and %d", when, gotA, gotB, ofA, ofB)
			}
			time.Sleep(20 * time.Millisecond) // another process: nothing tells when it has changed
		}
	}
	work := func(p *devProcess) (end func()) {
		var stop atomic.Bool
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() {
				for !stop.Load() {
					if status, answer := p.post(app, "/v1/keys/k/sign", map[string]any{"message": "aGVsbG8="}); status != http.StatusOK && status != http.StatusTooManyRequests {
						t.Errorf("signing: %d %v", status, answer)
						return
					}
				}
			})
		}
		return func() {
			stop.Store(true)
			all.Wait()
		}
	}
	expect("without work", tokenSlots/2, tokenSlots/2)
	end := work(a)
	expect("the first has work", tokenSlots-1, 1)
	end()
	end = work(b)
	expect("the second has work", 1, tokenSlots-1)
	if err := a.stop(t); err != nil {
		t.Errorf("stopping: %v", err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for slots(b) != tokenSlots {
		if time.Now().After(deadline) {
			t.Fatalf("alone the second has %d slots", slots(b))
		}
	}
	end()
	if err := b.stop(t); err != nil {
		t.Errorf("stopping: %v", err)
	}
}
