// Package sluice_test keeps the structure of the project: who may import
// whom, and which third-party code may be seen where. See docs/architecture.
package sluice_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sluice-kms/sluice"

// arrows lists what the packages of a folder may import of the project. A
// folder that is not listed may import nothing of it. The longest match of
// the folder's path counts.
var arrows = map[string][]string{
	"kms":                        {},
	"scheduler":                  {},
	"client":                     {"client/outcome"},
	"client/examples/gateway":    {"client", "client/outcome"},
	"client/outcome":             {},
	"client/outcome/outcometest": {"client/outcome"},
	"migrations":                 {},
	"softhsm":                    {},
	"required":                   {},
	"api":                        {"kms"},
	"keystore":                   {"kms"},
	"keystore/sqlite":            {"kms", "keystore", "migrations"},
	"keystore/storetest":         {"kms", "keystore"},
	"keystore/postgres":          {"kms", "keystore", "migrations"},
	"keystore/postgres/pgtest":   {"required"},
	"quota":                      {"kms"},
	"quota/inmem":                {"kms", "quota"},
	"quota/redis":                {"kms", "quota"},
	"quota/quotatest":            {"kms", "quota"},
	"quota/redis/redistest":      {"required"},
	"audit":                      {"kms"},
	"notify":                     {"kms"},
	"notify/smtp":                {"notify"},
	"watch":                      {"kms"},
	"abuse":                      {"kms"},
	"costreport":                 {"kms"},
	"provider":                   {"kms", "client/outcome"},
	"probe":                      {"kms", "client/outcome", "provider"},
	"egress":                     {},
	"hsm":                        {"kms"},
	"hsm/p11":                    {"kms", "hsm"},
	"hsm/remote":                 {"kms", "hsm"},
	"hsm/soft":                   {"kms", "hsm"},
	"hsm/hsmtest":                {"kms", "hsm"},
	"cmd":                        {"*"},
	"deploy":                     {},
	"bench":                      {"api", "client", "audit", "hsm", "hsm/p11", "hsm/soft", "keystore", "keystore/sqlite", "kms", "quota", "scheduler", "softhsm", "softhsm/fault", "bench/limits", "bench/load", "bench/machine", "bench/plot", "bench/scenarios", "bench/servers", "bench/target", "bench/trial"},
}

// standardOnly are folders that import nothing outside the standard library.
var standardOnly = []string{"kms", "scheduler", "client", "egress", "provider"}

// fences say in which folders a third-party module may be imported. A module
// that is not listed may be imported anywhere but in standardOnly folders.
var fences = map[string][]string{
	"github.com/labstack/echo":            {"api", "cmd", "bench"},
	"github.com/jackc/pgx":                {"keystore/postgres", "cmd"},
	"github.com/redis/go-redis":           {"quota/redis", "cmd"},
	"github.com/miekg/pkcs11":             {"hsm/p11", "softhsm", "bench"},
	"github.com/emmansun/gmsm":            {"hsm/soft", "hsm/p11", "hsm/hsmtest"},
	"github.com/decred/dcrd":              {"hsm/soft", "hsm/hsmtest"},
	"modernc.org/sqlite":                  {"keystore/sqlite"},
	"github.com/prometheus/client_golang": {"abuse", "api", "audit", "cmd", "hsm", "keystore", "notify", "probe", "quota", "watch", "bench"},
	"go.opentelemetry.io":                 {"cmd"},
	"codeberg.org/go-pdf/fpdf":            {"costreport"},
	"github.com/wneessen/go-mail":         {"notify/smtp"},
	"github.com/spf13/cobra":              {"cmd"},
	"github.com/knadh/koanf":              {"cmd"},
	"C":                                   {"hsm/p11", "softhsm"},
}

type sourceFile struct {
	folder  string // of the file, from the root
	name    string
	imports []string
}

// sources parses the imports of every Go file that is not a test.
func sources(t *testing.T) []sourceFile {
	t.Helper()
	var files []sourceFile
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (path != "." && strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		f := sourceFile{folder: filepath.ToSlash(filepath.Dir(path)), name: filepath.ToSlash(path)}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, imported)
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found %d files only: the walk is broken", len(files))
	}
	return files
}

// within tells whether folder is prefix or below it.
func within(folder, prefix string) bool {
	return folder == prefix || strings.HasPrefix(folder, prefix+"/")
}

func withinAny(folder string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return within(folder, p) })
}

// allowed returns what a folder may import of the project.
func allowed(folder string) (list []string, known bool) {
	for f := folder; f != "."; f = filepath.ToSlash(filepath.Dir(f)) {
		if list, ok := arrows[f]; ok {
			return list, true
		}
	}
	return nil, false
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, f := range sources(t) {
		list, known := allowed(f.folder)
		if !known {
			t.Errorf("%s: the folder %q has no arrows: give it a place in arrows_test.go and say why in the commit", f.name, f.folder)
		}
		for _, imported := range f.imports {
			folder, ours := strings.CutPrefix(imported, module+"/")
			if ours && folder != f.folder && !slices.Contains(list, "*") && !slices.Contains(list, folder) {
				t.Errorf("%s imports %s: %q may import %v", f.name, folder, f.folder, list)
			}
		}
	}
}

func TestThirdPartyCodeStaysBehindItsFence(t *testing.T) {
	for _, f := range sources(t) {
		for _, imported := range f.imports {
			if withinAny(f.folder, standardOnly) && strings.Contains(strings.Split(imported, "/")[0], ".") &&
				!strings.HasPrefix(imported, module) {
				t.Errorf("%s imports %s: %q keeps to the standard library", f.name, imported, f.folder)
			}
			for fence, folders := range fences {
				if (imported == fence || strings.HasPrefix(imported, fence+"/")) && !withinAny(f.folder, folders) {
					t.Errorf("%s imports %s, which is for %v", f.name, imported, folders)
				}
			}
		}
	}
}

func TestNoFolderIsAJunkDrawer(t *testing.T) {
	for _, f := range sources(t) {
		for part := range strings.SplitSeq(f.folder, "/") {
			if slices.Contains([]string{"util", "utils", "common", "core", "types", "shared", "helpers", "misc", "models"}, part) {
				t.Errorf("%s: name the folder %q for what it holds", f.name, part)
			}
		}
	}
}

// Both have advisories without a fix in echo v4: the reverse-proxy middleware
// and client addresses taken from headers that anyone can send.
func TestUnfixedEchoCodeIsUnreachable(t *testing.T) {
	for _, f := range sources(t) {
		for _, imported := range f.imports {
			if imported == "github.com/labstack/echo/v4/middleware" {
				t.Errorf("%s imports echo's middleware package, which holds the reverse proxy", f.name)
			}
		}
	}
}
