package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/confirmexec/confirmexec/examples/dispatch"
)

// dispatchWalk walks through the Agent contract: see package dispatch.
func dispatchWalk(ctx context.Context, o *options, s streams) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt) // so that what was made is removed
	defer stop()
	if len(o.args) == 2 && o.args[1] == "list" {
		dispatch.List(s.out)
		return nil
	}
	w := dispatch.Options{Names: o.args[1:], JSON: o.json, Diagrams: o.diagrams, Out: s.out, Notes: s.out}
	if o.json || o.diagrams {
		w.Notes = s.err
	}
	switch {
	case isPostgres(o.database):
		plain, err := preparePostgres(ctx, o.database)
		if err != nil {
			return err
		}
		w.Database = plain
	case o.database != "":
		return usageError("-database wants postgres://USER@HOST/DB here; without it each process has a file of its own")
	}
	err := dispatch.Walk(ctx, w)
	if errors.Is(err, dispatch.ErrDiffers) {
		return errTold
	}
	return err
}

// takesDispatch refuses what the walk through the Agent contract does not take.
func (o *options) takesDispatch() error {
	for _, name := range o.args[1:] {
		if !dispatch.IsScenario(name) && (name != "list" || len(o.args) > 2) {
			return usageError(fmt.Sprintf("%q is not a scenario of dispatch", name))
		}
	}
	return o.takes(len(o.args)-1, "database", "json", "diagrams")
}

// dispatchProcess is a dispatcher or an agent.
func dispatchProcess(ctx context.Context, _ []string, s streams) error {
	return dispatch.Process(ctx, s.in, s.out)
}
