package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

// constants returns the string constants of a Go file by their type.
func constants(t *testing.T, file string) map[string][]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	byType := map[string][]string{}
	for _, d := range f.Decls {
		g, isDecl := d.(*ast.GenDecl)
		if !isDecl || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			name, isNamed := v.Type.(*ast.Ident)
			if !isNamed || len(v.Values) != 1 {
				continue
			}
			literal, isLiteral := v.Values[0].(*ast.BasicLit)
			if !isLiteral || literal.Kind != token.STRING {
				continue
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			byType[name.Name] = append(byType[name.Name], value)
		}
	}
	return byType
}

func TestConstantsAreThoseOfTheService(t *testing.T) {
	files, err := filepath.Glob("../kms/*.go")
	if err != nil {
		t.Fatal(err)
	}
	service := map[string][]string{}
	for _, f := range files {
		for name, values := range constants(t, f) {
			service[name] = append(service[name], values...)
		}
	}
	ours := map[string][]string{}
	for _, f := range []string{"spec.go", "tenants.go", "client.go", "import.go"} {
		for name, values := range constants(t, f) {
			ours[name] = append(ours[name], values...)
		}
	}
	for theirName, ourName := range map[string]string{
		"Spec": "Spec", "Usage": "Usage", "Protection": "Protection", "KeyState": "KeyState", "VersionState": "VersionState", "Origin": "Origin",
		"Algorithm": "Algorithm", "SM2Order": "SM2Order", "SignatureFormat": "SignatureFormat", "Digest": "HashFunction",
		"Tier": "Tier", "TenantState": "TenantState", "Urgency": "Urgency", "ImportWrapping": "ImportWrapping",
	} {
		theirs := service[theirName]
		if len(theirs) == 0 {
			t.Errorf("kms.%s has no constants", theirName)
		}
		compareSets(t, ourName, ours[ourName], theirs)
	}
}

func TestCodesAreThoseOfTheService(t *testing.T) {
	// Only HTTP knows of methods.
	theirs := []string{string(client.ErrMethodNotAllowed)}
	for _, k := range kms.Kinds() {
		theirs = append(theirs, k.String())
	}
	compareSets(t, "Code", constants(t, "errors.go")["Code"], theirs)
}

func compareSets(t *testing.T, what string, ours, theirs []string) {
	t.Helper()
	for _, side := range []struct {
		text string
		a, b []string
	}{{"lacks", theirs, ours}, {"alone has", ours, theirs}} {
		have := map[string]bool{}
		for _, v := range side.b {
			have[v] = true
		}
		for _, v := range side.a {
			if !have[v] {
				t.Errorf("client.%s %s %q", what, side.text, v)
			}
		}
	}
}

func TestSizesAreThoseOfTheService(t *testing.T) {
	if client.MaxInput != kms.MaxInput || client.MinDataKey != kms.MinDataKey || client.MaxDataKey != kms.MaxDataKey || client.MaxRandom != kms.MaxRandom ||
		client.MaxWrap != kms.MaxWrap || client.MinDerived != kms.MinDerived || client.MaxDerived != kms.MaxDerived ||
		client.MaxDeriveContext != kms.MaxDeriveContext || client.MaxImportKey != kms.MaxImportKey {
		t.Error("the sizes differ from those of kms")
	}
}
