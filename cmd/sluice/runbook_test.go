package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Commands of the runbook are commands of the program, with flags that they
// have: whoever reads it has no time to look for the right ones.
func TestCommandsOfTheRunbookExist(t *testing.T) {
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			commands = append(commands, strings.TrimSpace(line))
		}
	}
	for _, m := range regexp.MustCompile("`(sluice [^`]*)`").FindAllStringSubmatch(string(text), -1) {
		commands = append(commands, m[1])
	}
	found := 0
	for _, command := range commands {
		args := strings.Fields(command)
		if args[0] != "sluice" {
			continue
		}
		found++
		c, rest, err := newRoot().Find(args[1:])
		if err != nil || !c.Runnable() || c.HasAvailableSubCommands() && len(rest) > 0 {
			t.Errorf("%s: there is no such command: %v", command, err)
			continue
		}
		if err := c.ParseFlags(rest); err != nil {
			t.Errorf("%s: %v", command, err)
		} else if err := c.ValidateArgs(c.Flags().Args()); err != nil && len(rest) > 0 {
			t.Errorf("%s: %v", command, err)
		}
	}
	if found < 30 {
		t.Errorf("only %d commands were found", found)
	}
}
