package sqlitestore_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

func TestOpenSetsWhatDurabilityNeeds(t *testing.T) {
	s := open(t, fresh(t), &sqlitestore.Config{LockTimeout: 1234 * time.Millisecond})
	want := map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "1234"}
	for name, value := range want {
		var got string
		require.NoError(t, s.DB().QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&got))
		require.Equal(t, value, got, name)
	}
}

func TestOpenTakesThePathAsItIs(t *testing.T) {
	for _, name := range []string{
		"plain.db", "with space.db", "what?mode=memory", "a#fragment", "100%", "per%20cent",
		"semi;colon&and=+", "ünïcödé", ":memory",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, name), nil)
			require.NoError(t, err)
			_, err = s.Own().Claim(t.Context(), unminted())
			require.NoError(t, err)
			require.NoError(t, s.Close())
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 1)
			require.Equal(t, name, entries[0].Name())
		})
	}
}

func TestOpenTakesARelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	open(t, "claims.db", nil)
	require.FileExists(t, "claims.db")
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	for _, path := range []string{"", ":memory:", "file::memory:", "file:claims.db?mode=memory", "a\x00b"} {
		_, err := sqlitestore.Open(t.Context(), path, nil)
		require.ErrorContains(t, err, "sqlitestore: open: ", path)
	}
	_, err := sqlitestore.Open(t.Context(), ":memory:", nil)
	require.EqualError(t, err, "sqlitestore: open: a store needs a file; for tests in memory use package memstore")
}

func TestOpenFailsWithSQLitesCode(t *testing.T) {
	_, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "missing", "claims.db"), nil)
	require.EqualError(t, err, "sqlitestore: open: the database could not be used (SQLITE_CANTOPEN)")

	file := fresh(t)
	text := strings.Repeat("this is no database ", 10)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	_, err = sqlitestore.Open(t.Context(), file, nil)
	require.EqualError(t, err, "sqlitestore: open: the database could not be used (SQLITE_NOTADB)")
}

func TestOpenRefusesANewerFile(t *testing.T) {
	file := fresh(t)
	s, err := sqlitestore.Open(t.Context(), file, nil)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(t.Context(), `UPDATE agent_idempotency_schema SET version = 99`)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	_, err = sqlitestore.Open(t.Context(), file, nil)
	require.ErrorIs(t, err, sqlitestore.ErrNewerSchema)
	require.ErrorContains(t, err, "it has schema 99, this one knows 1")
}

// S24: the service that shares the file keeps its tables and its PRAGMA user_version.
func TestOpenKeepsWhatTheServiceHas(t *testing.T) {
	file := fresh(t)
	s, err := sqlitestore.Open(t.Context(), file, nil)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(t.Context(), `PRAGMA user_version = 42; CREATE TABLE mine (x INTEGER)`)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s = open(t, file, nil)
	require.Equal(t, 0, count(t, s, "mine"))
	var version int
	require.NoError(t, s.DB().QueryRowContext(t.Context(), `PRAGMA user_version`).Scan(&version))
	require.Equal(t, 42, version)
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := sqlitestore.Open(ctx, fresh(t), nil)
	require.ErrorIs(t, err, context.Canceled)
}

// S17: a restart keeps everything, byte for byte.
func TestRestartKeepsEverything(t *testing.T) {
	file := fresh(t)
	s, err := sqlitestore.Open(t.Context(), file, nil)
	require.NoError(t, err)
	p := sharedClaim()
	_, err = s.Own().Claim(t.Context(), p)
	require.NoError(t, err)
	f := store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: 1}
	err = s.Own().Progress(t.Context(), store.ProgressParams{
		Fenced: f, Done: "i1", Outcome: []byte{0, 1, 255}, Next: "i2", Lease: time.Hour,
	})
	require.NoError(t, err)
	look := store.LookupParams{ID: p.ID, Content: true}
	before, err := s.Own().Lookup(t.Context(), look)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	s = open(t, file, nil)
	after, err := s.Own().Lookup(t.Context(), look)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.NoError(t, s.Own().Complete(t.Context(), store.CompleteParams{Fenced: f, Outcomes: []byte("done")}))
}

func TestACallAfterCloseIsAnError(t *testing.T) {
	s, err := sqlitestore.Open(t.Context(), fresh(t), nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = s.Own().Claim(t.Context(), unminted())
	var se *store.Error
	require.ErrorAs(t, err, &se)
	require.NoError(t, se.Kind)
}
