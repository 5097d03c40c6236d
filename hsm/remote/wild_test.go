package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/soft"
)

// wildToken is the in-process engine with a mind of its own: a call whose user
// id is one of wildly does that instead. It runs in the worker process.
type wildToken struct{ hsm.Token }

func openWildDriver(pin []byte) (hsm.Token, error) {
	if string(pin) != testPIN {
		return nil, &hsm.Error{Class: hsm.ClassPIN, Call: "C_Login", Code: 0xa0}
	}
	token, err := soft.Open()
	if err != nil {
		return nil, err
	}
	return wildToken{token}, nil
}

// Import hides that the engine does: wildToken is no hsm.Importer, because
// hsm.Token has no such method.
var _ hsm.Token = wildToken{}

func (t wildToken) NewSession() (hsm.Session, error) {
	s, err := t.Token.NewSession()
	return wildSession{s}, err
}

type wildSession struct{ hsm.Session }

func (s wildSession) Do(c *hsm.Call) error {
	if do := wildly[string(c.UserID)]; do != nil {
		return do(c)
	}
	return s.Session.Do(c)
}

// errAlreadyGone has two errors of the driver in it and more text.
var errAlreadyGone = errors.Join(
	fmt.Errorf("loading: %w", &hsm.Error{Class: hsm.ClassStaleObject, Call: "C_Sign", Code: 0x60}),
	&hsm.Error{Class: hsm.ClassPIN, Call: "C_Logout"})

var wildly = map[string]func(*hsm.Call) error{
	"hang":  func(*hsm.Call) error { select {} },
	"panic": func(c *hsm.Call) error { panic(string(c.Input)) },
	"crash": func(*hsm.Call) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGSEGV); err != nil {
			return err
		}
		select {}
	},
	"vendor error": func(*hsm.Call) error {
		return &hsm.Error{Class: hsm.ClassCapacity, Call: "C_Sign", Code: 0x80000123, Err: errors.New("a cause")}
	},
	"joined errors": func(*hsm.Call) error { return errAlreadyGone },
	"foreign error": func(*hsm.Call) error { return io.ErrUnexpectedEOF },
	"other nonce": func(c *hsm.Call) error {
		c.Nonce = bytes.Repeat([]byte{7}, len(c.Nonce))
		return nil
	},
	"long answer": func(c *hsm.Call) error {
		c.Output = make([]byte, maxFrame)
		return nil
	},
	"speak": func(c *hsm.Call) error {
		_, err := os.Stderr.Write(c.Input)
		return err
	},
	"show": func(c *hsm.Call) error {
		c.Output = []byte(strings.Join(append(os.Args, os.Environ()...), "\n"))
		return nil
	},
}

// serveGarbage answers the first request with something else.
func serveGarbage() error {
	end, err := receiveEnd(controlFD)
	if err != nil {
		return err
	}
	l := newLine(end)
	if _, _, err := l.receive(); err != nil {
		return err
	}
	if _, err := l.file.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, l.file) // until it is killed
	return err
}

// beParent opens a token in a worker process, tells the process's number, and
// makes a call that hangs.
func beParent() error {
	raw, err := io.ReadAll(bufio.NewReader(os.Stdin))
	if err != nil {
		return err
	}
	// A file that a library has left open for all children.
	if _, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD, 64); err != nil {
		return err
	}
	token, err := Open(context.Background(), Config{Program: "/proc/self/exe", Args: []string{os.Args[0], workerRole},
		Settings: raw, PIN: func() ([]byte, error) { return []byte(testPIN), nil }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	s, err := token.NewSession()
	if err != nil {
		return err
	}
	fmt.Println(token.pid())
	return s.Do(&hsm.Call{UserID: []byte("hang")})
}
