package main

import (
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

	"github.com/confirmexec/confirmexec/contract"
)

// crew is the child processes of a mode. They end with the context, with end, and, if the parent is killed, with their
// stdin.
type crew struct {
	members []*member
	kill    context.CancelFunc
}

// member is a child process and the way to talk with it.
type member struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	in     *json.Encoder
	out    *json.Decoder
	stderr bytes.Buffer
	once   sync.Once
	failed error // set once
}

// startCrew starts the processes and waits until all of them have opened the database.
func startCrew(ctx context.Context, processes int, with setup) (*crew, error) {
	ctx, kill := context.WithCancel(ctx)
	c := &crew{kill: kill}
	for range processes {
		m, err := startMember(ctx)
		if err != nil {
			return nil, c.abandon(err)
		}
		c.members = append(c.members, m)
	}
	err := c.tell(with)
	if err == nil {
		err = c.await()
	}
	if err != nil {
		return nil, c.abandon(err)
	}
	return c, nil
}

func startMember(ctx context.Context) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	m := &member{cmd: exec.CommandContext(ctx, self, childCommand)}
	m.cmd.Stderr = &m.stderr
	stdin, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a child process: %w", err)
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a child process: %w", err)
	}
	m.stdin, m.in, m.out = stdin, json.NewEncoder(stdin), json.NewDecoder(stdout)
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a child process: %w", err)
	}
	return m, nil
}

// confirm has every goroutine of every process confirm the key at the same moment, and returns what each process was
// answered. After an error the crew is of no more use: abandon it.
func (c *crew) confirm(key contract.OperationConfirmation) ([]report, error) {
	if err := c.tell(key); err != nil {
		return nil, err
	}
	if err := c.await(); err != nil { // all goroutines stand at the barrier
		return nil, err
	}
	if err := c.tell(true); err != nil { // and now they do not
		return nil, err
	}
	reports := make([]report, len(c.members))
	for i, m := range c.members {
		if err := m.hear(&reports[i]); err != nil {
			return nil, err
		}
	}
	return reports, nil
}

// tell tells every process the same.
func (c *crew) tell(what any) error {
	for _, m := range c.members {
		if err := m.in.Encode(what); err != nil {
			return m.lost(err)
		}
	}
	return nil
}

// await waits until every process has said that it is ready.
func (c *crew) await() error {
	for _, m := range c.members {
		var ready bool
		if err := m.hear(&ready); err != nil {
			return err
		}
	}
	return nil
}

// end closes every process's stdin and waits for its end. The error names those that failed.
func (c *crew) end() error {
	defer c.kill()
	for _, m := range c.members {
		_ = m.stdin.Close() // whether it is gone already is in its state
	}
	var all error
	for _, m := range c.members {
		all = errors.Join(all, m.wait())
	}
	return all
}

// abandon kills what is left of the crew and returns cause.
func (c *crew) abandon(cause error) error {
	c.kill()
	_ = c.end() // they were killed
	return cause
}

func (m *member) hear(into any) error {
	if err := m.out.Decode(into); err != nil {
		return m.lost(err)
	}
	return nil
}

// lost says why one cannot talk with the process any more: it has failed, as a rule.
func (m *member) lost(err error) error {
	_ = m.stdin.Close()
	if failed := m.wait(); failed != nil {
		return failed
	}
	return fmt.Errorf("talk with a child process: %w", err)
}

// wait waits for the process's end. The error says how it failed, with its last words.
func (m *member) wait() error {
	m.once.Do(func() {
		if err := m.cmd.Wait(); err != nil {
			m.failed = fmt.Errorf("a child process failed: %w%s", err, m.lastWords())
		}
	})
	return m.failed
}

func (m *member) lastWords() string {
	text := strings.TrimSpace(m.stderr.String())
	if text == "" {
		return ""
	}
	return ": " + text[max(0, len(text)-maxLastWords):]
}

// maxLastWords bounds, in bytes, what is told of a process's stderr.
const maxLastWords = 2000
