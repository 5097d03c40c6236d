package soft

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// TestKeyMemoryIsLockedAndNotDumped reads what the kernel says of the slab's
// mapping: "lo" is locked, "dd" is left out of dumps (proc(5), smaps).
func TestKeyMemoryIsLockedAndNotDumped(t *testing.T) {
	token := openToken(t)
	flags := mappingFlags(t, uintptr(unsafe.Pointer(&token.slab.memory[0])))
	if !slices.Contains(flags, "dd") {
		t.Errorf("the slab can be dumped: flags %v", flags)
	}
	if locked := slices.Contains(flags, "lo"); locked != token.Locked() {
		t.Errorf("Locked() = %v, the kernel's flags are %v", token.Locked(), flags)
	}
}

// mappingFlags returns VmFlags of the mapping that holds address.
func mappingFlags(t *testing.T, address uintptr) []string {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); n == 2 {
			inside = from <= address && address < to
		}
		if flags, ok := strings.CutPrefix(lines.Text(), "VmFlags:"); ok && inside {
			return strings.Fields(flags)
		}
	}
	t.Fatal("the mapping is not listed")
	return nil
}
