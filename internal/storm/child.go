package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// setup is what a child is told first. The parent and a child talk in JSON lines, on the child's stdin and stdout. The
// child gets a setup and says true when the database is open. Then, for each key, it gets the confirmation, says true
// when all its goroutines stand at the barrier, gets true, releases them, and answers with a report. It ends when its
// stdin does.
type setup struct {
	Place      place
	Mode       string
	Goroutines int
}

// childProcess is the main of a process that confirms.
func childProcess(ctx context.Context, s streams) (err error) {
	in, out := json.NewDecoder(s.in), json.NewEncoder(s.out)
	var with setup
	if err := in.Decode(&with); err != nil {
		return fmt.Errorf("read the setup: %w", err)
	}
	found := modesNamed(with.Mode)
	if len(found) != 1 {
		return fmt.Errorf("there is no mode %q", with.Mode)
	}
	l, err := openLedger(with.Place.Ledger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	db, err := open(ctx, with.Place, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	if err := out.Encode(true); err != nil {
		return fmt.Errorf("say that it is open: %w", err)
	}
	c := child{mode: found[0], target: db, goroutines: with.Goroutines, in: in, out: out}
	return c.serve(ctx)
}

// child confirms what its parent says.
type child struct {
	mode       mode
	target     target
	goroutines int
	in         *json.Decoder
	out        *json.Encoder
}

// serve confirms key after key until the parent closes the pipe.
func (c *child) serve(ctx context.Context) error {
	for {
		var key contract.OperationConfirmation
		err := c.in.Decode(&key)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a confirmation: %w", err)
		}
		if err := c.confirm(ctx, key); err != nil {
			return err
		}
	}
}

// confirm has all goroutines confirm the key when the parent says so, and reports.
func (c *child) confirm(ctx context.Context, key contract.OperationConfirmation) error {
	release := c.line(ctx, key)
	if err := c.out.Encode(true); err != nil {
		return fmt.Errorf("say that all are ready: %w", err)
	}
	var now bool
	if err := c.in.Decode(&now); err != nil {
		return fmt.Errorf("wait for the release: %w", err)
	}
	if err := c.out.Encode(reportOn(key, release())); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// told is how a confirm was answered.
type told struct {
	result *contract.OperationResult
	err    error
	took   time.Duration
}

// line lines the goroutines up at a barrier. release lets them go, waits for all and returns their answers.
func (c *child) line(ctx context.Context, key contract.OperationConfirmation) (release func() []told) {
	answers := make([]told, c.goroutines)
	barrier := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(c.goroutines)
	for i := range answers {
		done.Go(func() {
			ready.Done()
			<-barrier
			answers[i] = c.tap(ctx, key)
		})
	}
	ready.Wait()
	return func() []told {
		close(barrier)
		done.Wait()
		return answers
	}
}

// tap is one tap on Confirm: the service reads the surface again, which has not moved, and executes.
func (c *child) tap(ctx context.Context, key contract.OperationConfirmation) told {
	current := contract.CurrentSurfaceState{SurfaceKey: key.SurfaceKey, ContractVersion: key.ContractVersion}
	start := time.Now()
	res, err := c.mode.confirm(c.target, ctx, broker.Request{Tenant: tenant, Confirmation: key, Current: current})
	return told{res, err, time.Since(start)}
}
