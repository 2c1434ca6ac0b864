package pgtest

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The download's rung works from the download on: fetched, checked, unpacked, started, and nothing is left of it.
func TestEmbeddedRung(t *testing.T) {
	t.Parallel()
	jar := archive(t)
	sum := sha256.Sum256(jar)
	env := embeddedEnvironment(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			_, _ = io.WriteString(w, hex.EncodeToString(sum[:]))
			return
		}
		_, _ = w.Write(jar)
	})
	output, failed := rerun(t, needy+"|^TestServerSettings$|^TestExternalServerByPassword$", env.list...)
	require.False(t, failed, output)
	require.Len(t, results(output, "PASS"), 6, output)
	require.Contains(t, output, "rung embedded")
	require.Empty(t, entries(t, env.temporary))
	child := holdServer(t, env.list...)
	require.NoError(t, child.cmd.Process.Signal(syscall.SIGKILL))
	require.EqualError(t, child.cmd.Wait(), "signal: killed")
	require.Eventually(t, func() bool { return refuses(child.address) }, 20*time.Second, 5*time.Millisecond)
}

// A download that fails says so at once, and leaves nothing: neither half an archive nor a folder.
func TestEmbeddedRungFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		text   string
	}{
		"offline": {nil, "unable to connect to http://127.0.0.1:1"},
		"unknown": {http.NotFound, "no version found matching 17"},
		"cut off": {cutOff, "error fetching postgres: unexpected EOF"},
		"wrong sum": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") },
			"downloaded checksums do not match"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := embeddedEnvironment(t, c.answer)
			output, failed := rerun(t, "^TestPostgresIsAvailable$", env.list...)
			require.True(t, failed)
			require.Contains(t, output, "- embedded: PostgreSQL 17")
			require.Contains(t, output, c.text)
			require.Empty(t, entries(t, env.temporary))
			require.NoDirExists(t, filepath.Join(env.home, ".embedded-postgres-go"))
		})
	}
}

func cutOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, "half")
}

type embeddedEnv struct {
	list            []string
	temporary, home string // the home holds the go command's own files too
}

// embeddedEnvironment allows only the download, from a repository that answers like this, or from none at all.
func embeddedEnvironment(t *testing.T, answer http.HandlerFunc) embeddedEnv {
	t.Helper()
	repository := "http://127.0.0.1:1"
	if answer != nil {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		repository = server.URL
	}
	env := embeddedEnv{temporary: reachableFolder(t), home: reachableFolder(t)}
	env.list = []string{
		envRungs + "=" + rungEmbedded, envRepository + "=" + repository, "TMPDIR=" + env.temporary, "HOME=" + env.home,
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} { // they are in the home otherwise
		value, err := exec.Command("go", "env", name).Output()
		require.NoError(t, err)
		env.list = append(env.list, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// archive is this machine's PostgreSQL in the shape in which the repository keeps its own, but for the folder share,
// which the programs find where the machine has it.
func archive(t *testing.T) []byte {
	t.Helper()
	found, err := findPrograms()
	if err != nil {
		t.Skip("there are no programs here to make an archive of")
	}
	folder := filepath.Dir(resolve(t, found.postgres))
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("there is no xz here to make an archive with")
	}
	packed := filepath.Join(t.TempDir(), "postgres.txz")
	cmd := exec.Command("tar", "-C", filepath.Dir(folder), "-cJf", packed,
		"--exclude=bitcode", "lib", "bin/postgres", "bin/initdb", "bin/pg_ctl")
	cmd.Env = append(cmd.Environ(), "XZ_OPT=-0")
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
	content, err := os.ReadFile(packed)
	require.NoError(t, err)
	var jar bytes.Buffer
	writer := zip.NewWriter(&jar)
	file, err := writer.CreateHeader(&zip.FileHeader{Name: "postgres-linux-x86_64.txz", Method: zip.Store})
	require.NoError(t, err)
	_, err = file.Write(content)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	return jar.Bytes()
}

func resolve(t *testing.T, path string) string {
	t.Helper()
	resolved, err := filepath.EvalSymlinks(path)
	require.NoError(t, err)
	return resolved
}

func entries(t *testing.T, folder string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}
