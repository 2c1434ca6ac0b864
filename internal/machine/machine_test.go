package machine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/internal/pgtest/claims"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/pgstore"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "10") // unless the command line says otherwise: each is some hundred transactions
	pgtest.Main(m, claims.Schema(""))
}

// The ways in which an item's executor ends, and the modes.
const (
	applies = "applies"
	refuses = "refuses" // and says that nothing happened
	breaks  = "breaks"  // and says nothing
)

var modes = []string{"Execute", "ExecutePerItem", "ExecuteTx", "ExecuteAtomic"}

// confirm is one confirm, the same for every store.
type confirm struct {
	mode         string
	other, stale bool
	items        []string // what each item's executor does
}

// answer is what a call was answered: in one word, with the items' states.
type answer struct {
	word   string
	states string
}

func answerOf(res *contract.OperationResult, err error) answer {
	a := answer{word: broker.AnswerOf(res, err)}
	if res != nil {
		for _, o := range res.Outcomes {
			a.states += string(o.State) + " "
		}
	}
	return a
}

// subject is a broker on some store. Keys are by the number of their proposal.
type subject interface {
	propose(n int)
	confirm(key int, c confirm) answer
	crash(key int) // leaves the key claimed, with its lease over
	cancel(key int) answer
	resolve(key int, found []string) answer
	purge()
	lookup(key int) broker.Phase
}

type onStore[TTx any] struct {
	t        *testing.T
	store    store.Store[TTx]
	b        *broker.Broker[TTx]
	begin    func(context.Context) (TTx, error)
	commit   func(context.Context, TTx) error
	rollback func(context.Context, TTx) error
	tenant   string
	keys     []contract.OperationConfirmation
}

func newOnStore[TTx any](t *testing.T, st store.Store[TTx], begin func(context.Context) (TTx, error),
	commit, rollback func(context.Context, TTx) error,
) *onStore[TTx] {
	b, err := broker.New(st, &broker.Config{ReplayWait: -1, PayloadRetention: time.Nanosecond})
	require.NoError(t, err)
	return &onStore[TTx]{t: t, store: st, b: b, begin: begin, commit: commit, rollback: rollback, tenant: uuid.NewString()}
}

var fresh = contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}

func (s *onStore[TTx]) propose(n int) {
	p := contract.OperationProposal{SurfaceKey: fresh.SurfaceKey, ContractVersion: fresh.ContractVersion}
	for i := range n {
		p.Items = append(p.Items, contract.Item{ID: fmt.Sprint(i), Op: "add", Params: json.RawMessage(`{"n":1}`)})
	}
	c, err := s.b.Propose(s.t.Context(), s.tenant, p)
	require.NoError(s.t, err)
	s.keys = append(s.keys, c)
}

func (s *onStore[TTx]) confirm(key int, c confirm) answer {
	ctx := s.t.Context()
	req := broker.Request{Tenant: s.tenant, Confirmation: s.keys[key], Current: fresh}
	if c.other {
		req.Confirmation.Items = append([]contract.Item(nil), req.Confirmation.Items...)
		req.Confirmation.Items[0].Params = json.RawMessage(`{"n":2}`)
	}
	if c.stale {
		req.Current.ContractVersion = "v2"
	}
	exec := func(it broker.Item) (broker.Outcome, error) {
		switch c.items[it.Index] {
		case refuses:
			return broker.Outcome{}, broker.NotApplied(errors.New("refused"))
		case breaks:
			return broker.Outcome{}, errors.New("connection reset")
		}
		return broker.Applied("ref"), nil
	}
	tx := func(_ context.Context, _ TTx, it broker.Item) (broker.Outcome, error) { return exec(it) }
	switch c.mode {
	case "Execute":
		return answerOf(s.b.Execute(ctx, req, func(_ context.Context, it broker.Item) (broker.Outcome, error) { return exec(it) }))
	case "ExecutePerItem":
		return answerOf(s.b.ExecutePerItem(ctx, req, tx))
	case "ExecuteAtomic":
		return answerOf(s.b.ExecuteAtomic(ctx, broker.TxRequest[TTx]{Request: req}, tx))
	}
	own, err := s.begin(ctx)
	require.NoError(s.t, err)
	res, err := s.b.ExecuteTx(ctx, own, broker.TxRequest[TTx]{Request: req}, tx)
	if err != nil {
		require.NoError(s.t, s.rollback(ctx, own))
	} else {
		require.NoError(s.t, s.commit(ctx, own))
	}
	return answerOf(res, err)
}

func (s *onStore[TTx]) crash(key int) {
	digest, err := contract.DigestOf(s.keys[key].Proposal())
	require.NoError(s.t, err)
	_, err = s.store.Own().Claim(s.t.Context(), store.ClaimParams{
		ID: store.ID{Tenant: s.tenant, Key: s.keys[key].IdempotencyKey}, Digest: digest, Attempt: uuid.New(),
		Mode: store.ModeExternal, Lease: time.Microsecond,
	})
	require.NoError(s.t, err)
	for s.lookup(key) == broker.InProgress { // a moment, on the database's clock
		time.Sleep(time.Millisecond)
	}
}

func (s *onStore[TTx]) cancel(key int) answer {
	return answerOf(s.b.Cancel(s.t.Context(), s.tenant, s.keys[key].IdempotencyKey))
}

func (s *onStore[TTx]) resolve(key int, found []string) answer {
	return answerOf(s.b.Resolve(s.t.Context(), broker.Resolution{Tenant: s.tenant, Key: s.keys[key].IdempotencyKey, By: "me"},
		func(_ context.Context, it broker.Item) (broker.Verdict, error) {
			switch found[it.Index] {
			case applies:
				return broker.FoundApplied("ref", "there"), nil
			case refuses:
				return broker.FoundAbsent("not there"), nil
			}
			return broker.Verdict{}, errors.New("down")
		}))
}

func (s *onStore[TTx]) purge() {
	for {
		time.Sleep(time.Millisecond) // what was settled just now is past its retention
		n, err := s.b.Purge(s.t.Context(), broker.Page{Tenant: s.tenant})
		require.NoError(s.t, err)
		if n == 0 {
			return
		}
	}
}

func (s *onStore[TTx]) lookup(key int) broker.Phase {
	st, err := s.b.Lookup(s.t.Context(), s.tenant, s.keys[key].IdempotencyKey)
	require.NoError(s.t, err)
	return st.Phase
}

// oracle is the same in a few lines: what each key's state answers.
type oracle struct{ keys []*oracleKey }

type oracleKey struct {
	phase             broker.Phase
	states            []contract.OutcomeState
	cancelled, purged bool
}

func (o *oracle) propose(n int) {
	o.keys = append(o.keys, &oracleKey{phase: broker.Proposed, states: make([]contract.OutcomeState, n)})
}

// told is what a claimed key answers; ran is the word for one that has just run or been settled.
func (k *oracleKey) told(ran string) answer {
	if k.purged {
		return answer{word: "pruned"}
	}
	a := answer{word: ran}
	for _, s := range k.states {
		a.states += string(s) + " "
		if s == contract.Ambiguous {
			a.word = "ambiguous"
		}
	}
	if k.cancelled {
		a.word = "cancelled"
	}
	return a
}

func (k *oracleKey) become(phase broker.Phase, state func(i int) contract.OutcomeState) {
	k.phase = phase
	for i := range k.states {
		k.states[i] = state(i)
	}
}

func (o *oracle) confirm(key int, c confirm) answer {
	k := o.keys[key]
	switch {
	case c.other:
		return answer{word: "key_reused"}
	case k.phase != broker.Proposed:
		return k.told("replayed")
	case c.stale:
		return answer{word: "stale"}
	}
	k.become(broker.Completed, func(i int) contract.OutcomeState {
		switch {
		case c.items[i] == applies:
			return contract.Applied
		case c.items[i] == breaks && c.mode == "Execute":
			return contract.Ambiguous
		}
		return contract.Failed
	})
	return k.told("executed")
}

func (o *oracle) crash(key int) {
	if k := o.keys[key]; k.phase == broker.Proposed {
		k.become(broker.Unresolved, func(int) contract.OutcomeState { return contract.Ambiguous })
	}
}

func (o *oracle) cancel(key int) answer {
	k := o.keys[key]
	if k.phase == broker.Proposed {
		k.become(broker.Completed, func(int) contract.OutcomeState { return contract.Skipped })
		k.cancelled = true
	}
	return k.told("replayed")
}

func (o *oracle) resolve(key int, found []string) answer {
	k := o.keys[key]
	if k.phase == broker.Proposed {
		return answer{word: "not_confirmed"}
	}
	word := "replayed"
	k.become(broker.Completed, func(i int) contract.OutcomeState {
		if k.states[i] != contract.Ambiguous {
			return k.states[i]
		}
		word = "executed" // AnswerOf cannot tell a settled key from one that ran
		return map[string]contract.OutcomeState{applies: contract.Applied, refuses: contract.Failed, breaks: contract.Ambiguous}[found[i]]
	})
	return k.told(word)
}

func (o *oracle) purge() {
	for _, k := range o.keys {
		settled := k.phase == broker.Completed
		for _, s := range k.states {
			settled = settled && s != contract.Ambiguous
		}
		k.purged = k.purged || settled
	}
}

func (o *oracle) lookup(key int) broker.Phase { return o.keys[key].phase }

func subjects(t *testing.T) map[string]subject {
	mem := memstore.New(nil)
	lite, err := sqlitestore.Open(t.Context(), t.TempDir()+"/machine.db", nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = lite.Close() })
	pool := pgtest.New(t).Pool(t)
	return map[string]subject{
		"memory": newOnStore(t, mem, mem.BeginTx,
			func(_ context.Context, tx *memstore.Tx) error { return tx.Commit() },
			func(_ context.Context, tx *memstore.Tx) error { return tx.Rollback() }),
		"SQLite": newOnStore(t, lite, func(ctx context.Context) (*sql.Tx, error) { return lite.DB().BeginTx(ctx, nil) },
			func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
			func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }),
		"PostgreSQL": newOnStore(t, pgstore.New(pool), pool.Begin,
			func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
			func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) }),
	}
}

// S12, S17, S20, S29: any sequence of calls is answered alike by the oracle and by every store, in every mode.
func TestMachine(t *testing.T) {
	all := subjects(t)
	rapid.Check(t, func(rt *rapid.T) {
		o := &oracle{}
		first := -1 // keys of earlier sequences stay in the databases
		for _, s := range all {
			first = max(first, s.(interface{ count() int }).count())
		}
		items := rapid.SampledFrom([]string{applies, refuses, breaks})
		key := func() int {
			if len(o.keys) == 0 {
				rt.Skip("no key yet")
			}
			return rapid.IntRange(0, len(o.keys)-1).Draw(rt, "key")
		}
		ways := func(k int) []string {
			n := len(o.keys[k].states)
			return rapid.SliceOfN(items, n, n).Draw(rt, "items")
		}
		same := func(call string, want answer, get func(subject) answer) {
			for name, s := range all {
				if got := get(s); got != want {
					rt.Fatalf("%s on %s: %+v, want %+v", call, name, got, want)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"propose": func(rt *rapid.T) {
				n := rapid.IntRange(1, 3).Draw(rt, "n")
				o.propose(n)
				for _, s := range all {
					s.propose(n)
				}
			},
			"confirm": func(rt *rapid.T) {
				k := key()
				c := confirm{mode: rapid.SampledFrom(modes).Draw(rt, "mode"), other: rapid.IntRange(0, 7).Draw(rt, "other") == 0,
					stale: rapid.IntRange(0, 3).Draw(rt, "stale") == 0, items: ways(k)}
				same("confirm", o.confirm(k, c), func(s subject) answer { return s.confirm(first+k, c) })
			},
			"crash": func(*rapid.T) {
				k := key()
				o.crash(k)
				for _, s := range all {
					s.crash(first + k)
				}
			},
			"cancel": func(*rapid.T) {
				k := key()
				same("cancel", o.cancel(k), func(s subject) answer { return s.cancel(first + k) })
			},
			"resolve": func(*rapid.T) {
				k := key()
				found := ways(k)
				same("resolve", o.resolve(k, found), func(s subject) answer { return s.resolve(first+k, found) })
			},
			"purge": func(*rapid.T) {
				o.purge()
				for _, s := range all {
					s.purge()
				}
			},
			"": func(rt *rapid.T) {
				for k := range o.keys {
					for name, s := range all {
						if got := s.lookup(first + k); got != o.lookup(k) {
							rt.Fatalf("key %d on %s is %s, want %s", k, name, got, o.lookup(k))
						}
					}
				}
			},
		})
	})
}

func (s *onStore[TTx]) count() int { return len(s.keys) }
