//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pgtest

import (
	"context"
	"runtime"
)

const localServers = false

// startLocal is reached here only through CONFIRMEXEC_PG_BIN.
func startLocal(context.Context, programs, Template) (*cluster, error) {
	return nil, absent("a throw-away server is not supported on " + runtime.GOOS)
}
