package pgtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Versions order as numbers: 9.6 before 15, 16 before 9.
func TestNewestFirst(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, version := range []string{"9.6", "15", "16"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "postgresql", version, "bin"), 0o755))
	}
	pattern := func(version string) string { return filepath.Join(root, "postgresql", version, "bin") }
	require.Equal(t, []string{pattern("16"), pattern("15"), pattern("9.6")}, newestFirst([]string{pattern("*")}))
}

// Each layout's version is read from its path; a path without one comes last.
func TestVersionIn(t *testing.T) {
	t.Parallel()
	for path, version := range map[string]float64{
		"/usr/lib/postgresql/15/bin":                          15,
		"/usr/pgsql-17/bin":                                   17,
		"/usr/libexec/postgresql16":                           16,
		"/opt/homebrew/opt/postgresql@14/bin":                 14,
		"/usr/lib/postgresql/9.6/bin":                         9.6,
		"/Applications/Postgres.app/Contents/Versions/18/bin": 18,
		"/usr/libexec/postgresql":                             0,
	} {
		require.InDelta(t, version, versionIn(path), 0.001, path)
	}
}

// A folder counts only if both programs are there and can be run.
func TestProgramsNeedBoth(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	script(t, folder, "initdb", "exit 0")
	_, ok := programsIn(folder)
	require.False(t, ok)
	script(t, folder, "postgres", "exit 0")
	_, ok = programsIn(folder)
	require.True(t, ok)
}

// Both forms of a connection string can be changed, whatever they said before, and quoting holds.
func TestWithDSN(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://me:old@db.example:5433/postgres?sslmode=disable&application_name=x",
		"postgresql:///postgres?host=/run/postgresql&user=me&password=old&application_name=x",
		`host=db.example port=5433 user=me password='o\'ld' dbname=postgres application_name=x`,
	} {
		changed, err := WithDSN(dsn, "user", AppRole, "password", `it's \new`, "dbname", "mine",
			"host", "127.0.0.1", "port", "7", "sslmode", "disable")
		require.NoError(t, err)
		config, err := pgx.ParseConfig(changed)
		require.NoError(t, err)
		require.Equal(t, []any{AppRole, `it's \new`, "mine", "127.0.0.1", uint16(7), "x"}, []any{config.User,
			config.Password, config.Database, config.Host, config.Port, config.RuntimeParams["application_name"]})
		require.Nil(t, config.TLSConfig)
	}
}

// A connection string that cannot be read is refused without showing it: it holds a password.
func TestWithDSNRefuses(t *testing.T) {
	t.Parallel()
	_, err := WithDSN("postgres://me:secret@%zz/postgres", "dbname", "mine")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
	_, err = WithDSN("dbname=x", "dbname")
	require.ErrorContains(t, err, "pairs")
}

// script writes a small program.
func script(t *testing.T, folder, name, body string) {
	t.Helper()
	content := []byte("#!/bin/sh\n" + body + "\n")
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o755))
}
