package remote

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-kms/sluice/hsm"
)

// controlFD is the control socket's descriptor in the process: the first after
// the standard ones.
const controlFD = 3

const (
	// exitLimit is how long the process may take to end once its control
	// socket is closed, and how long after it was killed until it is given up:
	// in the kernel, where a driver can keep a process for ever.
	exitLimit = 2 * time.Second
	// maxLogLine bounds a line of the process's standard error, in bytes; what
	// is longer becomes several.
	maxLogLine = 4 << 10
	// maxLogBurst bounds the lines a second that are passed to the log: the
	// trace of the goroutine that crashed is in the first dozens.
	maxLogBurst = 50
)

// Why a process is not there any more.
var (
	errEnded   = errors.New("the worker process has ended")
	errOverdue = errors.New("a call did not return within its limit, so the worker process was killed")
	errClosed  = errors.New("the token is closed")
	errStuck   = errors.New("the worker process does not end though it was killed")
)

// process is a running worker process.
type process struct {
	cmd     *exec.Cmd
	control int // our end of the control socket
	log     *slog.Logger
	ended   chan struct{} // closed when the process has ended and was waited for
	cause   atomic.Pointer[error]
}

// start starts the worker process.
func start(c *Config, log *slog.Logger) (*process, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	p := &process{control: pair[0], log: log, ended: make(chan struct{})}
	errs := &lineLog{log: log}
	p.cmd = &exec.Cmd{
		Path: c.Program, Args: c.Args, Stderr: errs, ExtraFiles: []*os.File{theirs}, WaitDelay: exitLimit,
		// A group of its own: a terminal's interrupt is not for it.
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true},
	}
	started := make(chan error)
	go p.run(started, errs)
	if err := <-started; err != nil {
		unix.Close(p.control)
		return nil, err
	}
	return p, nil
}

// run starts the process and waits for its end. Both are done by one thread
// that is kept for that: the kernel takes the end of the thread that started a
// process for the death of its parent.
func (p *process) run(started chan<- error, errs *lineLog) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	pid := slog.Int("pid", p.cmd.Process.Pid)
	p.log.Info("worker process started", pid)
	err = p.cmd.Wait()
	errs.flush()
	switch cause := p.reason(); {
	case cause == errClosed && err == nil:
		p.log.Info("worker process ended", pid)
	default:
		p.log.Error("worker process ended", pid, slog.Any("cause", cause), slog.Any("state", err))
	}
	close(p.ended)
}

// kill ends the process at once. The first cause is the one that counts.
func (p *process) kill(cause error) {
	p.cause.CompareAndSwap(nil, &cause)
	_ = p.cmd.Process.Kill() // fails when the process has ended
}

// lost tells whether the process has ended or is about to.
func (p *process) lost() bool {
	select {
	case <-p.ended:
		return true
	default:
		return p.cause.Load() != nil
	}
}

func (p *process) reason() error {
	if cause := p.cause.Load(); cause != nil {
		return *cause
	}
	return errEnded
}

// failure is the error of every call that the process cannot answer any more.
func (p *process) failure() *hsm.Error {
	return &hsm.Error{Class: hsm.ClassTokenDown, Call: "worker process", Err: p.reason()}
}

// end lets the process end, by force when it takes too long, and waits for it.
// It is called once.
func (p *process) end() error {
	closed := errClosed
	p.cause.CompareAndSwap(nil, &closed)
	unix.Close(p.control)
	if !p.endsWithin(exitLimit) {
		p.kill(errClosed)
		if !p.endsWithin(exitLimit) {
			return &hsm.Error{Class: hsm.ClassTokenDown, Call: "worker process", Err: errStuck}
		}
	}
	return nil
}

func (p *process) endsWithin(d time.Duration) bool {
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case <-p.ended:
		return true
	case <-limit.C:
		return false
	}
}

// lineLog passes what the process writes to its standard error to the log, a
// record for each line. Of the flood that a crash writes it passes the
// beginning, which tells where it was.
type lineLog struct {
	log  *slog.Logger
	rest []byte // the beginning of a line

	second  time.Time // when the current second began
	passed  int       // lines in it
	dropped int       // lines since the last that was passed
}

func (w *lineLog) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		switch end := bytes.IndexByte(w.rest, '\n'); {
		case 0 <= end && end <= maxLogLine:
			w.record(w.rest[:end])
			w.rest = w.rest[end+1:]
		case len(w.rest) >= maxLogLine:
			w.record(w.rest[:maxLogLine])
			w.rest = w.rest[maxLogLine:]
		default:
			return len(p), nil
		}
	}
}

// flush passes on what came without the end of its line, and tells of lines
// that were left out.
func (w *lineLog) flush() {
	w.record(w.rest)
	w.rest = nil
	w.tellDropped()
}

func (w *lineLog) record(line []byte) {
	if len(line) == 0 {
		return
	}
	if now := time.Now(); now.Sub(w.second) >= time.Second {
		w.tellDropped()
		w.second, w.passed = now, 0
	}
	if w.passed >= maxLogBurst {
		w.dropped++
		return
	}
	w.passed++
	w.log.Warn("from the worker process", slog.String("line", string(line)))
}

func (w *lineLog) tellDropped() {
	if w.dropped > 0 {
		w.log.Warn("more lines from the worker process were left out", slog.Int("lines", w.dropped))
		w.dropped = 0
	}
}
