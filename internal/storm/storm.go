package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/confirmexec/confirmexec/contract"
)

// countTimeout bounds the count of the effects, which is also made after an interrupt.
const countTimeout = 2 * time.Minute

// storm runs every mode and reports. The error is errTold when something is not as promised.
func storm(ctx context.Context, o *options, s streams) error {
	dir, err := os.MkdirTemp("", "confirmexec-storm-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	all, err := stormIn(ctx, o, s, dir)
	keepOrRemove(dir, s, all)
	return err
}

// stormIn is storm with its files in dir.
func stormIn(ctx context.Context, o *options, s streams, dir string) ([]*tally, error) {
	p := place{Database: o.database}
	if p.Database == "" {
		p.Database = sqlitePrefix + filepath.Join(dir, "confirm.db")
	}
	if err := prepare(ctx, o, &p); err != nil {
		return nil, err
	}
	db, err := openAsParent(ctx, p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.close() }() // all is counted by then
	announce(o.text(s), o, p, db)
	all, err := runModes(ctx, o, s, db, dir, p)
	return all, conclude(o, s, all, err)
}

func openAsParent(ctx context.Context, p place) (database, error) {
	p.Connections = 1
	return open(ctx, p, nil)
}

// keepOrRemove removes the folder, unless it holds the evidence of a broken promise.
func keepOrRemove(dir string, s streams, all []*tally) {
	for _, t := range all {
		if t.doubles() > 0 {
			fmt.Fprintf(s.err, "storm: the files are kept in %s\n", dir)
			return
		}
	}
	_ = os.RemoveAll(dir) // it is in the folder for what may be lost
}

// runModes runs mode after mode until one does not come to its end. What it has of that one is told too.
func runModes(ctx context.Context, o *options, s streams, db database, dir string, p place) ([]*tally, error) {
	var all []*tally
	for _, m := range o.modes {
		p.Run, p.Ledger = rand.Text(), filepath.Join(dir, m.name+".ledger")
		r := modeRun{o: o, mode: m, db: db, place: p, progress: newProgress(s.err, m.name, o.keys)}
		t, err := r.run(ctx)
		all = append(all, t)
		if err != nil {
			return all, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return all, nil
}

// modeRun is the storm in one mode.
type modeRun struct {
	o        *options
	mode     mode
	db       database
	place    place
	progress *progress
}

// run confirms all keys and counts. The tally is also there after an error, of the keys until then.
func (r *modeRun) run(ctx context.Context) (*tally, error) {
	t := newTally(r.mode.name)
	err := r.confirmAll(ctx, t)
	if stopped := context.Cause(ctx); err != nil && stopped != nil {
		err = fmt.Errorf("stopped after %d of %d keys: %w", t.keys, r.o.keys, stopped)
	}
	r.progress.end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTimeout)
	defer cancel()
	happened, countErr := r.count(ctx)
	t.happened = happened
	return t, errors.Join(err, countErr)
}

// confirmAll confirms key after key.
func (r *modeRun) confirmAll(ctx context.Context, t *tally) error {
	c, err := startCrew(ctx, r.o.processes, setup{Place: r.place, Mode: r.mode.name, Goroutines: r.o.goroutines})
	if err != nil {
		return err
	}
	start := time.Now()
	for t.keys < r.o.keys {
		if err := r.confirmOne(ctx, c, t); err != nil {
			return c.abandon(err)
		}
		t.elapsed = time.Since(start)
		r.progress.tell(t.keys)
	}
	return c.end()
}

func (r *modeRun) confirmOne(ctx context.Context, c *crew, t *tally) error {
	key, err := r.db.propose(ctx, proposal(r.o.items))
	if err != nil {
		return fmt.Errorf("propose: %w", err)
	}
	reports, err := c.confirm(key)
	if err != nil {
		return err
	}
	t.add(key.IdempotencyKey.String(), reports)
	return nil
}

func (r *modeRun) count(ctx context.Context) (counts, error) {
	if r.mode.effects == inTable {
		return r.db.rows(ctx, r.place.Run)
	}
	return readLedger(r.place.Ledger)
}

// proposal is an operation with so many items.
func proposal(items int) contract.OperationProposal {
	p := contract.OperationProposal{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}
	for i := range items {
		id := strconv.Itoa(i + 1)
		params := json.RawMessage(`{"name":"forum ` + id + `"}`)
		p.Items = append(p.Items, contract.Item{ID: id, Op: "add_forum", Params: params})
	}
	return p
}
