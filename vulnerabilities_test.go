package sluice_test

import (
	"fmt"
	"go/version"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// vulnerabilities is how many entries the table has.
const vulnerabilities = 66

// reason is what stands in the table where there is no test.
var reason = regexp.MustCompile(`\b(waits? for \w|does not apply: \w)`)

// named is a test in the table.
var named = regexp.MustCompile("`([a-z0-9/.]+): ((?:Test|Fuzz)[A-Za-z0-9]+)`")

// The page says of every vulnerability which tests keep it out. What it says is
// true as far as a test can tell: they exist, where it says.
func TestVulnerabilitiesHaveTheirTests(t *testing.T) {
	page, err := os.ReadFile("docs/vulnerabilities-as-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- vulnerabilities")
	table, _, found := strings.Cut(table, "<!-- /vulnerabilities")
	if !found {
		t.Fatal("the page has no table")
	}
	functions := testFunctions(t)
	entries, tests := 0, 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 2 || strings.TrimSpace(cells[1]) == "#" || strings.HasPrefix(cells[1], "---") {
			continue
		}
		entries++
		if len(cells) != 7 || strings.TrimSpace(cells[1]) != fmt.Sprint(entries) {
			t.Errorf("entry %d has %d cells and begins with %q", entries, len(cells)-2, cells[1])
			continue
		}
		for i, cell := range cells[2:6] {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("entry %d: column %d is empty", entries, i+2)
			}
		}
		matches := named.FindAllStringSubmatch(cells[5], -1)
		for _, m := range matches {
			tests++
			if !functions[m[1]][m[2]] {
				t.Errorf("entry %d: there is no %s in %s", entries, m[2], m[1])
			}
		}
		if len(matches) == 0 && !reason.MatchString(cells[5]) {
			t.Errorf("entry %d has neither a test nor a reason: %s", entries, cells[5])
		}
	}
	if entries != vulnerabilities || tests < 90 {
		t.Errorf("%d entries that name %d tests", entries, tests)
	}
}

// TestToolchainHasTheFixesOfTheStandardLibrary keeps the toolchain from being
// older than the fixes of net/http and crypto/tls: 1.27.3 has those of
// CVE-2026-97032, CVE-2026-32283 and CVE-2026-56862.
func TestToolchainHasTheFixesOfTheStandardLibrary(t *testing.T) {
	const oldest = "go1.27.3"
	if version.Compare(runtime.Version(), oldest) < 0 {
		t.Errorf("this is %s", runtime.Version())
	}
	content, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	demanded := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(content)
	if demanded == nil || version.Compare("go"+string(demanded[1]), oldest) < 0 {
		t.Errorf("go.mod demands %s, want %s or newer", demanded, oldest)
	}
}
