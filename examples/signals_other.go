//go:build !unix

package main

import (
	"errors"
	"os"
)

// wasKilled says whether the process was ended from outside, as far as this system tells.
func wasKilled(state *os.ProcessState) bool { return !state.Success() }

// canStop says whether a process can be stopped and continued.
const canStop = false

func stopProcess(*os.Process) error     { return errors.ErrUnsupported }
func continueProcess(*os.Process) error { return errors.ErrUnsupported }
