//go:build !unix

package dispatch

import "os"

// wasKilled says whether the process was ended from outside, as far as this system tells.
func wasKilled(state *os.ProcessState) bool { return !state.Success() }
