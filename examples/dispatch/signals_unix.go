//go:build unix

package dispatch

import (
	"os"
	"syscall"
)

// wasKilled says whether the process died of SIGKILL.
func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
