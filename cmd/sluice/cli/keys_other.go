//go:build !linux

package cli

import "os"

// readKeys takes no single keys where we do not know how: Ctrl-C ends the verb.
func readKeys(*os.File) (quit <-chan struct{}, restore func()) { return nil, func() {} }
