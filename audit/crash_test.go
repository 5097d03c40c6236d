package audit

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// crashDirVariable makes the test binary the victim of
// TestKillLosesNoAcknowledgedEntry.
const crashDirVariable = "SLUICE_AUDIT_CRASH_DIR"

// recordUntilKilled records entries from many goroutines into the journal in
// the folder and prints the number of each once it is acknowledged. It never
// returns.
func recordUntilKilled(dir string) {
	fail := func(err error) {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	l, err := Open(context.Background(), Config{
		Dir: dir, Node: "node-1", SegmentBytes: 64 << 10, ReserveBytes: 64 << 10,
	})
	if err != nil {
		fail(err)
	}
	first := int(l.Head().Sequence) * 100 // beyond every number of earlier rounds
	var mu sync.Mutex
	for worker := range 16 {
		go func() {
			for i := 0; ; i++ {
				n := first + 1 + worker + 16*i
				if err := l.Record(context.Background(), testEntry(n)); err != nil {
					fail(err)
				}
				mu.Lock()
				fmt.Println(n)
				mu.Unlock()
			}
		}()
	}
	select {}
}

// crashRounds is the length of the crash loop; SLUICE_CHAOS=full asks for the
// long one.
func crashRounds() int {
	if os.Getenv("SLUICE_CHAOS") == "full" {
		return 200
	}
	return 10
}

func TestKillLosesNoAcknowledgedEntry(t *testing.T) {
	dir := testConfig(t).Dir
	acknowledged := make(map[int]bool)
	for round := range crashRounds() {
		// Rounds are killed at different moments.
		for _, n := range killAfter(t, dir, 150+97*(round%10)) {
			acknowledged[n] = true
		}
	}

	l := mustOpen(t, Config{Dir: dir, Node: "node-1"})
	mustClose(t, l)
	times := make(map[string]int)
	for _, e := range readAll(t, dir) {
		times[e.RequestID.String()]++
	}
	for n := range acknowledged {
		if got := times[requestID(n).String()]; got != 1 {
			t.Errorf("acknowledged entry %d is in the journal %d times", n, got)
		}
	}
	report, err := Verify(dir, VerifyOptions{Head: l.Head()})
	if err != nil {
		t.Error(err)
	}
	if report.Entries < uint64(len(acknowledged)) || report.Segments < 2 {
		t.Errorf("%d entries in %d segments for %d acknowledged", report.Entries, report.Segments, len(acknowledged))
	}
	t.Logf("%d acknowledged, %d recorded in %d segments", len(acknowledged), report.Entries, report.Segments)
}

// killAfter runs a victim until it has acknowledged so many entries, kills it
// and returns the numbers of all that it had acknowledged by then.
func killAfter(t *testing.T, dir string, entries int) []int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDirVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var numbers []int
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil { // a line cut by the kill was no acknowledgement
			break
		}
		n, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
		if err != nil {
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatalf("the victim says: %s", line)
		}
		if numbers = append(numbers, n); len(numbers) == entries {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd.Wait()
	if len(numbers) < entries {
		t.Fatalf("the victim ended after %d entries", len(numbers))
	}
	return numbers
}
