package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-kms/sluice/hsm"
)

// Opener opens the token that the settings name. pin is wiped when it returns.
type Opener func(settings, pin []byte) (hsm.Token, error)

// Serve is the life of a worker process: it serves its parent until that
// closes the control socket, which is not there when the program was not
// started by Open. The program ends when it returns, whatever still runs; calls
// may, in a module that hangs.
//
// It takes over the process: descriptors that were inherited beside the socket
// are closed, and signals that are meant for the parent ignored.
func Serve(open Opener) error {
	if kind, err := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || kind != unix.AF_UNIX {
		return errors.New("a worker process is started by the service and not by hand")
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := closeInherited(); err != nil {
		return fmt.Errorf("closing inherited files: %w", err)
	}
	s := &server{opener: open}
	for {
		end, err := receiveEnd(controlFD)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the control socket: %w", err)
		}
		go s.serve(newLine(end))
	}
}

// closeInherited closes the files that libraries of the parent have opened
// without marking them as its own.
func closeInherited() error {
	const folder = "/proc/self/fd"
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= controlFD {
			continue
		}
		switch target, err := os.Readlink(folder + "/" + e.Name()); {
		case err != nil: // the folder's own, which is closed by now
		case target == "anon_inode:[eventpoll]", target == "anon_inode:[eventfd]": // may be the Go runtime's
		default:
			_ = unix.Close(fd)
		}
	}
	return nil
}

// server holds the process's token.
type server struct {
	opener Opener

	mu    sync.RWMutex // of the field, not of calls
	token hsm.Token    // nil: not opened yet, or closed
}

// serve answers the requests of a line until that ends.
func (s *server) serve(l *line) {
	defer l.file.Close()
	e := &exchange{server: s, line: l}
	for {
		k, body, err := l.receive()
		if err != nil {
			return
		}
		frame := e.answer(k, body)
		l.wipe()
		if l.send(frame) != nil {
			return
		}
	}
}

// exchange is a line's state: the session that it belongs to, and the call
// that is under way there.
type exchange struct {
	server  *server
	line    *line
	session hsm.Session // nil: none
}

var (
	errNotOpen    = &hsm.Error{Class: hsm.ClassTokenDown, Call: "worker process", Err: errors.New("no token is open")}
	errNoSession  = &hsm.Error{Class: hsm.ClassSession, Call: "worker process", Err: errors.New("the line has no session")}
	errNoImporter = &hsm.Error{Class: hsm.ClassUnsupported, Call: "Import"}
	errNoEarlier  = &hsm.Error{Class: hsm.ClassUnsupported, Call: "LoadEarlier"}
	errVersion    = &hsm.Error{Class: hsm.ClassTokenDown, Call: "worker process", Err: errors.New("the program is another version than the service")}
	errLongAnswer = &hsm.Error{Class: hsm.ClassRequest, Call: "worker process", Err: errors.New("the output is longer than a session gives")}
)

// answer serves a request and returns the frame of its answer.
func (e *exchange) answer(k kind, body []byte) []byte {
	frame, err := e.run(k, body)
	if err == nil {
		return frame
	}
	frame, _ = e.line.begin(kindFailed, fixedFields+2*maxText) // it fits
	return appendError(frame, err)
}

// run serves a request. A panic of the driver is an error of the call, as it
// is in the pool: an input that provokes one must not take the node down.
func (e *exchange) run(k kind, body []byte) (frame []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			// Its value could hold anything.
			err = &hsm.Error{Class: hsm.ClassAmbiguous, Call: "worker process", Err: fmt.Errorf("panic of type %T\n%s", p, debug.Stack())}
		}
	}()
	switch k {
	case kindOpen:
		return e.open(body)
	case kindDo:
		return e.do(body)
	case kindNewSession, kindCloseSession:
		if err := e.changeSession(k); err != nil {
			return nil, err
		}
		return e.done(0, func(b []byte) []byte { return b })
	}
	r, err := e.task(k, body)
	if err != nil {
		return nil, err
	}
	defer clear(r.key.Material)
	return e.done(r.size(), r.append)
}

// done begins an answer and appends its body of at most size bytes.
func (e *exchange) done(size int, body func([]byte) []byte) ([]byte, error) {
	frame, ok := e.line.begin(kindDone, size)
	if !ok {
		return nil, errLongAnswer
	}
	return body(frame), nil
}

func (e *exchange) open(body []byte) ([]byte, error) {
	var o opening
	if err := o.parse(body); err != nil {
		return nil, err
	}
	if o.version != version {
		return nil, errVersion
	}
	token, err := e.server.opener(o.settings, o.pin)
	if err != nil {
		return nil, err
	}
	e.server.mu.Lock()
	e.server.token = token
	e.server.mu.Unlock()
	info := token.Info()
	return e.done(infoSize(&info), func(b []byte) []byte { return appendInfo(b, &info) })
}

func (e *exchange) token() (hsm.Token, error) {
	e.server.mu.RLock()
	defer e.server.mu.RUnlock()
	if e.server.token == nil {
		return nil, errNotOpen
	}
	return e.server.token, nil
}

func (e *exchange) do(body []byte) ([]byte, error) {
	if e.session == nil {
		return nil, errNoSession
	}
	var c hsm.Call
	if err := parseCall(&c, body); err != nil {
		return nil, err
	}
	nonce := c.Nonce
	if err := e.session.Do(&c); err != nil {
		return nil, err
	}
	o := outcome{output: c.Output, secret: c.Secret, valid: c.Valid}
	if !bytes.Equal(c.Nonce, nonce) {
		o.nonce = c.Nonce
	}
	defer clear(o.output)
	defer clear(o.secret)
	return e.done(o.size(), o.append)
}

func (e *exchange) changeSession(k kind) error {
	if k == kindCloseSession && e.session != nil {
		err := e.session.Close()
		e.session = nil
		return err
	}
	token, err := e.token()
	if err != nil {
		return err
	}
	if e.session != nil {
		return errFrame
	}
	e.session, err = token.NewSession()
	return err
}

// task makes a call on the token.
func (e *exchange) task(k kind, body []byte) (r result, err error) {
	var t task
	if err := t.parse(body); err != nil {
		return r, err
	}
	token, err := e.token()
	if err != nil {
		return r, err
	}
	switch k {
	case kindGenerate:
		r.key, err = token.Generate(t.spec, t.usage)
	case kindGenerateSealingKey:
		r.key.Material, err = token.GenerateSealingKey()
	case kindLoad:
		r.handle, err = token.Load(t.data, t.spec, t.usage)
	case kindLoadSealingKey:
		r.handle, err = token.LoadSealingKey(t.data)
	case kindLoadEarlier, kindLoadEarlierSealingKey:
		r.handle, err = loadEarlier(token, k, &t)
	case kindUnload:
		err = token.Unload(t.handle)
	case kindImport:
		importer, ok := token.(hsm.Importer)
		if !ok {
			return r, errNoImporter
		}
		r.key, err = importer.Import(t.spec, t.usage, t.data)
	case kindEnforces:
		r.yes, err = token.Enforces()
	case kindProbe:
		err = token.Probe()
	case kindClose:
		e.server.mu.Lock()
		e.server.token = nil
		e.server.mu.Unlock()
		err = token.Close()
	default:
		err = errFrame
	}
	return r, err
}

func loadEarlier(token hsm.Token, k kind, t *task) (hsm.Handle, error) {
	loader, ok := token.(hsm.EarlierLoader)
	switch {
	case !ok:
		return 0, errNoEarlier
	case k == kindLoadEarlier:
		return loader.LoadEarlier(t.generation, t.data, t.spec, t.usage)
	}
	return loader.LoadEarlierSealingKey(t.generation, t.data)
}
