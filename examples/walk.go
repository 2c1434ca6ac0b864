package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"
)

func isScenario(name string) bool {
	return slices.ContainsFunc(scenarios, func(sc scenario) bool { return sc.name == name })
}

// list names the scenarios.
func list(_ context.Context, _ *options, s streams) error {
	for _, sc := range scenarios {
		fmt.Fprintf(s.out, "%-24s%s\n", sc.name, sc.title)
	}
	return nil
}

// walk runs the scenarios that were asked for, or all.
func walk(ctx context.Context, o *options, s streams) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt) // so that what was made is removed
	defer stop()
	w, err := newWalk(ctx, o, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	w.introduce()
	return w.runAll(ctx, o.chosen())
}

// chosen are the scenarios that the command line names, or all, in the order of the walk.
func (o *options) chosen() []scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(sc scenario) bool {
		return len(o.args) > 0 && !slices.Contains(o.args, sc.name)
	})
}

// runAll runs the scenarios one after the other. The error is errTold when one differs.
func (w *walker) runAll(ctx context.Context, chosen []scenario) error {
	differ := 0
	for i, sc := range chosen {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted after %d scenarios: %w", i, err)
		}
		if !w.run(ctx, sc) {
			differ++
		}
	}
	verdict := "all as expected"
	if differ > 0 {
		verdict = fmt.Sprintf("%d DIFFER from what is expected", differ)
	}
	fmt.Fprintf(w.notes, "\nScenarios: %d, %s.\n", len(chosen), verdict)
	if differ > 0 {
		return errTold
	}
	return nil
}

// introduce says who takes part.
func (w *walker) introduce() {
	kept := "removed at the end"
	if w.keepLedger {
		kept = "kept"
	}
	fmt.Fprintf(w.notes, "Counsel's service  process %d\n", os.Getpid())
	fmt.Fprintf(w.notes, "The registry       process %d at %s\n", w.registry.pid, w.registry.url)
	fmt.Fprintf(w.notes, "Its ledger         %s (%s)\n", w.ledger, kept)
	fmt.Fprintf(w.notes, "The claims         %s\n", w.db.about())
	if role := w.db.role(); role != "" {
		fmt.Fprintf(w.notes, "The role           %s\n", role)
	}
	for _, warning := range w.db.warnings() {
		fmt.Fprintf(w.notes, "Warning            %s\n", warning)
	}
}

// walker is everything that a walk needs.
type walker struct {
	db       database
	brokers  *brokers
	registry *registryClient
	ledger   string
	closers  []func() error

	json, keepLedger bool
	out              io.Writer // reports
	notes            io.Writer // everything else
}

func newWalk(ctx context.Context, o *options, s streams) (w *walker, err error) {
	w = &walker{ledger: o.ledger, keepLedger: o.ledger != "", json: o.json, out: s.out, notes: s.out}
	if o.json {
		w.notes = s.err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	dir, err := os.MkdirTemp("", "confirmexec-examples-")
	if err != nil {
		return w, fmt.Errorf("make a temporary folder: %w", err)
	}
	w.closers = append(w.closers, func() error { return os.RemoveAll(dir) })
	url := o.database
	if url == "" {
		url = "sqlite:" + filepath.Join(dir, "confirmexec.db")
	}
	if w.ledger == "" {
		w.ledger = filepath.Join(dir, "registry.jsonl")
	}
	if w.db, err = openDatabase(ctx, url); err != nil {
		return w, err
	}
	w.closers = append(w.closers, w.db.close)
	if w.brokers, err = newBrokers(w.db); err != nil {
		return w, err
	}
	registry, stop, err := startRegistry(ctx, w.ledger, s.err)
	if err != nil {
		return w, err
	}
	w.registry = registry
	w.closers = append(w.closers, stop)
	return w, nil
}

// close ends and removes what was made, in reverse order.
func (w *walker) close() error {
	var errs []error
	for _, end := range slices.Backward(w.closers) {
		errs = append(errs, end())
	}
	w.closers = nil
	return errors.Join(errs...)
}

// errUndecided is the answer of a scenario that has not come to its last confirm.
var errUndecided = errors.New("the scenario did not come to its last confirm")

// scenarioTimeout is when a scenario that waits for what does not come is given up.
const scenarioTimeout = 2 * time.Minute

// run makes one scenario, tells what came of it, and says whether it was as expected.
func (w *walker) run(ctx context.Context, sc scenario) bool {
	s := &stage{
		report: report{name: sc.name, title: sc.title, told: told{err: errUndecided}},
		db:     w.db, registry: w.registry, brokers: w.brokers, keys: map[uuid.UUID]bool{},
	}
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	err := sc.run(ctx, s)
	s.expect(err == nil, "the scenario could not be carried out: %v", err)
	s.calls, err = s.countCalls(w.ledger)
	s.expect(err == nil, "the calls could not be counted: %v", err)
	s.differences = append(s.differences, compare(sc.want, &s.report)...)
	w.tell(&s.report)
	return len(s.differences) == 0
}

func (w *walker) tell(r *report) {
	if !w.json {
		r.print(w.out)
		return
	}
	line, err := r.line()
	if err != nil {
		fmt.Fprintf(w.notes, "%s: %v\n", r.name, err)
		return
	}
	fmt.Fprintf(w.out, "%s\n", line)
	for _, d := range r.differences {
		fmt.Fprintf(w.notes, "%s differs: %s\n", r.name, d)
	}
}
