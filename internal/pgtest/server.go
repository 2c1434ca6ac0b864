//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const localServers = true

const (
	superuser    = "postgres"
	portTries    = 10
	readyPoll    = 10 * time.Millisecond
	stopTimeout  = 10 * time.Second
	logTailBytes = 4096
)

// errPortTaken is a lost race: somebody took the free port before the server did.
var errPortTaken = errors.New("the port was taken by another process")

// serverFlags trade durability against a power cut for speed. synchronous_commit stays on: a commit that was
// acknowledged survives a crash of the server's processes, which tests provoke.
var serverFlags = []string{
	"listen_addresses=127.0.0.1",
	"unix_socket_directories=",
	"fsync=off",
	"full_page_writes=off",
	"synchronous_commit=on",
	"max_connections=300",
	"shared_buffers=128MB",
}

// server is one throw-away server process.
type server struct {
	programs programs
	folder   *folder
	port     int
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the process has ended
}

// startLocal makes a new server on this machine and waits until it answers.
func startLocal(ctx context.Context, found programs, template Template) (*cluster, error) {
	f, err := newFolder()
	if err != nil {
		return nil, err
	}
	s := &server{programs: found, folder: f}
	c, err := s.open(ctx, template)
	if err != nil {
		_ = s.stop()
		return nil, fmt.Errorf("start a server from %s: %w", filepath.Dir(found.postgres), err)
	}
	return c, nil
}

func (s *server) open(ctx context.Context, template Template) (*cluster, error) {
	if err := s.initdb(ctx); err != nil {
		return nil, err
	}
	if err := s.startOnFreePort(ctx); err != nil {
		return nil, err
	}
	dsn := fmt.Sprintf("postgres://%s@127.0.0.1:%d/postgres?sslmode=disable", superuser, s.port)
	c, err := newCluster(ctx, dsn, template)
	if err != nil {
		return nil, s.explain(err)
	}
	c.stop, c.logTail = s.stop, s.logTail
	return c, c.explain("create the application's role", c.createRole(ctx))
}

func (s *server) initdb(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.programs.initdb, "-D", s.folder.data(), "-U", superuser, "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync")
	s.confine(cmd)
	runtime.LockOSThread() // see keep
	defer runtime.UnlockOSThread()
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, output)
	}
	return nil
}

// startOnFreePort tries again when another process is faster on the port.
func (s *server) startOnFreePort(ctx context.Context) error {
	err := errPortTaken
	for try := 0; try < portTries && errors.Is(err, errPortTaken); try++ {
		if s.port, err = freePort(); err == nil {
			err = s.startOnPort(ctx)
		}
	}
	return err
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func (s *server) startOnPort(ctx context.Context) error {
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	args := []string{"-D", s.folder.data(), "-p", strconv.Itoa(s.port)}
	for _, flag := range serverFlags {
		args = append(args, "-c", flag)
	}
	s.cmd = exec.Command(s.programs.postgres, args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.confine(s.cmd)
	started := make(chan error, 1)
	s.exited = make(chan struct{})
	go background(func() { s.keep(started) })
	if err := <-started; err != nil {
		return err
	}
	return s.explain(s.awaitReady(ctx))
}

// keep owns the server's process. On Linux the kernel ends the server when the thread that started it ends, so the
// thread is kept for this goroutine alone until the server is gone.
func (s *server) keep(started chan<- error) {
	defer close(s.exited)
	runtime.LockOSThread()
	err := s.cmd.Start()
	started <- err
	if err == nil {
		_ = s.cmd.Wait() // what it has to say is in its log
	}
}

// awaitReady watches the file in which the server itself says on which port it is ready. Trying to connect could
// reach somebody else's server.
func (s *server) awaitReady(ctx context.Context) error {
	for !s.isReady() {
		select {
		case <-s.exited:
			if strings.Contains(s.logTail(), "could not bind") {
				return errPortTaken
			}
			return fmt.Errorf("postgres ended: %v", s.cmd.ProcessState)
		default:
		}
		if err := pause(ctx, readyPoll); err != nil {
			return fmt.Errorf("postgres was not ready in time: %w", err)
		}
	}
	return nil
}

// isReady reads postmaster.pid: the port is in line 4, the status in line 8.
func (s *server) isReady() bool {
	content, err := os.ReadFile(filepath.Join(s.folder.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(content), "\n")
	return len(lines) >= 8 && lines[3] == strconv.Itoa(s.port) && strings.TrimSpace(lines[7]) == "ready"
}

// stop ends the server at once, without a checkpoint, and removes its files.
func (s *server) stop() error {
	defer s.folder.remove()
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.exited:
		return nil
	case <-time.After(stopTimeout):
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
	return fmt.Errorf("postgres did not end within %v and was killed", stopTimeout)
}

// confine gives a program its own process group, a small environment, a folder that its user may read, and, if we are
// root, a user that PostgreSQL accepts.
func (s *server) confine(cmd *exec.Cmd) {
	cmd.Dir = s.folder.path
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	if isRoot() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
}

// confineHelper gives a helper program its own process group and a small environment. One that runs PostgreSQL's
// programs itself cannot be root, and then has its home in its folder.
func confineHelper(cmd *exec.Cmd, work string) {
	cmd.Dir = work
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if isRoot() && filepath.Base(cmd.Path) == helperEmbedded {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		cmd.Env = append(cmd.Env, "HOME="+work)
	}
}

// environment leaves out PostgreSQL's own variables, which would change the server, and the locale.
func environment() []string {
	var kept []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "LC_") && !strings.HasPrefix(entry, "LANG") {
			kept = append(kept, entry)
		}
	}
	return append(kept, "LC_ALL=C")
}

func (s *server) logPath() string { return filepath.Join(s.folder.data(), "server.log") }

// logTail is the end of the server's log.
func (s *server) logTail() string {
	content, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-logTailBytes):])
}

// explain adds the server's log to an error. It keeps nil.
func (s *server) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\nthe end of the server's log:\n%s", err, strings.TrimSpace(s.logTail()))
}
