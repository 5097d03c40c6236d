// Package remote runs a driver of package hsm in a process of its own: Open
// starts the process and gives an hsm.Token, Serve is the life of the process
// and serves any hsm.Token.
//
// A PKCS#11 module is foreign code. One that crashes takes its process with
// it, and one that hangs can be neither interrupted nor unloaded. In a process
// of its own it takes down one node, which the pool opens anew while the other
// nodes of the domain serve.
//
// It has a folder of its own because it is a third driver beside hsm/p11 and
// hsm/soft, and knows neither: what the process opens is its caller's choice.
//
// # The process
//
// The process is started by its parent, from the same binary as a rule, and
// has one way in: a Unix-domain socket pair that it inherits as file
// descriptor 3. Nobody else can connect, so there is nothing to authenticate.
// Settings and PIN come over the socket, and nothing secret is in arguments or
// environment. It ends when the socket closes, and the kernel kills it when
// its parent dies, even in a module that hangs. Signals that are meant for the
// service (interrupt, terminate) it ignores: the service closes it when its
// last request has ended.
//
// # Lines
//
// Descriptor 3 carries no calls, only the ends of further socket pairs
// (SCM_RIGHTS). Each is a line: a request goes one way, its answer comes back,
// then the next. A session has a line to itself, since it runs one call at a
// time, and the calls on the token as a whole take a line that is idle. So no
// call waits for another on the way, nothing has to be told apart by numbers,
// and a call that hangs holds up nothing but its own line.
//
// Both sides read without the network poller: the thread of a call waits in
// the kernel for its answer as it would wait in the module.
//
// # Frames
//
//	u32be length | kind u8 | body
//
// The length counts kind and body and is maxFrame at most. Fields in a body
// have fixed places; see message.go. The first request names the version of
// all this. Each side treats what it reads as foreign: a frame that is not
// exactly one of the expected kind ends the line, and its sender if that was
// the process.
//
// # Limits
//
// A call that does not return within its limit fails, and the process is killed with all that it holds: nobody can know what a module that hangs
// still holds locked. All calls that run then fail as ClassTokenDown, as they
// do when the process crashes, and so does everything after until the pool
// has closed the token and opened another.
//
// # Memory
//
// Frames hold keys on their way in, plaintexts and the PIN. The buffers on
// both sides are wiped after each exchange. What the kernel keeps of a message
// that was read is out of reach.
//
// # What does not cross
//
// The causes behind an *hsm.Error arrive as text: class, function and code are
// what the pool acts on. hsm.EnvelopeOpener is not served; only the in-process
// engine opens envelopes.
package remote
