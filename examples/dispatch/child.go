package dispatch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// ProcessCommand is the argument with which a program that has this package starts itself as a dispatcher or an agent.
const ProcessCommand = "dispatch-process"

// child is a dispatcher or an agent, in a process of its own.
type child struct {
	hello

	name   string
	trace  trace
	cmd    *exec.Cmd
	orders *json.Encoder
	stdin  io.Closer
	says   *bufio.Scanner
	stderr bytes.Buffer // to be read when it has ended
	ended  sync.Once
}

// errEnded is the answer of a process that has ended instead of answering.
var errEnded = errors.New("the process has ended")

// start starts a process, and waits until it listens.
func start(ctx context.Context, name string, cfg config) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	c := &child{name: name, trace: cfg.Trace, cmd: exec.CommandContext(ctx, self, ProcessCommand)}
	c.cmd.Stderr = &c.stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	c.stdin, c.orders, c.says = stdin, json.NewEncoder(stdin), bufio.NewScanner(stdout)
	c.says.Buffer(nil, 1<<20)
	if err := c.orders.Encode(cfg); err != nil {
		return nil, c.gone(err)
	}
	if err := c.hear(&c.hello); err != nil {
		return nil, err
	}
	c.trace.happened(name, strings.TrimSpace("starts "+cfg.Boot))
	if c.PID != c.cmd.Process.Pid {
		return nil, fmt.Errorf("the %s says that it is process %d, and is %d", name, c.PID, c.cmd.Process.Pid)
	}
	return c, nil
}

// do gives an order and waits for its answer. The error is errEnded, or what is wrong with the answer.
func (c *child) do(o order) (answer, error) {
	var told answer
	if err := c.orders.Encode(o); err != nil {
		return told, c.gone(err)
	}
	return told, c.hear(&told)
}

func (c *child) hear(to any) error {
	if !c.says.Scan() {
		return c.gone(c.says.Err())
	}
	if err := json.Unmarshal(c.says.Bytes(), to); err != nil {
		return fmt.Errorf("the %s said %q: %w", c.name, c.says.Bytes(), err)
	}
	return nil
}

func (c *child) gone(err error) error {
	c.wait()
	return fmt.Errorf("%w: the %s (%s): %w: %s", errEnded, c.name, c.cmd.ProcessState, err, c.stderr.Bytes())
}

func (c *child) wait() { c.ended.Do(func() { _ = c.cmd.Wait() }) } // how it ended is in its state

// kill kills it with SIGKILL, and says how it died.
func (c *child) kill() string {
	_ = c.cmd.Process.Kill()
	c.wait()
	c.trace.happened(c.name, c.cmd.ProcessState.String())
	return c.cmd.ProcessState.String()
}

// end ends it by the end of its orders.
func (c *child) end() {
	_ = c.stdin.Close()
	c.wait()
}
