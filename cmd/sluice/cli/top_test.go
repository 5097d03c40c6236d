package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"
)

// topService answers with one more second of waiting each time, and calls done
// with the third.
func topService(t *testing.T, done func()) *httptest.Server {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"nodes":[{"node":"hsm-1","domain":"hsm","down":false,"slots":4,"busy":1,"waiting":0,"granted":%d,"away":0,"behind_ms":0}],
"domains":[{"name":"hsm","slots":4,"busy":1,"waiting":1,"band":"below_safe","utilisation_fast":0,"utilisation_slow":0,"max_in_flight":1,"cap_applies":false,"load_cost_ms":0,
"classes":[{"class":"MID","refused":0,"waited":[{"code":"SHARE","seconds":%d}]}],"tenants":[]}],
"waiting":1,"max_waiting":4096,"max_tenant":1024,"waiting_tenants":1,"oldest_ms":1,"cost":1,"request_id":"r"}`, n, n)
		if n == 3 {
			done()
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func runTop(t *testing.T, terminal bool) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := topService(t, cancel)
	t.Setenv("SLUICE_CREDENTIAL", "slk_demodemodemodemodemodemodemodemodemodemo_demosecret")
	var out bytes.Buffer
	p := &program{version: "test", interactive: func(stream any) bool { return terminal && stream == any(&out) }}
	root := &cobra.Command{Use: "sluice", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(p.commands()...)
	root.SetArgs([]string{"top", "--interval", "100ms", "--address", s.URL})
	root.SetOut(&out)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// On a terminal frames replace each other on a screen of their own, and what
// was there before comes back.
func TestTopLeavesTheTerminalAsItWas(t *testing.T) {
	out := runTop(t, true)
	if !strings.HasPrefix(out, enterScreen+home) || !strings.HasSuffix(out, leaveScreen) || strings.Count(out, home) < 2 {
		t.Errorf("%q", out)
	}
	inner := strings.TrimSuffix(strings.TrimPrefix(out, enterScreen), leaveScreen)
	if strings.Contains(strings.ReplaceAll(inner, endOfLine, ""), "\n") {
		t.Error("a line does not end what it replaces")
	}
}

// Where the output is no terminal, frames follow each other without a sequence
// for one. From the second on, waits are the mean number of those that wait.
func TestTopWithoutATerminalPrintsFrameAfterFrame(t *testing.T) {
	out := runTop(t, false)
	if strings.Contains(out, "\x1b") || strings.Count(out, "requests wait, of") < 2 {
		t.Errorf("%q", out)
	}
	first, rest, _ := strings.Cut(out, "SHARE")
	if !strings.Contains(first, "hsm-1") || !strings.HasPrefix(strings.TrimSpace(rest), "1.0 s") {
		t.Errorf("the first frame: %q", out)
	}
	_, second, found := strings.Cut(rest, "SHARE")
	if line, _, _ := strings.Cut(second, "\n"); !found || strings.HasSuffix(line, " s") {
		t.Errorf("the second frame: %q", out)
	}
}
