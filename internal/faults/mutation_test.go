package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/faultnet"
)

// deed is one mutation under one fault, and everything that was seen of it. Its effects are rows, written in its transaction, or
// the count of its invocations, outside the database.
type deed struct {
	*trial
	outside bool
	runs    atomic.Int32
	effects atomic.Int32 // outside the database
	applied atomic.Int32 // times that a receipt said so
}

// act is what is faulted.
type act struct {
	name    string
	outside bool
	prepare func(ctx context.Context, d *deed)
	run     func(ctx context.Context, d *deed) (contract.Receipt, error)
}

func acts() []act {
	nothing := func(context.Context, *deed) {}
	mutate := func(ctx context.Context, d *deed) (contract.Receipt, error) { return d.br.Mutate(ctx, d.mutation()) }
	done := func(ctx context.Context, d *deed) { d.finally(ctx, contract.ResultApplied) }
	unknown := func(ctx context.Context, d *deed) {
		m := d.mutation()
		m.Invoke = func(context.Context, broker.Call) (contract.Receipt, error) {
			d.runs.Add(1)
			d.effects.Add(1)
			return contract.Receipt{}, errors.New("the reply was lost")
		}
		r, err := d.calm.Mutate(ctx, m)
		require.NoError(d, err)
		require.Equal(d, contract.ResultUnknown, r.Result)
	}
	return []act{
		{"apply", false, nothing, mutate},
		{"invoke", true, nothing, mutate},
		{"apply again", false, done, mutate},
		{"invoke again", true, done, mutate},
		{"resolve", true, unknown, func(ctx context.Context, d *deed) (contract.Receipt, error) {
			return d.br.ResolveMutation(ctx, d.ref(), "the trial", d.evidence)
		}},
		{"seal", true, nothing, func(ctx context.Context, d *deed) (contract.Receipt, error) {
			st, err := d.br.SealMutation(ctx, d.ref(), "the trial")
			if st != nil {
				return st.Receipt, err
			}
			return contract.Receipt{}, err
		}},
	}
}

func (d *deed) ref() broker.MutationRef {
	return broker.MutationRef{Tenant: d.tenant, AgentID: "agent-1", OperationID: d.c.IdempotencyKey.String()}
}

// mutation is guarded, has an execution of its own, and makes one effect.
func (d *deed) mutation() broker.Mutation[pgx.Tx] {
	m := broker.Mutation[pgx.Tx]{
		Tenant: d.tenant, AgentID: "agent-1", Method: contract.Method{Name: "/agent.v1.AgentService/ExecuteAuthorized"},
		Meta:       contract.RequestMeta{OperationID: d.ref().OperationID, IdempotencyKey: "k"},
		Digest:     contract.NewContent("ExecuteAuthorized").Text("number", "1").Digest(),
		Identities: []broker.Identity{{Kind: "execution", Value: d.ref().OperationID}},
		Guard: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		},
	}
	if d.outside {
		m.Invoke = d.invoke
	} else {
		m.Apply = d.apply
	}
	return m
}

func (d *deed) invoke(context.Context, broker.Call) (contract.Receipt, error) {
	d.runs.Add(1)
	d.effects.Add(1)
	return contract.Receipt{Result: contract.ResultApplied, Ref: "call/1"}, nil
}

func (d *deed) apply(ctx context.Context, tx pgx.Tx) (contract.Receipt, error) {
	_, err := tx.Exec(ctx, `INSERT INTO public.effect (key, item, attempt) VALUES ($1, 'a', $2)`, d.c.IdempotencyKey, uuid.New())
	return contract.Receipt{Result: contract.ResultApplied, Before: 1, After: 2}, err
}

// happened is how often the effect is there.
func (d *deed) happened(ctx context.Context) int {
	if d.outside {
		return int(d.effects.Load())
	}
	rows, err := d.rows(ctx, d.c.IdempotencyKey)
	require.NoError(d, err)
	return len(rows)
}

// evidence reads the effects themselves.
func (d *deed) evidence(context.Context, broker.Call) (contract.Receipt, error) {
	if d.effects.Load() > 0 {
		return contract.Receipt{Result: contract.ResultApplied, Ref: "call/1"}, nil
	}
	return contract.Receipt{Result: contract.ResultNotApplied, Detail: "the ledger does not show it"}, nil
}

// finally asks on the calm way until the receipt is terminal: by repeating the request, and then by evidence.
func (d *deed) finally(ctx context.Context, want ...contract.ResultCode) contract.Receipt {
	var r contract.Receipt
	d.eventually("the mutation is answered", func() (ok bool) {
		var err error
		r, err = d.calm.Mutate(ctx, d.mutation())
		if errors.Is(err, contract.ErrSealed) {
			r.Result = contract.ResultNotApplied
			return true
		}
		return err == nil
	})
	if !r.Result.Terminal() {
		d.eventually("the mutation is resolved", func() (ok bool) { // its lease has to end
			var err error
			r, err = d.calm.ResolveMutation(ctx, d.ref(), "the trial", d.evidence)
			return err == nil && r.Result.Terminal()
		})
	}
	require.Contains(d, want, r.Result)
	return r
}

// check is what must be true after the fault, whatever it was.
func (d *deed) check(ctx context.Context, a act, told contract.Receipt, err error) {
	f, _ := contract.FailureOf(err)
	if err != nil && f == nil {
		d.Errorf("an answer without a failure: %v", err)
	}
	if f.KnownNoEffect() && !errors.Is(err, contract.ErrSealed) {
		if n := d.happened(ctx); n != 0 {
			d.Errorf("nothing was done, it was told, and the effect is there: %v", err)
		}
	}
	last := d.finally(ctx, contract.ResultApplied, contract.ResultNotApplied)
	again := d.finally(ctx, last.Result)
	n := d.happened(ctx)
	switch {
	case n > 1:
		d.Errorf("the effect happened %d times", n)
	case last.Applied() != (n == 1):
		d.Errorf("the last word is %s, and the effect happened %d times", last.Result, n)
	case err == nil && told.Result.Terminal() && told.Result != last.Result:
		d.Errorf("told %s, and later %s", told.Result, last.Result)
	case errors.Is(err, contract.ErrSealed) && n != 0:
		d.Errorf("sealed, and the effect is there")
	case again.RecordedAt != last.RecordedAt:
		d.Errorf("a terminal receipt has changed")
	case d.outside && d.runs.Load() > 1:
		d.Errorf("invoked %d times", d.runs.Load())
	}
}

// The least number of cases that make a whole enumeration of the mutations.
const (
	minimumDeeds      = 1200
	minimumDeedsShort = 250
)

// R26, R29, R60, R61: for each call on a mutation, place and fault the n-th boundary is faulted, n = 1, 2, 3, … until a run has no
// n-th boundary. The effect happens at most once, and every word about it stays true.
func TestEveryFaultOfAMutation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slots := make(chan struct{}, *parallel)
	var cases, fired atomic.Int32
	var chains sync.WaitGroup
	for _, a := range acts() {
		for _, f := range faults() {
			for _, at := range faultnet.Places {
				if short() && !f.inTurn || !f.kind(func() {}).Possible(at) {
					continue
				}
				chains.Go(func() {
					for n := 1; n < mostBoundaries; n++ {
						slots <- struct{}{}
						reached, struck := strikeDeed(t, w, a, f, at, n)
						<-slots
						if !reached {
							return
						}
						cases.Add(1)
						if struck {
							fired.Add(1)
						}
					}
					t.Errorf("%s/%s/%s: no end", a.name, at, f.name)
				})
			}
		}
	}
	chains.Wait()
	t.Logf("%d cases, the fault fired in %d", cases.Load(), fired.Load())
	least := int32(minimumDeeds)
	if short() {
		least = minimumDeedsShort
	}
	if fired.Load() < least {
		t.Errorf("%d faults fired: the enumeration is not whole, at least %d are expected", fired.Load(), least)
	}
}

// strikeDeed is one case. It tells whether there was an n-th boundary, and whether the fault struck.
func strikeDeed(t *testing.T, w *world, a act, f fault, at faultnet.Place, n int) (reached, fired bool) {
	var done sync.WaitGroup
	done.Go(func() {
		d := &deed{trial: newTrial(t, w, fmt.Sprintf("mutation %s/%s/%s/%d", a.name, at, f.name, n), execute), outside: a.outside}
		defer d.end()
		ctx, cancel := d.bounded(2 * patience)
		defer cancel()
		a.prepare(ctx, d)
		call, leave := d.bounded(patience)
		defer leave()
		d.in.Arm(n, at, f.kind(leave))
		start := time.Now()
		r, err := a.run(call, d)
		reached, fired = d.in.Reached(), d.in.Fired()
		d.in.Disarm()
		if !fired && err != nil && !errors.Is(err, contract.ErrSealed) && time.Since(start) < storeTimeout/2 {
			d.Errorf("without a fault: %v", err)
		}
		d.check(ctx, a, r, err)
	})
	done.Wait()
	return reached, fired
}
