// Program mutants plants each of twenty-five bugs in the product, as an overlay that leaves its files alone, and runs the tests that
// are to catch it: go run ./internal/mutants, from the module's root. It prints which test caught each, makes sure that each was
// really in, and exits with 1 when one was not caught.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	asJSON := flag.Bool("json", false, "end with one JSON line")
	only := flag.Int("only", 0, "plant this one only, counted from 1")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	caught, planted, err := run(ctx, *only)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	case *asJSON:
		fmt.Printf("{\"mutants\":%d,\"caught\":%d}\n", planted, caught)
	default:
		fmt.Printf("%d of %d planted bugs were caught\n", caught, planted)
	}
	if caught != planted {
		os.Exit(1)
	}
}

func run(ctx context.Context, only int) (caught, planted int, err error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return 0, 0, err
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(tmp)
	w := &workshop{root: root, tmp: tmp, clean: map[string][32]byte{}}
	for i, b := range bugs {
		if only != 0 && only != i+1 {
			continue
		}
		planted++
		start := time.Now()
		test, err := w.try(ctx, b)
		if err != nil {
			return caught, planted, fmt.Errorf("bug %d, %q: %w", i+1, b.name, err)
		}
		verdict := "NOT CAUGHT by " + b.pkg + " " + b.run
		if test != "" {
			caught++
			verdict = "caught by " + test
		}
		fmt.Printf("%2d  %-62s %s (%.0f s)\n", i+1, b.name, verdict, time.Since(start).Seconds())
	}
	return caught, planted, nil
}

// moduleRoot is the folder of go.mod, with symbolic links resolved: through one an overlay silently does nothing.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	return filepath.EvalSymlinks(strings.TrimSpace(string(out)))
}

// workshop builds test binaries with and without a bug.
type workshop struct {
	root, tmp string
	clean     map[string][32]byte // sums of the test binaries without a bug, by package
}

// try plants b and runs its tests. It returns the first test that failed, or "" when all passed.
func (w *workshop) try(ctx context.Context, b bug) (string, error) {
	overlay, err := w.overlay(b)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(w.tmp, "mutant.test")
	sum, err := w.build(ctx, b.pkg, binary, "-overlay="+overlay)
	if err != nil {
		return "", err
	}
	if _, known := w.clean[b.pkg]; !known {
		if w.clean[b.pkg], err = w.build(ctx, b.pkg, filepath.Join(w.tmp, "clean.test")); err != nil {
			return "", err
		}
	}
	if sum == w.clean[b.pkg] {
		return "", errors.New("the bug is not in the test binary")
	}
	cmd := exec.CommandContext(ctx, binary, "-test.run", b.run, "-test.v", "-test.timeout=2m")
	cmd.Dir = filepath.Join(w.root, b.pkg)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", ran(out)
	}
	return firstFailure(out)
}

// ran fails when no test has run: a bug that no test looked for was not missed by one.
func ran(out []byte) error {
	if !regexp.MustCompile(`(?m)^ *--- PASS`).Match(out) {
		return errors.New("no test ran")
	}
	return nil
}

var failure = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)

// firstFailure returns the most deeply nested of the first tests that failed.
func firstFailure(out []byte) (string, error) {
	test := ""
	for _, m := range failure.FindAllStringSubmatch(string(out), -1) {
		if !strings.HasPrefix(m[1], test) {
			break
		}
		test = m[1]
	}
	if test == "" {
		return "", fmt.Errorf("the tests failed without naming one:\n%s", out)
	}
	return test, nil
}

// build compiles the tests of pkg and returns the binary's sum.
func (w *workshop) build(ctx context.Context, pkg, to string, flags ...string) ([32]byte, error) {
	args := append([]string{"test", "-c", "-o", to}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = w.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return [32]byte{}, fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	data, err := os.ReadFile(to)
	if err != nil {
		return [32]byte{}, err
	}
	return sha256.Sum256(data), nil
}

// overlay writes b's changed files and the file that maps them over the product's.
func (w *workshop) overlay(b bug) (string, error) {
	changed, err := b.plant(w.root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for original, text := range changed {
		planted := filepath.Join(w.tmp, fmt.Sprintf("%d%s", len(replace), filepath.Ext(original)))
		if err := os.WriteFile(planted, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[original] = planted
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(w.tmp, "overlay.json")
	return file, os.WriteFile(file, data, 0o600)
}

// plant returns the texts of the files that b changes, by their paths. It fails when the code has moved on from b.
func (b bug) plant(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, e := range b.edits {
		path := filepath.Join(root, e.file)
		text, again := changed[path]
		if !again {
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			text = string(data)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s holds the place to change %d times: keep bugs.go in step with the code", e.file, n)
		}
		changed[path] = strings.Replace(text, e.old, e.new, 1)
	}
	return changed, nil
}
