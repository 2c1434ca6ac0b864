package dispatch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain makes the test binary the program that the processes are started from.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == ProcessCommand {
		if err := Process(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// newTestSet makes certificates and starts the target, in a folder of the test's.
func newTestSet(t *testing.T) *set {
	t.Helper()
	s, err := newSet(t.Context(), t.TempDir(), "", "test")
	require.NoError(t, err)
	t.Cleanup(s.target.close)
	return s
}

// newTestStage makes a stage for a test.
func newTestStage(t *testing.T, s *set) *stage {
	t.Helper()
	st, err := s.newStage(t.Context(), filepath.Base(t.Name()), "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.close()) })
	return st
}
