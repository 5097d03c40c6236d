package sluice_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testFunctions returns the names of the top-level functions of all _test.go
// files below the root, by folder ("." for the root). Modules of their own
// are part of it.
func testFunctions(t *testing.T) map[string]map[string]bool {
	t.Helper()
	functions := map[string]map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (path != "." && strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		for _, declaration := range parsed.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil {
				if functions[folder] == nil {
					functions[folder] = map[string]bool{}
				}
				functions[folder][f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(functions) < 15 {
		t.Fatalf("found tests in %d folders only: the walk is broken", len(functions))
	}
	return functions
}

// leastSeeds is how many inputs a kept corpus must have: one that is right and
// some that are wrong in different ways.
const leastSeeds = 4

// What fuzzing begins with is kept with the code, so that each run, in CI and
// on the next machine, at least tries what once was worth trying.
func TestEveryFuzzTargetHasAKeptCorpus(t *testing.T) {
	targets := 0
	for folder, functions := range testFunctions(t) {
		for name := range functions {
			if !strings.HasPrefix(name, "Fuzz") {
				continue
			}
			targets++
			corpus := filepath.Join(folder, "testdata", "fuzz", name)
			entries, err := os.ReadDir(corpus)
			if err != nil {
				t.Errorf("%s: %s has no kept corpus: %v", folder, name, err)
				continue
			}
			if len(entries) < leastSeeds {
				t.Errorf("%s: %d inputs only", corpus, len(entries))
			}
		}
	}
	if targets < 13 {
		t.Errorf("found %d fuzz targets only: the search is broken", targets)
	}
}

// A corpus that no target reads is tried by nobody.
func TestEveryKeptCorpusHasItsFuzzTarget(t *testing.T) {
	functions := testFunctions(t)
	corpora, err := filepath.Glob("*/testdata/fuzz/*")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob("*/*/testdata/fuzz/*")
	if err != nil {
		t.Fatal(err)
	}
	corpora = append(corpora, deeper...)
	for _, corpus := range corpora {
		folder, target := filepath.ToSlash(filepath.Dir(filepath.Dir(filepath.Dir(corpus)))), filepath.Base(corpus)
		if !functions[folder][target] {
			t.Errorf("%s: no such fuzz target in %s", corpus, folder)
		}
	}
	if len(corpora) == 0 {
		t.Error("found no corpus: the search is broken")
	}
}
