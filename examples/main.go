// Command examples shows confirmexec at work. Without arguments it walks through a case, scenario by scenario: counsel
// of a law firm confirms changes to the forums of a legal matter, and the effects go to a registry in another process.
// With a command it does the same by hand. See README.md, or run it with -h.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/confirmexec/confirmexec/examples/dispatch"
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
	exitFailed = 1 // refused, not settled, or a scenario that differs
	exitUsage  = 2
)

// run is the program but for its exit.
func run(args []string, s streams) int {
	if len(args) > 0 {
		if process := hidden[args[0]]; process != nil {
			return s.finish(process(context.Background(), args[1:], s))
		}
	}
	o, err := parseOptions(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(s.out, usage)
		return exitOK
	}
	if err != nil {
		return s.finish(err)
	}
	cmd, err := o.command()
	if err != nil {
		return s.finish(err)
	}
	return s.finish(cmd(context.Background(), o, s))
}

// hidden are the commands that the program starts itself with.
var hidden = map[string]func(ctx context.Context, args []string, s streams) error{
	"registry-process": registryProcess,
	"confirm-process":  confirmProcess,

	dispatch.ProcessCommand: dispatchProcess,
}

// errTold is an error that the user was told already.
var errTold = errors.New("told already")

// finish tells err and returns the exit status.
func (s streams) finish(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(s.err, "examples: %s\nRun it with -h for help.\n", usage)
		return exitUsage
	case !errors.Is(err, errTold):
		tellError(s.err, err)
	}
	return exitFailed
}
