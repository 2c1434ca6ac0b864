package vectors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/contract/contracttest"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// times are longer than what they are named after, by default.
var times = map[string]time.Duration{"lease": 6 * time.Minute, "expiry": 25 * time.Hour, "retention": 31 * 24 * time.Hour}

// player plays events on a broker with a store in memory.
type player struct {
	broker *broker.Broker[*memstore.Tx]
	keys   map[string]uuid.UUID
	asleep map[string]*sleeper // attempts that keep running, by the name of their key
	runs   atomic.Int64
	denied atomic.Bool

	mu  sync.Mutex
	now time.Time
}

// sleeper is an attempt whose executor waits until it is woken.
type sleeper struct {
	wake   chan struct{}
	answer chan string
}

func play(events []contracttest.KeyEvent) (answers []string, runs int, err error) {
	p := &player{keys: map[string]uuid.UUID{"unknown": uuid.New()}, asleep: map[string]*sleeper{}, now: time.UnixMilli(1_700_000_000_000)}
	p.broker, err = broker.New(memstore.New(&memstore.Config{Now: p.clock}), &broker.Config{ReplayWait: -1, Authorize: p.authorize})
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer p.end()
	for _, e := range events {
		answer, err := p.one(ctx, e)
		if err != nil {
			return answers, 0, err
		}
		answers = append(answers, answer)
	}
	return answers, int(p.runs.Load()), nil
}

// end wakes who still sleeps: the process of a crash is gone, and its goroutine must be too.
func (p *player) end() {
	for _, s := range p.asleep {
		close(s.wake)
		<-s.answer
	}
}

func (p *player) clock() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *player) pass(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

func (p *player) authorize(context.Context, broker.Access) error {
	if p.denied.Load() {
		return errors.New("not today")
	}
	return nil
}

func (p *player) one(ctx context.Context, e contracttest.KeyEvent) (string, error) {
	if e.Tenant == "" {
		e.Tenant = "one"
	}
	key, known := p.keys[e.Key]
	if !known {
		key = uuid.New()
	}
	switch e.Event {
	case "propose":
		c, err := p.broker.Propose(ctx, e.Tenant, proposal(e.Content))
		p.keys[e.Key] = c.IdempotencyKey
		return orAnswer(err, "minted"), nil
	case "confirm":
		p.denied.Store(e.Denied)
		defer p.denied.Store(false)
		return p.confirm(ctx, e, key)
	case "finish":
		s := p.asleep[e.Key]
		delete(p.asleep, e.Key)
		close(s.wake)
		return <-s.answer, nil
	case "cancel":
		res, err := p.broker.Cancel(ctx, e.Tenant, key)
		return told(res, err), nil
	case "resolve":
		res, err := p.broker.Resolve(ctx, broker.Resolution{Tenant: e.Tenant, Key: key, By: "on-call"}, reader(e.Verdict))
		if err == nil {
			return "resolved: " + string(res.Outcomes[0].State), nil
		}
		return told(nil, err), nil
	case "lookup":
		st, err := p.broker.Lookup(ctx, e.Tenant, key)
		if err != nil {
			return told(nil, err), nil
		}
		return string(st.Phase), nil
	case "purge":
		n, err := p.broker.Purge(ctx, broker.Page{Tenant: e.Tenant})
		return orAnswer(err, fmt.Sprintf("purged: %d", n)), nil
	case "pass":
		p.pass(times[e.Time])
		return "ok", nil
	}
	return "", fmt.Errorf("there is no event %q", e.Event)
}

// confirm confirms and, unless its executor keeps running, waits for the answer.
func (p *player) confirm(ctx context.Context, e contracttest.KeyEvent, key uuid.UUID) (string, error) {
	entered := make(chan struct{}, 1)
	s := &sleeper{make(chan struct{}), make(chan string, 1)}
	sleeps := e.Run == "keeps_running" || e.Run == "crashes"
	if sleeps {
		p.asleep[e.Key] = s
	}
	req := broker.Request{Tenant: e.Tenant, Confirmation: proposal(e.Content).Confirmation(key), Current: current(e.Surface)}
	go func() {
		var ran atomic.Bool
		res, err := p.broker.Execute(ctx, req, func(context.Context, broker.Item) (broker.Outcome, error) {
			p.runs.Add(1)
			ran.Store(true)
			entered <- struct{}{}
			if sleeps {
				<-s.wake
			}
			return executed(e.Run)
		})
		if err == nil && res.Replayed == ran.Load() {
			err = errors.New("a result that is wrong about whether it is a replay")
		}
		s.answer <- told(res, err)
	}()
	if !sleeps {
		return <-s.answer, nil
	}
	select {
	case <-entered:
		return map[string]string{"keeps_running": "running", "crashes": "crashed"}[e.Run], nil
	case answer := <-s.answer:
		delete(p.asleep, e.Key)
		return answer, nil
	}
}

// executed is what an executor returns.
func executed(run string) (broker.Outcome, error) {
	switch run {
	case "fails":
		return broker.Outcome{}, broker.NotApplied(errors.New("the name is taken"))
	case "unclear":
		return broker.Outcome{}, errors.New("the connection broke")
	}
	return broker.Applied("f-1"), nil
}

func reader(verdict string) broker.StatusReader {
	return func(context.Context, broker.Item) (broker.Verdict, error) {
		switch verdict {
		case "applied":
			return broker.FoundApplied("f-1", "seen"), nil
		case "absent":
			return broker.FoundAbsent("not there"), nil
		}
		return broker.StillUnknown("the page does not load"), nil
	}
}

// contents are what is proposed and confirmed.
var contents = map[string]string{"A": `{"a":1,"b":2}`, "A, reordered": `{"b":2.0,"a":1}`, "B": `{"a":1,"b":3}`, "invalid": `[]`}

func proposal(content string) contract.OperationProposal {
	return contract.OperationProposal{SurfaceKey: "matter:1", ContractVersion: "v1", Items: []contract.Item{
		{ID: "i1", Op: "add_forum", Params: json.RawMessage(contents[content])},
	}}
}

func current(surface string) contract.CurrentSurfaceState {
	switch surface {
	case "moved":
		return contract.CurrentSurfaceState{SurfaceKey: "matter:2", ContractVersion: "v1"}
	case "changed":
		return contract.CurrentSurfaceState{SurfaceKey: "matter:1", ContractVersion: "v2"}
	case "unreadable":
		return contract.CurrentSurfaceState{SurfaceKey: "matter:1"}
	}
	return contract.CurrentSurfaceState{SurfaceKey: "matter:1", ContractVersion: "v1"}
}

// refusals are the answers that are errors.
var refusals = map[contract.Reason]string{
	contract.ReasonInvalid: "invalid", contract.ReasonKeyReused: "conflict", contract.ReasonDenied: "denied",
	contract.ReasonInProgress: "in_progress", contract.ReasonNotMinted: "not_minted", contract.ReasonExpired: "expired",
	contract.ReasonStale: "stale", contract.ReasonFenced: "fenced", contract.ReasonNotConfirmed: "not_confirmed",
}

// told names an answer.
func told(res *contract.OperationResult, err error) string {
	if err != nil {
		f, _ := contract.FailureOf(err)
		if f == nil || refusals[f.Reason] == "" {
			return err.Error()
		}
		return refusals[f.Reason]
	}
	how := "ran"
	switch {
	case res.Cancelled():
		return "cancelled"
	case res.Pruned():
		return "settled"
	case res.Replayed && res.Outcomes[0].State == contract.Ambiguous && res.Outcomes[0].Reason == contract.ReasonNotCompleted:
		return "ambiguous"
	case res.Replayed:
		how = "replayed"
	}
	return how + ": " + string(res.Outcomes[0].State)
}

func orAnswer(err error, answer string) string {
	if err != nil {
		return told(nil, err)
	}
	return answer
}
