//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package pgtest

import "syscall"

// dieWithParent has no means here. A killed test process leaves its server behind until another one, an hour later,
// removes its files.
func dieWithParent(*syscall.SysProcAttr) {}
