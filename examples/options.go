package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const usage = `Confirm and execute, shown at work.

Usage, from the repository's root (flags may stand anywhere):

  go run ./examples [flags]                walk through all scenarios
  go run ./examples [flags] SCENARIO ...   walk through these
  go run ./examples list                   name the scenarios
  go run ./examples dispatch [NAME ...]    the Agent contract: two processes over mutual TLS
  go run ./examples dispatch list          name its scenarios

By hand:

  go run ./examples propose < proposal.json       mint a key; prints the confirmation
  go run ./examples confirm < confirmation.json   execute it; prints the result
  go run ./examples lookup KEY                    print how a key stands
  go run ./examples cancel KEY                    make sure that a key never runs
  go run ./examples unresolved                    list the keys that need somebody
  go run ./examples resolve KEY                   settle one by reading the registry's file
             ("cancel" and "resolve" without a key are scenarios)

Flags:

  -database sqlite:PATH | postgres://USER@HOST/DB
             where the claims are. By hand: sqlite:./confirmexec.db. Scenarios: a temporary file.
             PostgreSQL: the URL's role migrates, everything else runs as the plain role
             confirmexec_examples, which is made, and gets a new password, at every run.
  -ledger FILE
             where the registry writes one JSON object for each call that it gets.
             By hand: ./registry.jsonl. Scenarios: a temporary file; one that is named here is kept.
  -json      (scenarios) one JSON object a line for each scenario, and nothing else on stdout
  -diagrams  (dispatch) Markdown with a sequence diagram of what happened in each scenario
  -tenant NAME
             (by hand) whose operation it is. Default demo-firm.
  -by NAME   (resolve) who stands for the verdict. Default: the user of this system.
  -limit N   (unresolved) how many keys, 1 to 1000. Default 100.
  -after KEY (unresolved) go on after this key, the last one of the page before
  -version V (confirm) the version that the surface has now. Default: the confirmation's own.
  -slow D    (confirm) how long the registry takes for an item, such as 30s: time to kill it
  -lease D   (confirm) how long a confirm may hold its key without a word. Default 1m.

Exit status: 0 when all is as expected; 1 when a scenario differs, a call is refused, or an item
needs attention; 2 for a usage error.
`

// options are the command line.
type options struct {
	database, ledger, tenant, version string
	by, after                         string
	limit                             int
	json, diagrams                    bool
	slow, lease                       time.Duration
	args                              []string        // what is not a flag, in order
	given                             map[string]bool // the flags that were given
}

// usageError is a command line that cannot be followed.
type usageError string

func (e usageError) Error() string { return string(e) }

// parseOptions accepts flags before, between and after the arguments. The error is flag.ErrHelp or a usageError.
func parseOptions(args []string) (*options, error) {
	o := &options{given: map[string]bool{}}
	flags := o.flagSet()
	for {
		if err := flags.Parse(args); err == flag.ErrHelp { //nolint:errorlint // Parse returns it as it is
			return nil, err
		} else if err != nil {
			return nil, usageError(err.Error())
		}
		if flags.NArg() == 0 {
			break
		}
		o.args, args = append(o.args, flags.Arg(0)), flags.Args()[1:]
	}
	flags.Visit(func(f *flag.Flag) { o.given[f.Name] = true })
	if o.lease <= 0 || o.slow < 0 {
		return nil, usageError("-lease must be more than 0, and -slow at least 0")
	}
	if o.limit < 1 || o.limit > 1000 {
		return nil, usageError("-limit must be from 1 to 1000")
	}
	return o, nil
}

func (o *options) flagSet() *flag.FlagSet {
	flags := flag.NewFlagSet("examples", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.database, "database", "", "")
	flags.StringVar(&o.ledger, "ledger", "", "")
	flags.StringVar(&o.tenant, "tenant", "demo-firm", "")
	flags.StringVar(&o.version, "version", "", "")
	flags.StringVar(&o.by, "by", "", "")
	flags.StringVar(&o.after, "after", "", "")
	flags.IntVar(&o.limit, "limit", 100, "")
	flags.BoolVar(&o.json, "json", false, "")
	flags.BoolVar(&o.diagrams, "diagrams", false, "")
	flags.DurationVar(&o.slow, "slow", 0, "")
	flags.DurationVar(&o.lease, "lease", time.Minute, "")
	return flags
}

// command is what a command line asks for.
type command func(ctx context.Context, o *options, s streams) error

// command finds the command, and refuses arguments and flags that it does not take.
func (o *options) command() (command, error) {
	name, key := "", len(o.args) > 1 && !isScenario(o.args[1])
	if len(o.args) > 0 {
		name = o.args[0]
	}
	switch {
	case name == "dispatch":
		return dispatchWalk, o.takesDispatch()
	case name == "list":
		return list, o.takes(0)
	case name == "propose":
		return propose, o.takes(0, "database", "tenant")
	case name == "confirm":
		return confirm, o.takes(0, "database", "ledger", "tenant", "version", "slow", "lease")
	case name == "lookup":
		return lookup, o.takes(1, "database", "tenant")
	case name == "cancel" && key:
		return cancel, o.takes(1, "database", "tenant")
	case name == "unresolved":
		return unresolved, o.takes(0, "database", "tenant", "limit", "after")
	case name == "resolve" && key:
		return resolve, o.takes(1, "database", "ledger", "tenant", "by")
	}
	for _, name := range o.args {
		if !isScenario(name) {
			return nil, usageError(fmt.Sprintf("%q is neither a command nor a scenario", name))
		}
	}
	return walk, o.takes(len(o.args)-1, "database", "ledger", "json")
}

// takes refuses another number of arguments than n, and flags other than these.
func (o *options) takes(n int, flags ...string) error {
	for name := range o.given {
		if !slices.Contains(flags, name) {
			return usageError(fmt.Sprintf("-%s does not go with %q", name, strings.Join(o.args, " ")))
		}
	}
	if len(o.args) > 0 && len(o.args)-1 != n {
		takes := map[bool]string{true: "no argument", false: "one KEY"}[n == 0]
		return usageError(o.args[0] + " takes " + takes)
	}
	return nil
}
