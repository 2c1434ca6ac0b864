// Package pgchild is the main function of the small programs that keep a PostgreSQL server for a test process.
//
// Each is a program of its own, which internal/pgtest builds and starts, so that what it imports reaches neither a
// test binary nor an importer's checksum file. The protocol: the program writes one [Answer] as a line of JSON to its
// standard output and keeps the server until its standard input ends. The parent's death ends the input too.
package pgchild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds a start with everything that it has to fetch; stopTimeout bounds the stop.
const (
	startTimeout = 3 * time.Minute
	stopTimeout  = 30 * time.Second
)

// Answer is the one line that a program writes: exactly one of its fields is set.
type Answer struct {
	// DSN connects to the maintenance database as a superuser.
	DSN string `json:"dsn,omitempty"`
	// Error says in one line why there is no server.
	Error string `json:"error,omitempty"`
}

// Server is what a program starts and stops. Start is called once; Stop is called once after Start has returned,
// whatever it returned, and removes what Start made.
type Server interface {
	Start(ctx context.Context) (dsn string, err error)
	Stop(ctx context.Context) error
}

// Main runs the program and returns its exit code. Start's context ends when nobody wants the server any more; a
// Start that goes on long after that is abandoned, and the program ends without a Stop.
func Main(server Server) int {
	return serve(server, os.Stdin, os.Stdout)
}

func serve(server Server, in io.Reader, out io.Writer) int {
	wanted, unwanted := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer unwanted()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		unwanted()
	}()
	result := start(wanted, server)
	if result.err != nil {
		_ = json.NewEncoder(out).Encode(Answer{Error: oneLine(result.err)})
	} else {
		_ = json.NewEncoder(out).Encode(Answer{DSN: result.dsn})
		<-wanted.Done()
	}
	if !result.abandoned {
		result.err = errors.Join(result.err, stop(server))
	}
	if result.err != nil {
		fmt.Fprintln(os.Stderr, result.err)
		return 1
	}
	return 0
}

// begun is what came of a start. An abandoned one is still going on.
type begun struct {
	dsn       string
	err       error
	abandoned bool
}

// start waits for Start, and a little longer once it should end.
func start(wanted context.Context, server Server) begun {
	ctx, cancel := context.WithTimeout(wanted, startTimeout)
	defer cancel()
	done := make(chan begun, 1)
	go func() {
		dsn, err := server.Start(ctx)
		done <- begun{dsn: dsn, err: err}
	}()
	select {
	case b := <-done:
		return b
	case <-ctx.Done():
	}
	select {
	case b := <-done:
		return b
	case <-time.After(stopTimeout):
		return begun{err: fmt.Errorf("the start did not end in time: %w", ctx.Err()), abandoned: true}
	}
}

func stop(server Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// oneLine is the error's text without line breaks.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
