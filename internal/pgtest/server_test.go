//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The server's durability settings are the ones that crash tests rely on.
func TestServerSettings(t *testing.T) {
	t.Parallel()
	pool := New(t).Pool(t)
	if shared.cluster.stop == nil {
		t.Skip("the server is not ours: its settings are its owner's")
	}
	settings := map[string]string{
		"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on", "max_connections": "300",
		"server_encoding": "UTF8",
	}
	if shared.cluster.rung == rungLocal {
		settings["shared_buffers"], settings["listen_addresses"] = "128MB", "127.0.0.1"
	}
	for name, value := range settings {
		var got string
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got))
		require.Equal(t, value, got, name)
	}
	const collated = "SELECT count(*) FROM pg_database WHERE datname = current_database() AND datcollate = 'C'"
	require.Equal(t, 1, count(t, pool, collated))
}

// A server that does not start says why, with its log, and leaves no files.
func TestBrokenProgramsAreExplained(t *testing.T) {
	t.Parallel()
	const fakeInitdb = `while [ "$1" != -D ]; do shift; done; mkdir "$2"`
	for name, c := range map[string]struct{ initdb, postgres, text string }{
		"initdb":   {"echo no room left; exit 1", "exit 0", "no room left"},
		"postgres": {fakeInitdb, "echo bad day; exit 3", "exit status 3\nthe end of the server's log:\nbad day"},
		"port":     {fakeInitdb, "echo could not bind; exit 1", errPortTaken.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := reachableFolder(t)
			script(t, folder, "initdb", c.initdb)
			script(t, folder, "postgres", c.postgres)
			found, ok := programsIn(folder)
			require.True(t, ok)
			_, err := startLocal(context.Background(), found, nil)
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, folder)
		})
	}
}

// Folders of killed processes go after an hour; those of living processes, and young ones, stay.
func TestLeftoverFolders(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	folderOf := func(name string, age time.Duration) string {
		path := filepath.Join(parent, folderPrefix+name)
		require.NoError(t, os.Mkdir(path, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(path, lockName), nil, 0o600))
		born := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(path, born, born))
		return path
	}
	dead, alive, young := folderOf("dead", 2*time.Hour), folderOf("alive", 2*time.Hour), folderOf("young", time.Minute)
	held, err := os.OpenFile(filepath.Join(alive, lockName), os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = held.Close() }()
	require.NoError(t, tryLock(held))
	removeLeftovers(parent)
	require.NoDirExists(t, dead)
	require.DirExists(t, alive)
	require.DirExists(t, young)
}

// The server's user can reach a folder only through parents that everybody may pass.
func TestTraversable(t *testing.T) {
	t.Parallel()
	inner := filepath.Join(reachableFolder(t), "closed", "inner")
	require.NoError(t, os.MkdirAll(inner, 0o755))
	require.True(t, traversable(inner))
	require.NoError(t, os.Chmod(filepath.Dir(inner), 0o700))
	require.False(t, traversable(inner))
}

// The server has a process group of its own, so that the terminal's Ctrl-C does not end it in the middle of a test.
func TestServerHasItsOwnProcessGroup(t *testing.T) {
	t.Parallel()
	pool := New(t).AdminPool(t)
	needRung(t, rungLocal)
	var pid int
	const firstLine = `SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::int`
	require.NoError(t, pool.QueryRow(t.Context(), firstLine).Scan(&pid))
	group, err := syscall.Getpgid(pid)
	require.NoError(t, err)
	require.Equal(t, pid, group)
}

// reachableFolder is t.TempDir for a file that the server's user must be able to reach.
func reachableFolder(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp(temporaryParent(), "confirmexec-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	require.NoError(t, os.Chmod(path, 0o755))
	return path
}
