//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pgtest

import (
	"context"
	"os"
	"os/exec"
	"runtime"
)

const localServers = false

// startLocal is reached here only through CONFIRMEXEC_PG_BIN.
func startLocal(context.Context, programs, Template) (*cluster, error) {
	return nil, absentf("a throw-away server is not supported on %s", runtime.GOOS)
}

// folder holds everything that a helper program writes.
type folder struct{ path string }

func newFolder() (*folder, error) {
	path, err := os.MkdirTemp("", "confirmexec-pg-")
	return &folder{path: path}, err
}

func (f *folder) remove() { _ = os.RemoveAll(f.path) }

func (f *folder) make(path string) error { return os.Mkdir(path, 0o700) }

// confineHelper has nothing to do here.
func confineHelper(*exec.Cmd, string) {}
