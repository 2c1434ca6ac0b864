package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// size is how large a storm is.
type size struct{ processes, goroutines, keys int }

// small is a storm that is soon over, in all modes; promised is one of the size that S12 names, of few keys.
var (
	small    = size{4, 10, 5}
	promised = size{8, 25, 2}
)

func (s size) args(more ...string) []string {
	return append([]string{"-processes", strconv.Itoa(s.processes), "-goroutines", strconv.Itoa(s.goroutines),
		"-keys", strconv.Itoa(s.keys), "-json"}, more...)
}

// checkStorm checks that everything is as promised: H5 in small.
func checkStorm(t *testing.T, s size, r ran) {
	t.Helper()
	const items = 3
	require.Equal(t, exitOK, r.status, "%s%s", r.out, r.err)
	modes, total := r.lines(t, "execute", "execute_per_item", "execute_tx", "execute_atomic")
	for _, l := range append(modes, total) {
		n := len(modes)
		if l.Mode != "" {
			n = 1
		}
		assert.Equal(t, n*s.keys, l.Keys, l.Mode)
		assert.Equal(t, n*s.keys*s.processes*s.goroutines, l.Confirms, l.Mode)
		assert.Equal(t, n*s.keys, l.FirstRuns, l.Mode)
		assert.Equal(t, l.Confirms-l.FirstRuns, l.Replays+l.InProgress, l.Mode)
		assert.Greater(t, l.Replays, l.InProgress, "%s: most losers replay", l.Mode)
		assert.Equal(t, n*s.keys*items, l.ExecutorCalls, l.Mode)
		assert.Zero(t, l.DoubleEffects, l.Mode)
		assert.Zero(t, l.OtherAnswers, l.Mode)
		assert.Positive(t, l.P50, l.Mode)
		assert.IsNonDecreasing(t, []float64{l.P50, l.P90, l.P99, l.Max}, l.Mode)
	}
	assert.Contains(t, r.err, "ok: each item of each key was executed once\n")
}

// S12, S30: of 40 confirms of a key by four processes one executes, on SQLite.
func TestStormOnSQLite(t *testing.T) {
	t.Parallel()
	checkStorm(t, small, start(t, small.args()...))
}

// S12: a database that is named is used, and used again: each run counts its own effects only.
func TestStormTwiceOnOneFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "storm.db")
	for range 2 {
		checkStorm(t, small, start(t, small.args("-database", "sqlite:"+file)...))
	}
	require.FileExists(t, file)
}

// A role that row-level security does not bind is refused; a server without fsync is not.
func TestPostgresRoleIsChecked(t *testing.T) {
	t.Parallel()
	db := pgtest.NewEmpty(t)
	admin := db.AdminPool(t)
	require.NoError(t, pgstore.Migrate(t.Context(), admin, nil))
	err := check(t.Context(), admin)
	require.ErrorContains(t, err, "cannot keep the promises")
	assert.NotContains(t, err.Error(), "fsync")
}

// S12, S16, S30: of 200 confirms of a key by eight processes one executes, on PostgreSQL, as a plain role, also on a database that has
// seen a storm. Not in parallel: the role's password is the server's.
func TestStormOnPostgres(t *testing.T) {
	db := pgtest.NewEmpty(t)
	if !isPostgres(db.AdminDSN) {
		t.Skip("SKIPPED: needs CONFIRMEXEC_TEST_DSN as a URL")
	}
	for _, s := range []size{promised, small} {
		r := start(t, s.args("-database", db.AdminDSN)...)
		checkStorm(t, s, r)
		assert.Contains(t, r.err, "as the role "+plainRole)
	}
}

// Without -json the table is what is on stdout, and nothing is left behind.
func TestTable(t *testing.T) {
	t.Parallel()
	cmd := program(t, "-processes", "1", "-goroutines", "1", "-keys", "1", "-items", "1")
	r := finish(t, cmd)
	require.Equal(t, exitOK, r.status, "%s%s", r.out, r.err)
	assert.Regexp(t, `^(execute.+left\n)*$`, r.err, "progress at most")
	assert.Regexp(t, `^1 processes x 1 goroutines confirm each of 1 keys of 1 items; SQLite\n`, r.out)
	assert.Regexp(t, `\n +execute +execute_per_item +execute_tx +execute_atomic +total\nkeys +1 +1 +1 +1 +4\nconfirms +1 +1 +1 +1 +4\nfirst runs +1 +1 +1 +1 +4\n`, r.out)
	assert.Regexp(t, `\ndouble effects +0 +0 +0 +0 +0\n`, r.out)
	left, err := os.ReadDir(cmd.Dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	help := start(t, "-h")
	assert.Equal(t, ran{out: usage}, help)
	for _, args := range [][]string{
		{"-keys", "0"}, {"-processes", "0"}, {"-goroutines", "-1"}, {"-items", "65"}, {"-timeout", "0s"}, {"-mode", "none"},
		{"-database", "mysql://x"}, {"-database", "sqlite:"}, {"-nonsense"}, {"argument"},
	} {
		r := start(t, args...)
		assert.Equal(t, exitUsage, r.status, "%v: %s", args, r.err)
		assert.Empty(t, r.out)
	}
}

// A URL's password is told nowhere.
func TestPasswordIsNotTold(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://me:secret@127.0.0.1:1/x", "postgres://me:secret@[broken/x"} {
		r := start(t, "-keys", "1", "-database", url)
		assert.Equal(t, exitFailed, r.status)
		assert.NotContains(t, r.out+r.err, "secret")
	}
}
