package pgtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/internal/pgchild"
)

// The programs' names: their folders are under internal.
const (
	helperContainer = "pgcontainer"
	helperEmbedded  = "pgembedded"
)

const modulePath = "github.com/confirmexec/confirmexec"

const (
	buildTimeout  = 6 * time.Minute // from nothing on a slow, busy machine
	answerTimeout = 4 * time.Minute // the program ends its own start earlier
	leaveTimeout  = 45 * time.Second
	outputBytes   = 300
)

// helper is a program of internal/pgchild's kind, which keeps a server until its input ends. This package starts it
// rather than import what it is made of: a test's imports reach the checksum files of the tested package's importers.
type helper struct {
	name   string
	folder *folder
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{} // closed when the process has ended
}

// startHelper builds the program and lets it start a server. If either cannot be done the error is errAbsent.
func startHelper(ctx context.Context, name string, template Template) (*cluster, error) {
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	h := &helper{name: name, folder: f}
	program, err := h.build(ctx)
	if err != nil {
		f.remove()
		return nil, err
	}
	return h.open(ctx, program, template)
}

// build makes the program in the folder.
func (h *helper) build(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	if _, err := exec.LookPath("go"); err != nil {
		return "", absentf("it needs the go command: %v", err)
	}
	root, err := run(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", modulePath))
	if err != nil || root == "" {
		return "", absentf("the source of internal/%s was not found: %v", h.name, err)
	}
	program := filepath.Join(h.folder.path, h.name)
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-buildvcs=false", "-o", program, "./internal/"+h.name)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	if _, err := run(cmd); err != nil {
		return "", absentf("internal/%s cannot be built: %v", h.name, err)
	}
	return program, nil
}

// run returns a command's output without the space around it, and its last words with the error.
func run(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = time.Second
	output, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, tail(stderr.String(), outputBytes))
	}
	return strings.TrimSpace(string(output)), err
}

// open starts the program and connects to its server.
func (h *helper) open(ctx context.Context, program string, template Template) (*cluster, error) {
	dsn, err := h.start(ctx, program)
	if err != nil {
		_ = h.stop()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	c, err := newCluster(ctx, dsn, template)
	if err == nil {
		c.stop, c.password = h.stop, randomHex(16)
		err = c.createRole(ctx)
	}
	if err != nil {
		_ = h.stop()
		return nil, fmt.Errorf("the server of internal/%s: %w", h.name, err)
	}
	return c, nil
}

// start waits for the program's answer.
func (h *helper) start(ctx context.Context, program string) (dsn string, err error) {
	work := filepath.Join(h.folder.path, "work")
	if err := h.folder.make(work); err != nil {
		return "", err
	}
	h.cmd = exec.Command(program, work)
	confineHelper(h.cmd, work)
	log, err := os.Create(h.logPath())
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }()
	h.cmd.Stderr = log
	answers, err := h.launch()
	if err != nil {
		return "", err
	}
	select {
	case line := <-answers:
		return h.read(line)
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(answerTimeout):
		return "", absentf("internal/%s has not answered within %v", h.name, answerTimeout)
	}
}

// launch starts the process. Its first line comes through the channel; without one, nothing does but its end.
func (h *helper) launch() (answers <-chan string, err error) {
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	h.exited = make(chan struct{})
	lines := make(chan string, 1)
	go background(func() {
		defer close(h.exited)
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		lines <- line
		_, _ = io.Copy(io.Discard, stdout)
		_ = h.cmd.Wait() // what it has to say is in its log
	})
	return lines, nil
}

// read understands the program's answer. A program that could not start a server says why.
func (h *helper) read(line string) (dsn string, err error) {
	var answer pgchild.Answer
	if err := json.Unmarshal([]byte(line), &answer); err != nil || answer == (pgchild.Answer{}) {
		return "", absentf("internal/%s ended without an answer: %s", h.name, h.lastWords())
	}
	if answer.Error != "" {
		return "", absentf("%s", answer.Error)
	}
	return answer.DSN, nil
}

// stop lets the program end its server, and removes the folder.
func (h *helper) stop() error {
	defer h.folder.remove()
	if h.exited == nil {
		return nil
	}
	_ = h.stdin.Close()
	select {
	case <-h.exited:
	case <-time.After(leaveTimeout):
		_ = h.cmd.Process.Kill()
		<-h.exited
		return fmt.Errorf("internal/%s did not end within %v and was killed", h.name, leaveTimeout)
	}
	if !h.cmd.ProcessState.Success() {
		return fmt.Errorf("internal/%s: %v: %s", h.name, h.cmd.ProcessState, h.lastWords())
	}
	return nil
}

func (h *helper) logPath() string { return filepath.Join(h.folder.path, "helper.log") }

func (h *helper) lastWords() string {
	content, _ := os.ReadFile(h.logPath())
	return tail(string(content), outputBytes)
}

// tail is the end of a text.
func tail(text string, bytes int) string {
	return strings.TrimSpace(text[max(0, len(text)-bytes):])
}
