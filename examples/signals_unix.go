//go:build unix

package main

import (
	"os"
	"syscall"
)

// wasKilled says whether the process died of SIGKILL.
func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// canStop says whether a process can be stopped and continued.
const canStop = true

func stopProcess(p *os.Process) error     { return p.Signal(syscall.SIGSTOP) }
func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
