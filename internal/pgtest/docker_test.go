package pgtest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whether a Docker engine is there is known within seconds, and what was looked at is told.
func TestPingDocker(t *testing.T) {
	folder := shortFolder(t)
	engine := httptest.NewUnstartedServer(http.NotFoundHandler())
	engine.Listener = listen(t, filepath.Join(folder, "engine.sock"))
	engine.Start()
	t.Cleanup(engine.Close)
	listen(t, filepath.Join(folder, "silent.sock")) // takes connections and never answers
	require.NoError(t, os.WriteFile(filepath.Join(folder, "stale.sock"), nil, 0o600))
	for host, text := range map[string]string{
		"unix://" + folder + "/engine.sock": "",
		"tcp://" + address(t):               "",
		"ssh://elsewhere":                   "", // the helper's business
		"unix://" + folder + "/silent.sock": "no Docker engine answers at unix://",
		"unix://" + folder + "/stale.sock":  "connection refused",
		"unix://" + folder + "/none.sock":   "no Docker engine is there (looked at unix://" + folder + "/none.sock)",
		"tcp://127.0.0.1:1":                 "no Docker engine answers at tcp://127.0.0.1:1",
	} {
		t.Run(host, func(t *testing.T) {
			t.Setenv("DOCKER_HOST", host)
			begun := time.Now()
			err := pingDocker(t.Context())
			require.Less(t, time.Since(begun), 3*pingTimeout)
			if text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, errAbsent)
			require.ErrorContains(t, err, text)
		})
	}
}

// Without DOCKER_HOST the usual sockets are looked at, a user's own ones too.
func TestDockerHosts(t *testing.T) {
	t.Setenv("DOCKER_HOST", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	hosts := strings.Join(dockerHosts(), " ")
	require.Contains(t, hosts, "docker")
	if localServers {
		require.Contains(t, hosts, "unix:///var/run/docker.sock unix:///run/user/7/docker.sock")
	}
}

// address is where an engine answers over TCP.
func address(t *testing.T) string {
	t.Helper()
	engine := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(engine.Close)
	return engine.Listener.Addr().String()
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// shortFolder is t.TempDir for sockets, whose paths must be short.
func shortFolder(t *testing.T) string {
	t.Helper()
	path, err := os.MkdirTemp("", "confirmexec-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(path) })
	return path
}
