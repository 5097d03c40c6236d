package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// readKeys takes single keys from a terminal: quit is closed at a q. Signals
// come as ever. restore gives the terminal back as it was.
func readKeys(terminal *os.File) (quit <-chan struct{}, restore func()) {
	fd := int(terminal.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, func() {}
	}
	now := *was
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &now); err != nil {
		return nil, func() {}
	}
	pressed := make(chan struct{})
	// It ends with the process: a read of a terminal cannot be taken back.
	go func() {
		var key [1]byte
		for {
			if n, err := terminal.Read(key[:]); err != nil || n == 0 {
				return
			}
			if key[0] == 'q' {
				close(pressed)
				return
			}
		}
	}()
	// An error here has nobody to tell and nothing to undo it with.
	return pressed, func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) }
}
