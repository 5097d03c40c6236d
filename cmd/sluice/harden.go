package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// sm4Env makes gmsm use the AES instructions for single SM4 blocks, in
// constant time. gmsm reads it before main begins, so a server that was
// started without it starts itself again.
const sm4Env = "FORCE_SM4BLOCK_AESNI"

// gcPercent is how much the heap may grow between two collections, relative to
// what lives. The live heap is some tens of MiB, bounded by the caches, and
// garbage is small and short-lived, so the default of 100 collects many times
// a second for nothing. memoryLimit, in bytes, makes collections frequent
// again before the memory of a small machine is used up; it is several times
// what the caches' bounds allow to live. GOGC and GOMEMLIMIT in the
// environment win.
const (
	gcPercent   = 800
	memoryLimit = 2 << 30
)

// threadsPerCPU is how many threads may run Go code for each processor. A call
// into a PKCS#11 module occupies one of them until the scheduler notices,
// which takes 20 µs at least, so with as many as there are processors these
// idle while modules work. GOMAXPROCS in the environment wins.
const threadsPerCPU = 2

func tuneScheduler() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(threadsPerCPU * runtime.GOMAXPROCS(0))
	}
}

func tuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// harden prepares the process that will hold keys: no core dumps, no reading
// of its memory by others of the same user, private files, constant-time SM4.
// It does not return when the process has to start again.
func harden() error {
	unix.Umask(0o077)
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("switching core dumps off: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("making the process undumpable: %w", err)
	}
	// A provider configured there could load a PKCS#11 module into the
	// OpenSSL that a module itself uses, and lock up.
	os.Unsetenv("OPENSSL_CONF")
	tuneGC()
	tuneScheduler()
	if os.Getenv(sm4Env) == "1" {
		return nil
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program to start again: %w", err)
	}
	if err := unix.Exec(exe, os.Args, append(os.Environ(), sm4Env+"=1")); err != nil {
		return fmt.Errorf("starting again with %s=1: %w", sm4Env, err)
	}
	return nil
}
