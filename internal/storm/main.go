// Command storm has many processes confirm each key at the same moment, and proves that the executor ran once per item
// and key:
//
//	go run ./internal/storm -processes 8 -goroutines 25 -keys 100
//
// The parent mints a key, hands it to all child processes, and releases all their goroutines together: 200 confirms of
// one key, by 8 brokers on 8 connection pools. Exactly one of them must be answered "executed", and the others
// "replayed" or "in_progress". What the executors did is counted where they did it, in a ledger file or a table that
// would take every effect twice, and never by what anybody remembers.
//
// Run it with -h for its flags. Its exit status is 1 when anything is not as promised.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})) }

// streams is what the program reads and writes. Results go to out and everything about them to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// The exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // something is not as promised, or the storm did not come to its end
	exitUsage  = 2
)

// childCommand is the first argument of the processes that the program starts itself as.
const childCommand = "child-process"

var (
	errInterrupted = errors.New("interrupted")
	errTimeout     = errors.New("the time of -timeout is over")
	// errTold is a failure that the report has told already.
	errTold = errors.New("told already")
)

// run is the program but for its exit.
func run(args []string, s streams) int {
	if len(args) > 0 && args[0] == childCommand {
		signal.Ignore(os.Interrupt) // Ctrl-C goes to all of a terminal's processes; the parent ends this one
		return s.finish(childProcess(context.Background(), s))
	}
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(s.out, usage)
		return exitOK
	}
	if err != nil {
		return s.finish(err)
	}
	ctx, cancel := interruptible(context.Background())
	defer cancel()
	ctx, stop := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer stop()
	return s.finish(withStop(ctx, storm(ctx, o, s)))
}

// interruptible is a context that Ctrl-C ends.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// withStop adds to err why everything was stopped, unless it says so already.
func withStop(ctx context.Context, err error) error {
	stopped := context.Cause(ctx)
	if err == nil || stopped == nil || errors.Is(err, errTold) || errors.Is(err, stopped) {
		return err
	}
	return fmt.Errorf("%w: %w", stopped, err)
}

// finish tells err and returns the exit status.
func (s streams) finish(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(s.err, "storm: %s\nRun it with -h for help.\n", usage)
		return exitUsage
	case !errors.Is(err, errTold):
		fmt.Fprintf(s.err, "storm: %s\n", withCauses(err))
	}
	return exitFailed
}
