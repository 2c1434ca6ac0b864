//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const children = 3

// endless is a storm that is stopped from outside.
type endless struct {
	out, err bytes.Buffer
	pids     string // the file of the children's process ids
	signal   func(os.Signal)
	wait     func() (status int)
}

func startEndless(t *testing.T, args ...string) *endless {
	t.Helper()
	e := &endless{pids: filepath.Join(t.TempDir(), "pids")}
	cmd := program(t, append(args, "-keys", "1000000", "-processes", strconv.Itoa(children), "-goroutines", "2")...)
	cmd.Env = append(cmd.Env, pidFile+"="+e.pids)
	cmd.Stdout, cmd.Stderr = &e.out, &e.err
	require.NoError(t, cmd.Start())
	e.signal = func(s os.Signal) { require.NoError(t, cmd.Process.Signal(s)) }
	e.wait = func() int {
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode()
	}
	return e
}

// children waits until the processes have been started, and returns their ids.
func (e *endless) children(t *testing.T) (pids []int) {
	t.Helper()
	require.Eventually(t, func() bool {
		content, _ := os.ReadFile(e.pids)
		return bytes.Count(content, []byte("\n")) == children
	}, time.Minute, 20*time.Millisecond)
	content, err := os.ReadFile(e.pids)
	require.NoError(t, err)
	for text := range strings.FieldsSeq(string(content)) {
		pid, err := strconv.Atoi(text)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func assertGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		assert.Eventually(t, func() bool { return isGone(pid) }, time.Minute, 20*time.Millisecond)
	}
}

// isGone also takes a process for gone that nobody has waited for.
func isGone(pid int) bool {
	if syscall.Kill(pid, 0) == syscall.ESRCH {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

// Ctrl-C ends the children, and what was done until then is told.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	e := startEndless(t)
	pids := e.children(t)
	e.signal(os.Interrupt)
	assert.Equal(t, exitFailed, e.wait())
	assertGone(t, pids)
	assert.Regexp(t, `\nFAILED execute: stopped after \d+ of 1000000 keys: interrupted\n$`, e.out.String())
	assert.Regexp(t, `\ndouble effects +0\n`, e.out.String())
}

// A parent that is killed takes its children with it: their stdin ends.
func TestKilledParent(t *testing.T) {
	t.Parallel()
	e := startEndless(t)
	pids := e.children(t)
	e.signal(os.Kill)
	e.wait()
	assertGone(t, pids)
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	e := startEndless(t, "-timeout", "4s")
	assert.Equal(t, exitFailed, e.wait())
	assert.Contains(t, e.out.String()+e.err.String(), errTimeout.Error())
}
