package audit

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullFileSystemTakesStateChangesOnly is TestFullDiskTakesStateChangesOnly
// on a real file system of one mebibyte, which needs the right to mount.
func TestFullFileSystemTakesStateChangesOnly(t *testing.T) {
	mount := t.TempDir()
	require(t, "tmpfs", unix.Mount("tmpfs", mount, "tmpfs", 0, "size=1m,mode=0700"))
	t.Cleanup(func() {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(mount, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 512<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	c := testConfig(t)
	c.Dir = filepath.Join(mount, "journal")
	l := mustOpen(t, c)
	checkFullDisk(t, c, l, func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	})
}
