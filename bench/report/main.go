package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-kms/sluice/bench/machine"
)

func main() {
	sluice := flag.String("sluice", "bin/sluice", "the program to measure")
	out := flag.String("out", "", "folder for the report, its data and its charts; \"\": print the report only")
	readme := flag.String("readme", "", "file into which the table is put between its marks; \"\": none")
	short := flag.Bool("short", false, "take every figure once and briefly: it shows that they can be taken, and nothing else")
	rewrite := flag.String("rewrite", "", "measure nothing: write reports and charts anew from this JSON file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := produce(ctx, *sluice, *out, *readme, *rewrite, *short); err != nil {
		log.Fatal(err)
	}
}

func produce(ctx context.Context, sluice, out, readme, rewrite string, short bool) error {
	r, err := func() (*report, error) {
		if rewrite != "" {
			return readReport(rewrite)
		}
		return measure(ctx, sluice, short)
	}()
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(r.markdown()); err != nil {
		return err
	}
	if out != "" {
		if err := r.write(out); err != nil {
			return err
		}
	}
	if readme == "" {
		return nil
	}
	if r.Short {
		return errors.New("the short form is not for the README")
	}
	return r.intoREADME(readme)
}

// measure runs all commands and reads the figures.
func measure(ctx context.Context, sluice string, short bool) (*report, error) {
	dir, err := os.MkdirTemp("", "sluice-report-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	profile := filepath.Join(dir, "cpu.pprof")
	runs := allRuns(sluice, profile, filepath.Join(dir, "isolation"))
	began := time.Now()
	here := machine.Here()
	all := make(outputs)
	for i := range runs {
		one := &runs[i]
		fmt.Fprintf(os.Stderr, "%2d of %d, after %3.0f s: %s\n", i+1, len(runs), time.Since(began).Seconds(), one.name)
		if all[one.name], err = execute(ctx, one.command(short)); err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
	}
	// bench/isolation prints for people; its data are a file.
	if all[runIsolation], err = os.ReadFile(filepath.Join(dir, "isolation", "isolation.json")); err != nil {
		return nil, err
	}
	r, err := build(all, runs, short)
	if err != nil {
		return nil, err
	}
	r.Started, r.Seconds, r.Machine = began.UTC(), time.Since(began).Seconds(), here
	r.Commit = commit(ctx)
	r.Profile, err = top(ctx, profile)
	return r, err
}

// execute returns what a command writes on its standard output.
func execute(ctx context.Context, words []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(words, " "), err, said.Bytes(), out.Bytes())
	}
	return out.Bytes(), nil
}

// commit is what was measured; "": not known, as outside of a repository.
func commit(ctx context.Context) string {
	id, err := execute(ctx, []string{"git", "rev-parse", "--short=12", "HEAD"})
	if err != nil {
		return ""
	}
	changes, err := execute(ctx, []string{"git", "status", "--porcelain"})
	if err != nil {
		return ""
	}
	if len(bytes.TrimSpace(changes)) > 0 {
		return string(bytes.TrimSpace(id)) + " with changes"
	}
	return string(bytes.TrimSpace(id))
}

// profileLines is how many functions of a profile are shown.
const profileLines = 15

// top is the head of a CPU profile as text.
func top(ctx context.Context, file string) (string, error) {
	text, err := execute(ctx, []string{"go", "tool", "pprof", "-top", fmt.Sprint("-nodecount=", profileLines), file})
	if err != nil {
		return "", err
	}
	// The first lines name the file and the build.
	_, rest, ok := strings.Cut(string(text), "Duration: ")
	if !ok {
		return "", errors.New("the CPU profile cannot be read")
	}
	return "Duration: " + rest, nil
}
