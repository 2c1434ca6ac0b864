package pgtest

import "syscall"

// dieWithParent makes the kernel end the program when the thread that started it ends, however that happens.
func dieWithParent(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGQUIT
}
