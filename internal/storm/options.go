package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/broker"
)

const usage = `Confirm each key from many processes at once, and count what the executor did.

Usage, from the repository's root:

  go run ./internal/storm [flags]

Flags:

  -processes N   processes that confirm. Default 8
  -goroutines N  confirms of each key in each process, all at once. Default 25
  -keys N        keys in each mode. Default 100
  -items N       items of each key, at most 62. Default 3
  -mode NAME     execute, execute_per_item, execute_tx, execute_atomic, or all. Default all
  -database sqlite:PATH | postgres://USER@HOST/DB
                 where the claims are. Default: a temporary SQLite file. PostgreSQL: the URL's role migrates,
                 everything else runs as the plain role confirmexec_storm, which is made, and gets a new
                 password, at every run
  -timeout D     stop after this time and report how far it got. Default 30m
  -json          one JSON object a line for each mode, and then their sum, and nothing else on stdout

Exit status: 0 when each item of each key was executed once, and one confirm of each key was answered "executed"
and the others "replayed" or "in_progress"; 1 when not, or when it was stopped; 2 for a usage error.
`

// options are the command line.
type options struct {
	processes, goroutines int
	keys, items           int
	modes                 []mode
	database              string // "": a temporary SQLite file
	timeout               time.Duration
	json                  bool
}

// usageError is a command line that cannot be followed.
type usageError string

func (e usageError) Error() string { return string(e) }

// parseOptions returns flag.ErrHelp or a usageError when there is nothing to do.
func parseOptions(args []string) (*options, error) {
	o := &options{}
	var name string
	flags := flag.NewFlagSet("storm", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&o.processes, "processes", 8, "")
	flags.IntVar(&o.goroutines, "goroutines", 25, "")
	flags.IntVar(&o.keys, "keys", 100, "")
	flags.IntVar(&o.items, "items", 3, "")
	flags.StringVar(&name, "mode", allModes, "")
	flags.StringVar(&o.database, "database", "", "")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Minute, "")
	flags.BoolVar(&o.json, "json", false, "")
	if err := flags.Parse(args); err == flag.ErrHelp { //nolint:errorlint // Parse returns it as it is
		return nil, err
	} else if err != nil {
		return nil, usageError(err.Error())
	}
	if flags.NArg() > 0 {
		return nil, usageError("there are only flags, and no argument " + flags.Arg(0))
	}
	if o.modes = modesNamed(name); o.modes == nil {
		return nil, usageError(fmt.Sprintf("-mode %q is none of %s", name, strings.Join(modeNames(), ", ")))
	}
	return o, o.check()
}

func (o *options) check() error {
	for name, n := range map[string]int{
		"processes": o.processes, "goroutines": o.goroutines, "keys": o.keys, "items": o.items,
	} {
		if n < 1 {
			return usageError("-" + name + " must be at least 1")
		}
	}
	switch {
	case o.items > broker.MaxTxItems:
		return usageError(fmt.Sprintf("-items must be at most %d", broker.MaxTxItems))
	case o.timeout <= 0:
		return usageError("-timeout must be more than 0")
	case o.database != "" && !isPostgres(o.database) && !isSQLite(o.database):
		return usageError("-database wants sqlite:PATH or postgres://USER@HOST/DB")
	}
	return nil
}
