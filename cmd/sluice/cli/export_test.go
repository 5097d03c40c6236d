package cli_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/cmd/sluice/cli"
)

// export runs the verb against a service of canned answers, and returns what it
// says beside its output.
func export(t *testing.T, args ...string) string {
	t.Helper()
	s := startService(t)
	t.Setenv("SLUICE_ADDRESS", s.URL)
	t.Setenv("SLUICE_CREDENTIAL", demoToken)
	root := &cobra.Command{Use: "sluice", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(cli.Commands("test")...)
	var said bytes.Buffer
	root.SetErr(&said)
	root.SetOut(io.Discard)
	root.SetArgs(append([]string{"audit", "export"}, args...))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return said.String()
}

// wantMessages checks the two entries of the canned answers as messages of
// RFC 5424.
func wantMessages(t *testing.T, messages []string, begins string) {
	t.Helper()
	if len(messages) != 2 {
		t.Fatalf("%d messages: %q", len(messages), messages)
	}
	for i, want := range []string{
		"<108>1 2026-01-02T03:04:05.000000Z api-1 sluice - audit - ",
		"<110>1 2026-01-02T03:04:06.500000Z api-1 sluice - audit - ",
	} {
		if !strings.HasPrefix(messages[i], want+begins) || strings.HasSuffix(messages[i], "\n") {
			t.Errorf("message %d is %q, want %q…", i, messages[i], want+begins)
		}
	}
}

func TestExportSendsSyslogDatagrams(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if said := export(t, "--syslog", "udp://"+server.LocalAddr().String()); !strings.Contains(said, "2 entries; the next begin behind --after api-1/9") {
		t.Errorf("it says %q", said)
	}
	var messages []string
	for range 2 {
		b := make([]byte, 64<<10)
		server.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, _, err := server.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, string(b[:n]))
	}
	wantMessages(t, messages, `{"api_node":`)
}

func TestExportCountsSyslogMessagesInAStream(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	got := make(chan []string, 1)
	go func() {
		conn, err := server.Accept()
		if err != nil {
			got <- nil
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		var messages []string
		for {
			length, err := r.ReadString(' ')
			if err != nil {
				got <- messages
				return
			}
			n, err := strconv.Atoi(strings.TrimSpace(length))
			if err != nil {
				got <- append(messages, fmt.Sprint("length ", length))
				return
			}
			b := make([]byte, n)
			if _, err := io.ReadFull(r, b); err != nil {
				got <- append(messages, "short")
				return
			}
			messages = append(messages, string(b))
		}
	}()
	export(t, "--syslog", "tcp://"+server.Addr().String(), "--format", "cef")
	wantMessages(t, <-got, "CEF:0|Sluice|Sluice|1|")
}
