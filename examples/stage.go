package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// The tenants of the walk, and the forums that counsel adds.
const (
	firmA, firmB, firmC    = "firm-a", "firm-b", "firm-c"
	mumbai, delhi, chennai = "nclt-mumbai", "nclt-delhi", "nclt-chennai"
)

// onCall stands for the verdicts of the walk.
const onCall = "on-call"

// matter is the surface of the matter in the database, which nothing moves.
var matter = contract.CurrentSurfaceState{SurfaceKey: surfaceKey, ContractVersion: "v1"}

var forumNames = map[string]string{mumbai: "NCLT Mumbai", delhi: "NCLT Delhi", chennai: "NCLT Chennai"}

// stage is what a scenario works with. Its steps write the report.
type stage struct {
	report
	db       database
	registry *registryClient
	*brokers
	keys map[uuid.UUID]bool // of this run, to count the registry's calls by
}

// brokers are the ones that the scenarios confirm through, all over the same database.
type brokers struct {
	broker     confirmer // as a service would have it, but patient: a busy machine takes its time
	impatient  confirmer // does not wait for a first confirm that is running
	acceptsAny confirmer // executes keys that were minted elsewhere
	forgetful  confirmer // purges what was settled a millisecond ago
}

func newBrokers(db database) (*brokers, error) {
	var b brokers
	for _, want := range []struct {
		to  *confirmer
		cfg broker.Config
	}{
		{&b.broker, broker.Config{ReplayWait: time.Minute}},
		{&b.impatient, broker.Config{ReplayWait: -1}},
		{&b.acceptsAny, broker.Config{AcceptUnmintedKeys: true}},
		{&b.forgetful, broker.Config{PayloadRetention: time.Millisecond}},
	} {
		var err error
		if *want.to, err = db.broker(&want.cfg); err != nil {
			return nil, err
		}
	}
	return &b, nil
}

// told is how a confirm was answered.
type told struct {
	result *contract.OperationResult
	err    error
}

// word is the answer in one word.
func (t told) word() string { return broker.AnswerOf(t.result, t.err) }

// say adds to the report what happened.
func (s *stage) say(format string, args ...any) {
	s.story = append(s.story, fmt.Sprintf(format, args...))
}

// note adds a line to the report.
func (s *stage) note(name, format string, args ...any) {
	s.notes = append(s.notes, note{name, fmt.Sprintf(format, args...)})
}

// expect reports a difference unless ok.
func (s *stage) expect(ok bool, format string, args ...any) {
	if !ok {
		s.differences = append(s.differences, fmt.Sprintf(format, args...))
	}
}

// expectWord reports a difference unless a step on the way was answered so.
func (s *stage) expectWord(t told, want, step string) {
	s.expect(t.word() == want, "%s: the answer is %s, not %s (%v)", step, t.word(), want, t.err)
}

// decide makes t the report's answer.
func (s *stage) decide(t told) { s.told = t }

// proposal is for adding forums on the surface as the proposer saw it.
func proposal(seen contract.CurrentSurfaceState, ids ...string) contract.OperationProposal {
	p := contract.OperationProposal{SurfaceKey: seen.SurfaceKey, ContractVersion: seen.ContractVersion}
	for _, id := range ids {
		params := json.RawMessage(`{"name":"` + forumNames[id] + `"}`)
		p.Items = append(p.Items, contract.Item{ID: id, Op: "add_forum", Params: params})
	}
	return p
}

// propose proposes to firm A to add forums on the surface as it is now.
func (s *stage) propose(ctx context.Context, ids ...string) (contract.OperationConfirmation, error) {
	now, err := s.registry.surface(ctx)
	if err != nil {
		return contract.OperationConfirmation{}, err
	}
	return s.proposeOn(ctx, firmA, now, ids...)
}

func (s *stage) proposeOn(ctx context.Context, firm string, seen contract.CurrentSurfaceState, ids ...string) (
	contract.OperationConfirmation, error,
) {
	c, err := s.broker.Propose(ctx, firm, proposal(seen, ids...))
	if err != nil {
		return c, fmt.Errorf("propose: %w", err)
	}
	s.keys[c.IdempotencyKey] = true
	return c, nil
}

// confirm is one tap on Confirm by counsel of firm A: the service reads the surface again and executes.
func (s *stage) confirm(ctx context.Context, b confirmer, c contract.OperationConfirmation) told {
	return s.confirmFor(ctx, b, firmA, c)
}

func (s *stage) confirmFor(ctx context.Context, b confirmer, firm string, c contract.OperationConfirmation) told {
	current, err := s.registry.surface(ctx)
	if err != nil {
		return told{err: err}
	}
	req := broker.Request{Tenant: firm, Confirmation: c, Current: current}
	res, err := b.Execute(ctx, req, s.registry.executor(s.name, c.IdempotencyKey))
	return told{res, err}
}

// phase is how the key stands for firm A; the error's text when that cannot be read.
func (s *stage) phase(ctx context.Context, c contract.OperationConfirmation) broker.Phase {
	st, err := s.broker.Lookup(ctx, firmA, c.IdempotencyKey)
	if err != nil {
		return broker.Phase(err.Error())
	}
	return st.Phase
}

// expectPhase reports a difference unless the key stands so.
func (s *stage) expectPhase(ctx context.Context, c contract.OperationConfirmation, want broker.Phase) {
	got := s.phase(ctx, c)
	s.expect(got == want, "the key is %s, not %s", got, want)
}

// countCalls counts the calls that the registry got for this run of the scenario, by reading its ledger.
func (s *stage) countCalls(ledger string) (int, error) {
	entries, err := readLedger(ledger)
	n := 0
	for _, e := range entries {
		if e.Scenario == s.name && s.keys[e.Key] {
			n++
		}
	}
	return n, err
}
