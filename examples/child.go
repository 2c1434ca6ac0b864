package main

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
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// confirmOrder is what a process that confirms is told, in the first line of its stdin.
type confirmOrder struct {
	Database     string
	Registry     string
	Scenario     string
	Firm         string
	Lease        time.Duration
	Confirmation contract.OperationConfirmation

	PerItem     bool   // with ExecutePerItem, in the database; else with Execute, in the registry
	PauseBefore string // the item before whose effect it says so, and waits for another line of its stdin; "": none
}

// child is a process that confirms, and to which something is going to happen.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string     // what it says on stdout; closed when it has ended
	done  chan struct{}   // closed when it has ended
	alive context.Context // ends with it

	stderr bytes.Buffer // to be read when it has ended
}

// startChild starts a process that confirms as ordered.
func startChild(ctx context.Context, order confirmOrder) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	input, err := json.Marshal(order)
	if err != nil {
		return nil, fmt.Errorf("encode the order: %w", err)
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "confirm-process"), lines: make(chan string, 8), done: make(chan struct{})}
	stdout, told := io.Pipe()
	c.cmd.Stdout, c.cmd.Stderr = told, &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a process that confirms: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process that confirms: %w", err)
	}
	alive, ended := context.WithCancel(ctx)
	c.alive = alive
	go func() {
		_ = c.cmd.Wait() // how it ended is in its state
		_ = told.Close()
		close(c.done)
		ended()
	}()
	go func() {
		defer close(c.lines)
		for said := bufio.NewScanner(stdout); said.Scan(); {
			c.lines <- said.Text()
		}
	}()
	return c, c.tell(string(input))
}

// tell writes a line to its stdin.
func (c *child) tell(line string) error {
	_, err := io.WriteString(c.stdin, line+"\n")
	return err
}

// await returns when the child says line.
func (c *child) await(line string) error {
	got, ok := <-c.lines
	switch {
	case !ok:
		return c.endedEarly()
	case got != line:
		return fmt.Errorf("the process that confirms said %q, not %q", got, line)
	}
	return nil
}

// endedEarly waits for the end of a child that was to live longer. It is errLate when it ended well: then it was not in time
// for what was to happen to it.
func (c *child) endedEarly() error {
	<-c.done
	if c.cmd.ProcessState.Success() {
		return errLate
	}
	return fmt.Errorf("the process that confirms ended by itself (%s): %s", c.cmd.ProcessState, c.stderr.Bytes())
}

// kill kills the child, and says how it died.
func (s *stage) kill(c *child) (string, error) {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return "", fmt.Errorf("kill the process that confirms: %w", err)
	}
	<-c.done
	state := c.cmd.ProcessState
	if state.Success() {
		return "", errLate
	}
	s.expect(wasKilled(state), "the process was not killed by SIGKILL: %s: %s", state, c.stderr.Bytes())
	return state.String(), nil
}

// end makes sure that the child is gone.
func (c *child) end() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

// confirmProcess confirms as ordered, and says how that was answered.
func confirmProcess(ctx context.Context, _ []string, s streams) (err error) {
	in := bufio.NewReader(s.in)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	var order confirmOrder
	if err := json.Unmarshal(line, &order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	db, err := connect(ctx, order.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	pause := func(it broker.Item) error { return order.pause(it, in, s.out) }
	res, err := order.execute(ctx, db, pause)
	fmt.Fprintln(s.out, answered(broker.AnswerOf(res, err)))
	return err
}

// What a child says on its stdout.
func paused(item string) string   { return "before " + item }
func answered(word string) string { return "answered " + word }

// pause waits before the effect of the item that the order names.
func (o *confirmOrder) pause(it broker.Item, in *bufio.Reader, out io.Writer) error {
	if it.ID != o.PauseBefore {
		return nil
	}
	fmt.Fprintln(out, paused(it.ID))
	if _, err := in.ReadString('\n'); err != nil {
		return broker.NotApplied(fmt.Errorf("nobody says that it may go on: %w", err))
	}
	return nil
}

// execute confirms once.
func (o *confirmOrder) execute(ctx context.Context, db database, pause func(broker.Item) error) (*contract.OperationResult, error) {
	cfg, c := &broker.Config{Lease: o.Lease}, o.Confirmation
	if o.PerItem {
		return db.executePerItem(ctx, cfg, broker.Request{Tenant: o.Firm, Confirmation: c, Current: matter}, pause)
	}
	b, err := db.broker(cfg)
	if err != nil {
		return nil, err
	}
	r := newRegistryClient(o.Registry)
	current, err := r.surface(ctx)
	if err != nil {
		return nil, err
	}
	call := r.executor(o.Scenario, c.IdempotencyKey)
	return b.Execute(ctx, broker.Request{Tenant: o.Firm, Confirmation: c, Current: current},
		func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
			if err := pause(it); err != nil {
				return broker.Outcome{}, err
			}
			if it.ID == o.PauseBefore { // it woke up and calls, as one does that does not look at its context again
				ctx = context.WithoutCancel(ctx)
			}
			return call(ctx, it)
		})
}
