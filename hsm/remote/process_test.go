package remote

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// patience is how long a test waits for a process's end: far longer than it
// takes on any machine.
const patience = 20 * time.Second

func newSession(t *testing.T, token *Token) hsm.Session {
	t.Helper()
	s, err := token.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func wantClass(t *testing.T, what string, err error, class hsm.Class) {
	t.Helper()
	if e, ok := errors.AsType[*hsm.Error](err); !ok || e.Class != class {
		t.Errorf("%s: %v, want class %s", what, err, class)
	}
}

// wild is a call of the wild driver.
func wild(what string) *hsm.Call { return &hsm.Call{UserID: []byte(what)} }

// gone fails when the process is still there, be it as a zombie.
func gone(t *testing.T, pid int) {
	t.Helper()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the process %d is still there: %v", pid, err)
	}
}

func TestACrashTakesTheProcessOnly(t *testing.T) {
	for name, crash := range map[string]func(*Token, hsm.Session) error{
		"killed": func(token *Token, _ hsm.Session) error { return syscall.Kill(token.pid(), syscall.SIGKILL) },
		"a fault in the module": func(token *Token, _ hsm.Session) error {
			return syscall.Kill(token.pid(), syscall.SIGSEGV)
		},
		"a fault in a call": func(_ *Token, s hsm.Session) error {
			if err := s.Do(wild("crash")); hsm.ClassOf(err) != hsm.ClassTokenDown {
				return fmt.Errorf("the call that crashed: %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			token := open(t, wildConfig(t))
			pid := token.pid()
			s, waiting := newSession(t, token), newSession(t, token)
			ended := watch(t, pid)
			result := make(chan error, 1)
			go func() { result <- waiting.Do(wild("hang")) }()
			if err := crash(token, s); err != nil {
				t.Fatal(err)
			}
			wantClass(t, "a call that ran", <-result, hsm.ClassTokenDown)
			if !ended.endsWithin(patience) {
				t.Fatal("the process lives")
			}
			wantClass(t, "Do after it", s.Do(&hsm.Call{Verb: kms.VerbRandom, Length: 1}), hsm.ClassTokenDown)
			wantClass(t, "Probe after it", token.Probe(), hsm.ClassTokenDown)
			_, err := token.NewSession()
			wantClass(t, "NewSession after it", err, hsm.ClassTokenDown)
			if err := s.Close(); err != nil {
				t.Errorf("closing a session that ended with the process: %v", err)
			}
			if err := token.Close(); err != nil {
				t.Errorf("closing a token that ended with its process: %v", err)
			}
			gone(t, pid)
			// Another takes its place.
			if err := open(t, wildConfig(t)).Probe(); err != nil {
				t.Errorf("the next process: %v", err)
			}
		})
	}
}

func TestAHangIsFailedAtItsLimitAndTheProcessKilled(t *testing.T) {
	c := wildConfig(t)
	c.CallLimit = 300 * time.Millisecond
	token := open(t, c)
	pid := token.pid()
	s := newSession(t, token)
	started := time.Now()
	err := s.Do(wild("hang"))
	took := time.Since(started)
	wantClass(t, "the call", err, hsm.ClassTokenDown)
	if !errors.Is(err, errOverdue) {
		t.Errorf("the error does not say why: %v", err)
	}
	if took < c.CallLimit || took > patience {
		t.Errorf("it took %v", took)
	}
	token.Close()
	gone(t, pid)
}

// A process that does nothing at all any more, not even read, is no other
// case: the request does not fit into the socket.
func TestAStoppedProcessIsKilled(t *testing.T) {
	c := wildConfig(t)
	c.CallLimit = 300 * time.Millisecond
	token := open(t, c)
	pid := token.pid()
	s := newSession(t, token)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wantClass(t, "the call", s.Do(&hsm.Call{Verb: kms.VerbDigest, Digest: kms.DigestSHA256, Input: make([]byte, 2<<20)}), hsm.ClassTokenDown)
	token.Close()
	gone(t, pid)
}

func TestClosingEndsTheProcess(t *testing.T) {
	for name, running := range map[string]bool{"at rest": false, "with a call that hangs": true} {
		t.Run(name, func(t *testing.T) {
			token := open(t, wildConfig(t))
			pid := token.pid()
			s := newSession(t, token)
			result := make(chan error, 1)
			if running {
				go func() { result <- s.Do(wild("hang")) }()
				for !token.busy() {
					if _, err := token.NewSession(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := token.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			gone(t, pid)
			if state := token.process.cmd.ProcessState; state.Success() == running {
				t.Errorf("the process: %v", state)
			}
			if running {
				wantClass(t, "the call", <-result, hsm.ClassTokenDown)
			}
			if err := s.Close(); err != nil {
				t.Errorf("closing the session after the token: %v", err)
			}
			wantClass(t, "Do after Close", s.Do(wild("show")), hsm.ClassSession)
			wantClass(t, "Probe after Close", token.Probe(), hsm.ClassTokenDown)
		})
	}
}

func TestOpeningEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := wildConfig(t)
	c.PIN = func() ([]byte, error) { cancel(); return []byte(testPIN), nil }
	if _, err := Open(ctx, c); !errors.Is(err, context.Canceled) || hsm.ClassOf(err) != hsm.ClassTokenDown {
		t.Errorf("Open: %v", err)
	}
}

func TestOpeningFailsWithTheDriversClass(t *testing.T) {
	wrong := wildConfig(t)
	wrong.PIN = func() ([]byte, error) { return []byte("another"), nil }
	none := wildConfig(t)
	none.PIN = func() ([]byte, error) { return nil, fs.ErrNotExist }
	missing := wildConfig(t)
	missing.Program = filepath.Join(testDir, "no such program")
	silent := wildConfig(t)
	silent.Program, silent.Args = "/bin/true", []string{"true"}
	garbage := wildConfig(t)
	garbage.Args = []string{os.Args[0], garbageRole}
	for name, c := range map[string]struct {
		config Config
		class  hsm.Class
		code   uint64
	}{
		"a wrong PIN":                {wrong, hsm.ClassPIN, 0xa0},
		"no PIN":                     {none, hsm.ClassPIN, 0},
		"no program":                 {missing, hsm.ClassTokenDown, 0},
		"a program that only ends":   {silent, hsm.ClassTokenDown, 0},
		"a program that says others": {garbage, hsm.ClassTokenDown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), c.config)
			wantClass(t, "Open", err, c.class)
			if e, ok := errors.AsType[*hsm.Error](err); ok && e.Code != c.code {
				t.Errorf("code 0x%x, want 0x%x", e.Code, c.code)
			}
		})
	}
}

func TestAnotherVersionIsRefused(t *testing.T) {
	token := open(t, wildConfig(t))
	c, err := token.take()
	if err != nil {
		t.Fatal(err)
	}
	o := opening{version: version + 1, pin: []byte(testPIN)}
	_, err = c.ask(kindOpen, o.size(), patience, o.append)
	wantClass(t, "opening", err, hsm.ClassTokenDown)
	if err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("the error does not say why: %v", err)
	}
	token.put(c)
}

func TestThePINIsWipedAndNowhereToBeSeen(t *testing.T) {
	pin := []byte(testPIN)
	c := wildConfig(t)
	c.PIN = func() ([]byte, error) { return pin, nil }
	token := open(t, c)
	if !bytes.Equal(pin, make([]byte, len(pin))) {
		t.Error("the PIN is still in memory")
	}
	call := wild("show")
	if err := newSession(t, token).Do(call); err != nil {
		t.Fatal(err)
	}
	if seen := string(call.Output); strings.Contains(seen, testPIN) || !strings.Contains(seen, "node-of-the-test") {
		t.Errorf("arguments and environment of the process:\n%s", seen)
	}
}

func TestAPanicOfTheDriverFailsTheCallOnly(t *testing.T) {
	token := open(t, wildConfig(t))
	s := newSession(t, token)
	err := s.Do(&hsm.Call{UserID: []byte("panic"), Input: []byte("a secret of the caller")})
	wantClass(t, "the call", err, hsm.ClassAmbiguous)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the panic's value crosses: %v", err)
	}
	if err := s.Do(&hsm.Call{Verb: kms.VerbRandom, Length: 1}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestWhatTheDriverSetsOrFailsWithCrosses(t *testing.T) {
	token := open(t, wildConfig(t))
	s := newSession(t, token)
	call := wild("other nonce")
	call.Nonce = make([]byte, 12)
	if err := s.Do(call); err != nil || !bytes.Equal(call.Nonce, bytes.Repeat([]byte{7}, 12)) {
		t.Errorf("the driver's nonce is %x, %v", call.Nonce, err)
	}
	for what, want := range map[string]hsm.Error{
		"vendor error":  {Class: hsm.ClassCapacity, Call: "C_Sign", Code: 0x80000123},
		"joined errors": {Class: hsm.ClassStaleObject, Call: "worker process", Code: 0x60},
		"foreign error": {Class: hsm.ClassAmbiguous, Call: "worker process"},
		"long answer":   {Class: hsm.ClassRequest, Call: "worker process"},
	} {
		err := s.Do(wild(what))
		if e, ok := errors.AsType[*hsm.Error](err); !ok || e.Class != want.Class || e.Call != want.Call || e.Code != want.Code {
			t.Errorf("%s: %v, want %v", what, err, &want)
		}
	}
	wantClass(t, "an input that is too long", s.Do(&hsm.Call{Input: make([]byte, maxFrame)}), hsm.ClassRequest)
	if _, err := token.Import(kms.SpecAES256, kms.UsageEncryptDecrypt, make([]byte, 32)); hsm.ClassOf(err) != hsm.ClassUnsupported {
		t.Errorf("a driver without imports: %v", err)
	}
	if err := s.Do(&hsm.Call{Verb: kms.VerbRandom, Length: 1}); err != nil {
		t.Errorf("the session after that: %v", err)
	}
}

// memoryLog keeps what is logged.
type memoryLog struct {
	mu sync.Mutex
	bytes.Buffer
}

func (m *memoryLog) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.Buffer.Write(p)
}

func TestStandardErrorGoesToTheLog(t *testing.T) {
	var log memoryLog
	c := wildConfig(t)
	c.Log = slog.New(slog.NewTextHandler(&log, nil)).With(slog.String("node", "hsm-7"))
	token := open(t, c)
	call := wild("speak")
	call.Input = []byte("the first line\n\n" + strings.Repeat("y", 2*maxLogLine) + "\nan unfinished line")
	if err := newSession(t, token).Do(call); err != nil {
		t.Fatal(err)
	}
	if err := token.Close(); err != nil { // all of it has been read then
		t.Fatal(err)
	}
	var lines []string
	for record := range strings.Lines(log.String()) {
		if strings.Contains(record, "from the worker process") {
			lines = append(lines, record)
		}
		if !strings.Contains(record, "node=hsm-7") {
			t.Errorf("without the node's name: %s", record)
		}
	}
	want := []string{"the first line", strings.Repeat("y", maxLogLine), strings.Repeat("y", maxLogLine), "an unfinished line"}
	if len(lines) != len(want) {
		t.Fatalf("%d lines of %d: %.200q", len(lines), len(want), lines)
	}
	for i := range want {
		if !strings.Contains(lines[i], want[i]) {
			t.Errorf("line %d is %.200q", i, lines[i])
		}
	}
}

func TestAFloodOfLinesIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log memoryLog
		w := &lineLog{log: slog.New(slog.NewTextHandler(&log, nil))}
		for i := range 3 * maxLogBurst {
			fmt.Fprintf(w, "line %d\n", i)
		}
		time.Sleep(time.Second)
		fmt.Fprintln(w, "later")
		w.flush()
		text := log.String()
		if n := strings.Count(text, "from the worker process\""); n != maxLogBurst+1 {
			t.Errorf("%d lines were passed, want %d", n, maxLogBurst+1)
		}
		if !strings.Contains(text, fmt.Sprintf("lines=%d", 2*maxLogBurst)) || !strings.Contains(text, "line=later") {
			t.Errorf("the log does not tell of what was left out, or of what came later:\n%s", text)
		}
	})
}

// The process ends with its parent however that ends, in the middle of a call
// that hangs, and has no file of it beside its sockets.
func TestAnOrphanDoesNotLive(t *testing.T) {
	raw, err := json.Marshal(settings{Wild: true})
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command("/proc/self/exe", parentRole)
	parent.Args[0] = os.Args[0]
	parent.Stdin, parent.Stderr = bytes.NewReader(raw), os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer parent.Wait()
	defer parent.Process.Kill()
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	for _, file := range openFiles(t, pid) {
		if file.fd > controlFD && !strings.HasPrefix(file.target, "socket:") && !strings.HasPrefix(file.target, "anon_inode:") {
			t.Errorf("the process has inherited %s as %d", file.target, file.fd)
		}
	}
	worker := watch(t, pid)
	if worker.endsWithin(0) {
		t.Fatal("the process has ended before its parent")
	}
	// Stopped, it cannot see that its socket closes: the kernel must end it.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !worker.endsWithin(patience) {
		t.Error("the process outlives its parent")
	}
}

// The kernel kills the process when the thread that started it ends, so that
// must not be one of those that end.
func TestTheProcessOutlivesTheThreadThatOpenedIt(t *testing.T) {
	c := wildConfig(t)
	var token *Token
	var err error
	thread := make(chan int)
	release := make(chan struct{})
	defer close(release)
	openOnAThread := func() {
		runtime.LockOSThread() // without the counterpart the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			thread <- 0
			<-release // this one never ends; kept, it leaves the next goroutine another
			runtime.UnlockOSThread()
			return
		}
		token, err = Open(t.Context(), c)
		thread <- unix.Gettid()
	}
	id := 0
	for id == 0 {
		go openOnAThread()
		id = <-thread
	}
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/self/task/%d", id)
	defer token.Close()
	for {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			break
		}
		runtime.Gosched()
	}
	if watch(t, token.pid()).endsWithin(100 * time.Millisecond) {
		t.Error("the process has ended with the thread")
	}
	if err := token.Probe(); err != nil {
		t.Error(err)
	}
}

type openFile struct {
	fd     int
	target string
}

func openFiles(t *testing.T, pid int) []openFile {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var files []openFile
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if target, err := os.Readlink(filepath.Join(folder, e.Name())); err == nil { // or it was closed meanwhile
			files = append(files, openFile{fd, target})
		}
	}
	return files
}

// What ends the service by way of its group or its unit does not end the
// process under the requests that still run.
func TestSignalsForTheServiceDoNotEndTheProcess(t *testing.T) {
	token := open(t, wildConfig(t))
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if err := syscall.Kill(token.pid(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := token.Probe(); err != nil {
		t.Errorf("Probe: %v", err)
	}
	if group, err := syscall.Getpgid(token.pid()); err != nil || group == syscall.Getpgrp() {
		t.Errorf("the process is in the group of its parent: %v", err)
	}
}

func TestAProgramThatNobodyStartedRefusesToServe(t *testing.T) {
	out, err := exec.Command("/proc/self/exe", workerRole).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not by hand") {
		t.Errorf("%v: %s", err, out)
	}
}
