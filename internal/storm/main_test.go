package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
)

const (
	// asProgram makes the test binary the program, and so every process that the program starts.
	asProgram = "CONFIRMEXEC_STORM_AS_PROGRAM"
	// withBroken adds the modes that break a promise.
	withBroken = "CONFIRMEXEC_STORM_WITH_BROKEN"
	// pidFile is where the processes that confirm enter themselves, if it is set.
	pidFile = "CONFIRMEXEC_STORM_PID_FILE"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		pgtest.Main(m, nil)
	}
	if os.Getenv(withBroken) != "" {
		modes = append(modes, brokenModes...)
	}
	if path := os.Getenv(pidFile); path != "" && len(os.Args) > 1 && os.Args[1] == childCommand {
		enterPID(path)
	}
	main()
}

func enterPID(path string) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(file, os.Getpid())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
}

// program is the program as a process, with a folder of its own for what is temporary.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	cmd := exec.CommandContext(context.Background(), self, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), asProgram+"=1", "TMPDIR="+dir, "TMP="+dir)
	return cmd
}

// ran is what the program did.
type ran struct {
	out, err string
	status   int
}

func start(t *testing.T, args ...string) ran {
	t.Helper()
	return finish(t, program(t, args...))
}

// finish runs the program to its end.
func finish(t *testing.T, cmd *exec.Cmd) ran {
	t.Helper()
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if failed := cmd.Run(); failed != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, failed, &exit)
	}
	r := ran{out.String(), err.String(), cmd.ProcessState.ExitCode()}
	assert.NotRegexp(t, anyKey, r.out+r.err, "no key is told")
	return r
}

var anyKey = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`)

// lines reads what -json wrote: a line for each of the modes, and their sum.
func (r ran) lines(t *testing.T, modes ...string) (all []line, total line) {
	t.Helper()
	for text := range strings.Lines(r.out) {
		var l line
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&l), text)
		all = append(all, l)
	}
	require.Len(t, all, len(modes)+1, "%s%s", r.out, r.err)
	for i, mode := range modes {
		require.Equal(t, mode, all[i].Mode)
	}
	total = all[len(modes)]
	require.Empty(t, total.Mode)
	return all[:len(modes)], total
}
