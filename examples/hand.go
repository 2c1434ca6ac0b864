package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// propose reads a proposal and prints the confirmation to show to the person who decides.
func propose(ctx context.Context, o *options, s streams) error {
	data, err := readInput(s.in)
	if err != nil {
		return err
	}
	p, err := contract.DecodeProposal(data, contract.Limits{})
	if err != nil {
		return err
	}
	return o.withBroker(ctx, s.err, func(b confirmer) error {
		c, err := b.Propose(ctx, o.tenant, p)
		if err != nil {
			return err
		}
		fmt.Fprintln(s.err, "Proposed. Keep this as confirmation.json, and: go run ./examples confirm < confirmation.json")
		return printJSON(s.out, c)
	})
}

// confirm executes a confirmation with a registry that is a file, and prints the result.
func confirm(ctx context.Context, o *options, s streams) (err error) {
	data, err := readInput(s.in)
	if err != nil {
		return err
	}
	c, err := contract.DecodeConfirmation(data, contract.Limits{})
	if err != nil {
		return err
	}
	ledger, err := openLedger(o.ledgerByHand())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.close()) }()
	return o.withBroker(ctx, s.err, func(b confirmer) error {
		req := broker.Request{Tenant: o.tenant, Confirmation: c, Current: o.current(c, s.err)}
		res, err := b.Execute(ctx, req, o.executor(ledger, c.IdempotencyKey, s.err))
		if err != nil {
			return err
		}
		return tellResult(s, res, err)
	})
}

// tellResult prints a result, and in words how it came. The error is errTold when an item needs attention.
func tellResult(s streams, res *contract.OperationResult, err error) error {
	fmt.Fprintf(s.err, "Answer: %s. %s\n", broker.AnswerOf(res, err), res.Summary())
	return printResult(s, res)
}

// printResult prints a result. The error is errTold when an item needs attention.
func printResult(s streams, res *contract.OperationResult) error {
	if err := printJSON(s.out, res); err != nil {
		return err
	}
	if res.Err() != nil {
		return errTold
	}
	return nil
}

// current is the surface as it is said to be now. A service reads it again; by hand it is a flag, so that a drift can
// be tried.
func (o *options) current(c contract.OperationConfirmation, notes io.Writer) contract.CurrentSurfaceState {
	if !o.given["version"] {
		fmt.Fprintf(notes, "The surface is taken to be at %s still; -version says otherwise.\n", c.ContractVersion)
		return contract.CurrentSurfaceState{SurfaceKey: c.SurfaceKey, ContractVersion: c.ContractVersion}
	}
	return contract.CurrentSurfaceState{SurfaceKey: c.SurfaceKey, ContractVersion: o.version}
}

// executor enters each item in the ledger, and then takes its time before it says so.
func (o *options) executor(l *ledger, key uuid.UUID, notes io.Writer) broker.Executor {
	return func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
		pid := os.Getpid()
		err := l.append(entry{
			Scenario: "by-hand", Key: key, ItemID: it.ID, PID: pid, CallerPID: pid, ItemKey: it.IdempotencyKey, Answer: "added",
		})
		if err != nil {
			return broker.Outcome{}, err // how much of the line was written is not known
		}
		if o.slow > 0 {
			fmt.Fprintf(notes, "Entered item %d in %s; the answer takes %s. Kill process %d to see what a crash leaves.\n",
				it.Index+1, o.ledgerByHand(), o.slow, pid)
		}
		answered := time.NewTimer(o.slow)
		defer answered.Stop()
		select {
		case <-answered.C:
			return broker.Applied("entry/" + it.IdempotencyKey.String()), nil
		case <-ctx.Done(): // the lease is over
			return broker.Outcome{}, ctx.Err()
		}
	}
}

// lookup prints how a key stands.
func lookup(ctx context.Context, o *options, s streams) error {
	key, err := o.key()
	if err != nil {
		return err
	}
	return o.withBroker(ctx, s.err, func(b confirmer) error {
		st, err := b.Lookup(ctx, o.tenant, key)
		if err != nil {
			return err
		}
		return printJSON(s.out, statusOf(st))
	})
}

// status is how a key stands, as it is printed.
type status struct {
	Phase          broker.Phase                   `json:"phase"`
	Confirmation   contract.OperationConfirmation `json:"confirmation"`
	Result         *contract.OperationResult      `json:"result"`
	Contradictions []contradiction                `json:"contradictions,omitempty"`
}

type contradiction struct {
	Attempt uuid.UUID                     `json:"attempt"`
	Said    contract.OperationItemOutcome `json:"said"`
}

func statusOf(st *broker.Status) status {
	s := status{Phase: st.Phase, Confirmation: st.Confirmation, Result: st.Result}
	for _, c := range st.Contradictions {
		s.Contradictions = append(s.Contradictions, contradiction(c))
	}
	return s
}

// cancel makes sure that a key never runs, and prints the result that its late confirm will get.
func cancel(ctx context.Context, o *options, s streams) error {
	key, err := o.key()
	if err != nil {
		return err
	}
	return o.withBroker(ctx, s.err, func(b confirmer) error {
		res, err := b.Cancel(ctx, o.tenant, key)
		if err != nil {
			return err
		}
		if !res.Cancelled() {
			fmt.Fprint(s.err, "Not cancelled: it was confirmed before. ")
			return errors.Join(errTold, tellResult(s, res, nil))
		}
		fmt.Fprintln(s.err, res.Summary())
		return printJSON(s.out, res)
	})
}

// key is the command's argument.
func (o *options) key() (uuid.UUID, error) {
	return parseKey(o.args[1])
}

func parseKey(text string) (uuid.UUID, error) {
	key, err := uuid.Parse(text)
	if err != nil {
		return key, usageError("KEY must be a confirmation's idempotency_key, such as 0198c0de-7a11-7000-8000-00000000c0de")
	}
	return key, nil
}

func (o *options) ledgerByHand() string {
	if o.ledger == "" {
		return "registry.jsonl"
	}
	return o.ledger
}

// withBroker opens the database for one call.
func (o *options) withBroker(ctx context.Context, notes io.Writer, call func(confirmer) error) (err error) {
	url := o.database
	if url == "" {
		url = "sqlite:confirmexec.db"
	}
	db, err := openDatabase(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	for _, warning := range db.warnings() {
		fmt.Fprintf(notes, "Warning: %s\n", warning)
	}
	b, err := db.broker(&broker.Config{Lease: o.lease})
	if err != nil {
		return err
	}
	return call(b)
}

// readInput reads stdin up to a little more than a document may be long.
func readInput(in io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, int64(contract.DefaultLimits().Body)+1))
	if err != nil {
		return nil, fmt.Errorf("read stdin: %w", err)
	}
	return bytes.TrimSpace(data), nil
}

// printJSON prints a document as the contract writes it, indented.
func printJSON(w io.Writer, doc any) error {
	var compact, indented bytes.Buffer
	encoder := json.NewEncoder(&compact)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(doc); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	if err := json.Indent(&indented, compact.Bytes(), "", "  "); err != nil {
		return fmt.Errorf("indent the answer: %w", err)
	}
	_, err := w.Write(indented.Bytes())
	return err
}

// errorMargin is where the right-hand side of an error begins.
const errorMargin = "         "

// tellError tells an error: the reason, the code, and what was wrong and what to do.
func tellError(w io.Writer, err error) {
	var invalid *contract.InvalidError
	var conflict *contract.ConflictError
	f, refused := contract.FailureOf(err)
	switch {
	case errors.As(err, &invalid):
		where := invalid.Path
		if where == "" {
			where = "the whole document"
		}
		fmt.Fprintf(w, "error:   %s\ncode:    %s\nwhere:   %s\nwhat:    %s\n",
			f.Reason, f.Code, where, wrap(invalid.Problem, errorMargin))
	case refused:
		fmt.Fprintf(w, "error:   %s\ncode:    %s\nwhat:    %s\n", f.Reason, f.Code, wrap(f.Message, errorMargin))
		if errors.As(err, &conflict) && len(conflict.Drift) > 0 {
			fmt.Fprintf(w, "drift:   %s\n", wrap(conflict.Drift.String(), errorMargin))
		}
		if f.Cause != nil {
			fmt.Fprintf(w, "cause:   %s\n", wrap(f.Cause.Error(), errorMargin))
		}
	default:
		fmt.Fprintf(w, "error:   %s\n", wrap(err.Error(), errorMargin))
	}
}
