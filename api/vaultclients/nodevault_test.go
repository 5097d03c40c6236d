package vaultclients

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/sluice-kms/sluice/required"
)

// nodeVault puts node-vault and what it needs, in the versions of the lock file,
// beside the script that uses it. None of their own scripts runs.
func nodeVault(dir string) error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	if err := os.CopyFS(dir, os.DirFS("nodevault")); err != nil {
		return err
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return nil
}

func TestNodeVaultReadsAsFromVault(t *testing.T) {
	dir := t.TempDir()
	required.Part(t, "node-vault", nodeVault(dir))
	s := start(t)
	openai := s.secret("llm/openai", "sk-first")
	s.secret("llm/team/anthropic", "sk-team")
	off := s.secret("off", "sk-off")
	s.rotate(openai, "sk-second", 2)
	s.native("POST", off+"/versions/1/disable", s.admin, map[string]any{})
	g := s.gateway("secret:*")
	reads := exec.CommandContext(t.Context(), "node", "reads.mjs", s.URL, g.role, g.secret, g.whole)
	reads.Dir = dir
	if out, err := reads.CombinedOutput(); err != nil || string(out) != "all is as with Vault\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
