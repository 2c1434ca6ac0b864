package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgchild"
)

// childStopped is the file that the helper of the kind "serves" leaves when it has stopped its server.
const childStopped = "CHILD_OF_PGTEST_STOPPED"

// beHelper is the main function of the helper programs of these tests.
func beHelper(kind string) int {
	switch kind {
	case "":
		return 9
	case "silent":
		fmt.Fprintln(os.Stderr, "something happened")
		return 3
	case "chatty":
		fmt.Println("hello")
		return 0
	default:
		return pgchild.Main(fakeServer(kind))
	}
}

type fakeServer string

func (s fakeServer) Start(context.Context) (string, error) {
	if s == "fails" {
		return "", errors.New("no such image:\n\tgone")
	}
	return "postgres://fake", nil
}

func (s fakeServer) Stop(context.Context) error {
	if s == "sticks" {
		return errors.New("it sticks")
	}
	return os.WriteFile(os.Getenv(childStopped), nil, 0o600)
}

// A helper that cannot start a server is a rung that is not available, and says why in one line.
func TestHelperWithoutServer(t *testing.T) {
	for kind, text := range map[string]string{
		"fails":  "no such image: gone",
		"silent": "internal/fake ended without an answer: something happened",
		"chatty": "internal/fake ended without an answer:",
	} {
		t.Run(kind, func(t *testing.T) {
			h := fakeHelper(t, kind)
			_, err := h.open(t.Context(), os.Args[0], nil)
			require.ErrorIs(t, err, errAbsent)
			require.EqualError(t, err, text)
			require.NoDirExists(t, h.folder.path)
		})
	}
}

// A helper stops its server when it is told to, and its folder goes. What it could not stop is reported.
func TestHelperStops(t *testing.T) {
	stopped := filepath.Join(t.TempDir(), "stopped")
	t.Setenv(childStopped, stopped)
	h := fakeHelper(t, "serves")
	dsn, err := h.start(t.Context(), os.Args[0])
	require.NoError(t, err)
	require.Equal(t, "postgres://fake", dsn)
	require.NoFileExists(t, stopped)
	require.NoError(t, h.stop())
	require.FileExists(t, stopped)
	require.NoDirExists(t, h.folder.path)

	h = fakeHelper(t, "sticks")
	_, err = h.start(t.Context(), os.Args[0])
	require.NoError(t, err)
	require.ErrorContains(t, h.stop(), "it sticks")
}

// The end of the test process's input is all that a helper needs to end: a killed test process leaves no server.
func TestHelperEndsWithItsInput(t *testing.T) {
	stopped := filepath.Join(t.TempDir(), "stopped")
	t.Setenv(childStopped, stopped)
	h := fakeHelper(t, "serves")
	_, err := h.start(t.Context(), os.Args[0])
	require.NoError(t, err)
	require.NoError(t, h.stdin.Close())
	<-h.exited
	require.FileExists(t, stopped)
	require.NoError(t, h.stop())
}

// A start that takes minutes ends at once when the tests are interrupted.
func TestInterruptEndsAStart(t *testing.T) {
	before := rungs
	t.Cleanup(func() { rungs = before })
	begun := make(chan struct{})
	rungs = []rung{{"slow", func(ctx context.Context, _ Template) (*cluster, error) {
		close(begun)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Minute):
			return nil, errors.New("nobody ended the start")
		}
	}}}
	for _, name := range []string{envRungs, envWithout} {
		t.Setenv(name, "")
	}
	var p process
	p.begin(nil)
	failed := make(chan error, 1)
	go func() {
		_, err := p.get()
		failed <- err
	}()
	<-begun
	require.NoError(t, p.end())
	require.ErrorIs(t, <-failed, context.Canceled)
}

// Where the go command or the source is missing, the helper's rung is not available.
func TestHelperNeedsGo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := startHelper(t.Context(), "fake", nil)
	require.ErrorIs(t, err, errAbsent)
	require.ErrorContains(t, err, "it needs the go command")
}

// The source is looked for in the module that the working folder belongs to.
func TestHelperNeedsSource(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := startHelper(t.Context(), "fake", nil)
	require.ErrorIs(t, err, errAbsent)
	require.ErrorContains(t, err, "the source of internal/fake was not found")
}

// A program that does not compile is a rung that is not available; the compiler's words are kept.
func TestHelperNeedsToCompile(t *testing.T) {
	_, err := startHelper(t.Context(), "fake", nil)
	require.ErrorIs(t, err, errAbsent)
	require.ErrorContains(t, err, "internal/fake cannot be built: exit status 1: ")
	require.ErrorContains(t, err, "directory not found")
}

func fakeHelper(t *testing.T, kind string) *helper {
	t.Helper()
	t.Setenv(childHelper, kind)
	f, err := newFolder()
	require.NoError(t, err)
	t.Cleanup(f.remove)
	return &helper{name: "fake", folder: f}
}
