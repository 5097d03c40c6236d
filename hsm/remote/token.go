package remote

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// Limits of calls. The pool gives a call up after 5 s, a slow one after 60: here
// it fails a little sooner, so that the pool hears of it in time and does not
// count a worker as lost that comes back in the same moment.
const (
	// DefaultCallLimit bounds every call but those of DefaultSlowLimit.
	DefaultCallLimit = 4500 * time.Millisecond
	// DefaultSlowLimit bounds the opening of the token, key generation and
	// import, and Enforces.
	DefaultSlowLimit = 55 * time.Second
	// watchInterval is how often overdue calls are looked for.
	watchInterval = 100 * time.Millisecond
)

// Config says how to start a worker process and what it shall open.
type Config struct {
	// Program is the path of the program, Args its arguments from the name on;
	// both are seen by everybody on the machine. The program calls Serve.
	Program string
	Args    []string
	// Settings say what to open; only the Opener knows what they mean. They
	// are not secret.
	Settings []byte
	// PIN returns the user's PIN. It is called once and its result wiped.
	PIN func() ([]byte, error)
	// Log gets what happens to the process and what it writes to its standard
	// error; it should name the node.
	Log *slog.Logger
	// CallLimit and SlowLimit bound calls; 0: the defaults.
	CallLimit, SlowLimit time.Duration
}

// Token is a token that is open in a worker process. It implements hsm.Token,
// hsm.EarlierLoader and hsm.Importer.
type Token struct {
	process              *process
	info                 hsm.TokenInfo
	callLimit, slowLimit time.Duration
	began                time.Time // when now was 0

	// mu comes before no other lock. It is not held in calls.
	mu     sync.Mutex
	closed bool
	idle   []*caller
	all    []*caller
}

var (
	_ hsm.Token         = (*Token)(nil)
	_ hsm.Importer      = (*Token)(nil)
	_ hsm.EarlierLoader = (*Token)(nil)
	_ hsm.Session       = (*session)(nil)
)

// Open starts the process and opens the token in it. It fails with the class
// that the Opener's error has there, with ClassPIN when there is no PIN, and
// with ClassTokenDown when the process cannot be started or does not answer. The end
// of ctx ends the process and with it Open.
func Open(ctx context.Context, c Config) (*Token, error) {
	pin, err := c.PIN()
	if err != nil {
		return nil, &hsm.Error{Class: hsm.ClassPIN, Call: "worker process", Err: err}
	}
	defer clear(pin)
	p, err := start(&c, c.Log)
	if err != nil {
		return nil, &hsm.Error{Class: hsm.ClassTokenDown, Call: "worker process", Err: err}
	}
	t := &Token{process: p, callLimit: c.CallLimit, slowLimit: c.SlowLimit, began: time.Now()}
	if t.callLimit == 0 {
		t.callLimit = DefaultCallLimit
	}
	if t.slowLimit == 0 {
		t.slowLimit = DefaultSlowLimit
	}
	go t.watch()
	stop := context.AfterFunc(ctx, func() { p.kill(context.Cause(ctx)) })
	err = t.open(&opening{version: version, settings: c.Settings, pin: pin})
	if !stop() && err == nil {
		// It ended in the moment of success; the process is about to be killed.
		err = &hsm.Error{Class: hsm.ClassTokenDown, Call: "worker process", Err: context.Cause(ctx)}
	}
	if err != nil {
		p.kill(err)
		t.release()
		return nil, err
	}
	return t, nil
}

func (t *Token) open(o *opening) error {
	c, err := t.take()
	if err != nil {
		return err
	}
	body, err := c.ask(kindOpen, o.size(), t.slowLimit, o.append)
	if err != nil {
		return err
	}
	if t.info, err = parseInfo(body); err != nil {
		return c.misbehaved()
	}
	c.wipe()
	t.put(c)
	return nil
}

// Info describes the token as it was when it was opened.
func (t *Token) Info() hsm.TokenInfo { return t.info }

// now is the time on the token's clock.
func (t *Token) now() time.Duration { return time.Since(t.began) }

// watch kills the process when one of its calls is over its limit, and ends
// with the process. It looks at the calls now and then, which costs them
// nothing; a timer of their own would cost each as much as the way over the
// socket.
func (t *Token) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-t.process.ended:
			return
		case <-tick.C:
			now := int64(t.now())
			if t.any(func(due int64) bool { return due != 0 && due < now }) {
				t.process.kill(errOverdue)
			}
		}
	}
}

// busy tells whether a call runs.
func (t *Token) busy() bool { return t.any(func(due int64) bool { return due != 0 }) }

func (t *Token) any(is func(due int64) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.all, func(c *caller) bool { return is(c.due.Load()) })
}

// take returns a line that nobody uses, a new one when there is none.
func (t *Token) take() (*caller, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, &hsm.Error{Class: hsm.ClassTokenDown, Call: "worker process", Err: errClosed}
	}
	if t.process.lost() {
		return nil, t.process.failure()
	}
	if n := len(t.idle); n > 0 {
		c := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return c, nil
	}
	l, end, err := newPair()
	if err != nil {
		return nil, &hsm.Error{Class: hsm.ClassCapacity, Call: "socketpair", Err: err}
	}
	if err := sendEnd(t.process.control, end); err != nil {
		l.file.Close()
		return nil, t.process.failure()
	}
	c := &caller{line: l, token: t}
	t.all = append(t.all, c)
	return c, nil
}

// put gives a line back.
func (t *Token) put(c *caller) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.idle = append(t.idle, c)
	}
}

// run makes a call on the token.
func (t *Token) run(k kind, limit time.Duration, args task) (result, error) {
	c, err := t.take()
	if err != nil {
		return result{}, err
	}
	defer t.put(c)
	body, err := c.ask(k, args.size(), limit, args.append)
	if err != nil {
		return result{}, err
	}
	var r result
	if r.parse(body) != nil {
		return result{}, c.misbehaved()
	}
	r.key.Material, r.key.PublicKey = bytes.Clone(r.key.Material), bytes.Clone(r.key.PublicKey)
	c.wipe()
	return r, nil
}

// Generate implements hsm.Token.
func (t *Token) Generate(spec kms.Spec, usage kms.Usage) (hsm.Generated, error) {
	r, err := t.run(kindGenerate, t.slowLimit, task{spec: spec, usage: usage})
	return r.key, err
}

// GenerateSealingKey implements hsm.Token.
func (t *Token) GenerateSealingKey() ([]byte, error) {
	r, err := t.run(kindGenerateSealingKey, t.slowLimit, task{})
	return r.key.Material, err
}

// Load implements hsm.Token.
func (t *Token) Load(material []byte, spec kms.Spec, usage kms.Usage) (hsm.Handle, error) {
	r, err := t.run(kindLoad, t.callLimit, task{spec: spec, usage: usage, data: material})
	return r.handle, err
}

// LoadSealingKey implements hsm.Token.
func (t *Token) LoadSealingKey(material []byte) (hsm.Handle, error) {
	r, err := t.run(kindLoadSealingKey, t.callLimit, task{data: material})
	return r.handle, err
}

// LoadEarlier implements hsm.EarlierLoader. A driver that holds no earlier
// roots answers with ClassUnsupported.
func (t *Token) LoadEarlier(generation uint32, material []byte, spec kms.Spec, usage kms.Usage) (hsm.Handle, error) {
	r, err := t.run(kindLoadEarlier, t.callLimit, task{generation: generation, spec: spec, usage: usage, data: material})
	return r.handle, err
}

// LoadEarlierSealingKey implements hsm.EarlierLoader.
func (t *Token) LoadEarlierSealingKey(generation uint32, material []byte) (hsm.Handle, error) {
	r, err := t.run(kindLoadEarlierSealingKey, t.callLimit, task{generation: generation, data: material})
	return r.handle, err
}

// Unload implements hsm.Token.
func (t *Token) Unload(h hsm.Handle) error {
	_, err := t.run(kindUnload, t.callLimit, task{handle: h})
	return err
}

// Import implements hsm.Importer. A driver that takes no keys from outside
// answers with ClassUnsupported.
func (t *Token) Import(spec kms.Spec, usage kms.Usage, key []byte) (hsm.Generated, error) {
	r, err := t.run(kindImport, t.slowLimit, task{spec: spec, usage: usage, data: key})
	return r.key, err
}

// Enforces implements hsm.Token.
func (t *Token) Enforces() (bool, error) {
	r, err := t.run(kindEnforces, t.slowLimit, task{})
	return r.yes, err
}

// Probe implements hsm.Token. A process that has ended fails it.
func (t *Token) Probe() error {
	_, err := t.run(kindProbe, t.callLimit, task{})
	return err
}

// Close closes the token in the process, ends the process and waits for that:
// the call limit and some seconds at most. A process in which a call still
// runs is killed instead, since a module must not be closed under its calls.
// With a process that has ended, however it did, the token is closed.
func (t *Token) Close() error {
	var err error
	if !t.busy() {
		_, err = t.run(kindClose, t.callLimit, task{})
	} else {
		t.process.kill(errClosed)
	}
	if t.process.lost() {
		err = nil
	}
	if stuck := t.release(); stuck != nil {
		err = stuck
	}
	return err
}

// release ends the process and gives back what the token holds.
func (t *Token) release() error {
	t.mu.Lock()
	closed := t.closed
	t.closed = true
	t.mu.Unlock()
	if closed {
		return nil
	}
	err := t.process.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		c.file.Close()
	}
	t.idle, t.all = nil, nil
	return err
}
