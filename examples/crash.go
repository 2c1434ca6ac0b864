package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// crash kills a process between its claim and the completion. The lease is one second. On a machine that is too busy to
// ask within it, that part of the scenario proves nothing: it is made again with a new key and a longer one.
func crash(ctx context.Context, s *stage) error {
	for lease := time.Second; ; lease *= 2 {
		s.keys, s.story, s.differences = map[uuid.UUID]bool{}, nil, nil
		err := s.crashOnce(ctx, lease)
		if !errors.Is(err, errLate) || lease >= 8*time.Second {
			return err
		}
	}
}

var errLate = errors.New("the lease was over before what was to happen within it")

// crashOnce returns errLate when nothing could be asked within the lease.
func (s *stage) crashOnce(ctx context.Context, lease time.Duration) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	at := place{c.IdempotencyKey, mumbai}
	if err := s.registry.setFault(ctx, at, fault{Hold: true}); err != nil {
		return err
	}
	order := confirmOrder{s.db.url(), s.registry.url, s.name, firmA, lease, c}
	killed, err := s.killWhileHeld(ctx, order, at)
	if err != nil {
		return err
	}
	within := s.confirm(ctx, s.impatient, c)
	if within.word() == "ambiguous" {
		return errLate
	}
	s.expectWord(within, "in_progress", "a confirm within the lease")
	if err := s.awaitPhase(ctx, c, broker.Unresolved); err != nil {
		return err
	}
	s.decide(s.confirm(ctx, s.broker, c))
	s.expect(s.told.result != nil && s.told.result.Recovery() != nil, "there is no recovery instruction")
	s.say(`The service is a process of its own this time. It has claimed the key and waits for the registry, which has
		added the forum but not answered yet, when it is killed (%s). Within the lease of %s a confirm is answered %s.
		After it the broker does not know whether the forum was added, so it says so, and does not call again: the
		ledger shows the one call.`, killed, lease, within.word())
	return nil
}

// pollEvery is how often the end of a lease is looked for.
const pollEvery = 50 * time.Millisecond

// confirmOrder is what the process that is going to be killed is told, on its stdin.
type confirmOrder struct {
	Database     string
	Registry     string
	Scenario     string
	Firm         string
	Lease        time.Duration
	Confirmation contract.OperationConfirmation
}

// killWhileHeld starts a process that confirms, kills it while the registry holds its answer, and says how it died.
func (s *stage) killWhileHeld(ctx context.Context, order confirmOrder, at place) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	input, err := json.Marshal(order)
	if err != nil {
		return "", fmt.Errorf("encode the order: %w", err)
	}
	alive, ended := context.WithCancel(ctx)
	defer ended()
	var output bytes.Buffer
	cmd := exec.CommandContext(alive, self, "confirm-process")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &output, &output
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start a process that confirms: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended is in its state
		ended()
	}()
	err = s.registry.awaitHeld(alive, at)
	kill := cmd.Process.Kill()
	<-done
	if err != nil && cmd.ProcessState.Success() {
		return "", errLate
	}
	if err != nil {
		return "", fmt.Errorf("the process that confirms ended by itself (%s): %s", cmd.ProcessState, output.Bytes())
	}
	if kill != nil && !errors.Is(kill, os.ErrProcessDone) {
		return "", fmt.Errorf("kill the process that confirms: %w", kill)
	}
	s.expect(wasKilled(cmd.ProcessState), "the process was not killed by SIGKILL: %s", cmd.ProcessState)
	return cmd.ProcessState.String(), nil
}

// confirmProcess confirms as ordered. It is meant to be killed meanwhile.
func confirmProcess(ctx context.Context, _ []string, s streams) (err error) {
	var order confirmOrder
	if err := json.NewDecoder(s.in).Decode(&order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	db, err := connect(ctx, order.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	b, err := db.broker(&broker.Config{Lease: order.Lease})
	if err != nil {
		return err
	}
	r, c := newRegistryClient(order.Registry), order.Confirmation
	current, err := r.surface(ctx)
	if err != nil {
		return err
	}
	req := broker.Request{Tenant: order.Firm, Confirmation: c, Current: current}
	_, err = b.Execute(ctx, req, r.executor(order.Scenario, c.IdempotencyKey))
	return err
}

// awaitPhase polls until the key stands so. Only the database knows when a lease is over.
func (s *stage) awaitPhase(ctx context.Context, c contract.OperationConfirmation, want broker.Phase) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		st, err := s.broker.Lookup(ctx, firmA, c.IdempotencyKey)
		if err != nil {
			return fmt.Errorf("look the key up: %w", err)
		}
		if st.Phase == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the key is still %s: %w", st.Phase, ctx.Err())
		case <-tick.C:
		}
	}
}
