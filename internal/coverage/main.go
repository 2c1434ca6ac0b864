// Program coverage says which tests prove which requirement: go run ./internal/coverage, from the module's root. A test names what
// it proves in the comment directly above it or in its subtest's name. The program exits with 1 when a requirement has neither a
// test nor an explanation in docs/coverage.md, when it has both, and when a test names too many or one that does not exist.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const (
	requirementsFile = "internal/coverage/requirements.txt"
	explanationsFile = "docs/coverage.md"
)

func main() {
	asJSON := flag.Bool("json", false, "print one JSON document")
	flag.Parse()
	good, err := run(os.Stdout, ".", *asJSON)
	if err != nil {
		fmt.Fprintln(os.Stderr, "coverage:", err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}

// run reports on the module at root, and says whether all is well.
func run(w io.Writer, root string, asJSON bool) (good bool, err error) {
	reqs, err := readRequirements(filepath.Join(root, requirementsFile))
	if err != nil {
		return false, err
	}
	explained, err := readExplanations(filepath.Join(root, explanationsFile))
	if err != nil {
		return false, err
	}
	tests, err := scan(root)
	if err != nil {
		return false, err
	}
	r := newReport(reqs, tests, explained)
	if asJSON {
		return r.good(), r.writeJSON(w)
	}
	return r.good(), r.writeText(w)
}
