package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/examples/dispatch"
	"github.com/confirmexec/confirmexec/internal/pgtest"
)

const asProgram = "CONFIRMEXEC_KILLMATRIX_AS_PROGRAM"

// TestMain makes the test binary the program, and so every process that the program starts.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) == 2 && os.Args[1] == dispatch.ProcessCommand {
		main()
		return
	}
	pgtest.Main(m, nil)
}

func program(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &told, &told
	err = cmd.Run()
	return told.String(), err
}

// R19, R33, R55, R60: what originates, what is closed and what is settled afterwards, with both processes killed around each of their
// commits on PostgreSQL, where a killed process leaves its backends and their locks behind.
func TestOnPostgres(t *testing.T) {
	db := pgtest.NewEmpty(t)
	if !strings.HasPrefix(db.AdminDSN, "postgres") {
		t.Skip("SKIPPED: needs CONFIRMEXEC_TEST_DSN as a URL")
	}
	out, err := program(t, "-database", db.AdminDSN, "ExecuteAuthorized", "SetAdmissionState", "CompleteUpload", "(settle what crashed)")
	require.NoError(t, err, out)
	assert.Regexp(t, `(?m)^ExecuteAuthorized +agent +2 +4 +4 +\d+ +0$`, out)
	assert.Regexp(t, `(?m)^ExecuteAuthorized +dispatcher +2 +4 +4 +\d+ +0$`, out)
	assert.Regexp(t, `(?m)^all +\d+ +\d+ +\d+ +\d+ +0$`, out)
}

func TestArguments(t *testing.T) {
	for args, problem := range map[string]string{
		"NoSuchMethod":             `no method is "NoSuchMethod"`,
		"-no-such-flag":            "not defined",
		"-database postgres://%zz": "is not a URL",
	} {
		out, err := program(t, strings.Fields(args)...)
		require.Error(t, err, args)
		assert.Contains(t, out, problem)
	}
}
