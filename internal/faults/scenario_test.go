package faults

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// scenario is what a fault strikes into.
type scenario struct {
	name string
	mode string
	// prepare makes the state before, on the calm way.
	prepare func(ctx context.Context, c *trial)
	// run is what is faulted. What it tells without a fault is checked by want.
	run  func(ctx context.Context, c *trial) answer
	want string
	// refused is the word of a refusal that is as good as what is wanted; empty: none is.
	refused string
	// after is what is done after the faults before anything is confirmed; nil: nothing.
	after func(ctx context.Context, c *trial)
	taps  bool // it confirms concurrently
	warm  bool // the connection has seen all of it before
	read  bool // the surface is read inside
}

// long says that there are more boundaries than every fault takes.
func (s scenario) long() bool { return s.taps || s.warm || s.read }

// whole says whether an answer is as it is without a fault.
func (s scenario) whole(a answer) bool {
	if a.err != nil {
		return a.word() == s.refused
	}
	return a.states() == s.want
}

// String is the scenario's name in the table and in those of its cases.
func (s scenario) String() string {
	if s.warm {
		return s.name + ", warm/" + s.mode
	}
	return s.name + "/" + s.mode
}

// What a whole run tells of the items.
const (
	allRun      = "applied failed applied"
	noneRuns    = "skipped skipped skipped"
	crashedLate = "applied applied skipped" // the effect on b is there and was not recorded
	crashedSoon = "applied skipped skipped" // b was rolled back
	leftOpen    = "applied applied applied"
)

func scenarios() []scenario {
	var all []scenario
	nothing := func(context.Context, *trial) {}
	confirm := func(ctx context.Context, c *trial) answer { return c.confirm(ctx, "confirm, faulted", c.br, c.shaky) }
	confirmed := func(ctx context.Context, c *trial) {
		a := c.confirm(ctx, "confirm before", c.calm, c.pool)
		require.Equal(c, allRun, a.states())
	}
	resolve := func(ctx context.Context, c *trial) answer { return c.resolve(ctx, "resolve, faulted", c.br) }
	for _, mode := range modes {
		all = append(all,
			scenario{name: "confirm", mode: mode, prepare: nothing, run: confirm, want: allRun},
			scenario{name: "confirm again", mode: mode, prepare: confirmed, run: confirm, want: allRun},
			scenario{name: "double tap", mode: mode, prepare: nothing, run: doubleTap, want: allRun, taps: true})
	}
	all = append(all,
		scenario{name: "resolve", mode: execute, prepare: crashedExternal, run: resolve, want: crashedLate},
		scenario{name: "resolve", mode: perItem, prepare: crashedPerItem, run: resolve, want: crashedSoon},
		scenario{name: "settle", mode: execute, prepare: ambiguousItem, run: resolve, want: leftOpen},
		scenario{name: "cancel", mode: execute, prepare: nothing, want: noneRuns,
			run: func(ctx context.Context, c *trial) answer {
				return c.cancel(ctx, "cancel, faulted", c.br)
			},
			after: func(ctx context.Context, c *trial) {
				for range 2 {
					a := c.cancel(ctx, "cancel", c.calm)
					require.NoError(c, a.err)
					require.True(c, a.res.Cancelled(), "I7")
				}
			}},
		scenario{name: "purge", mode: perItem, prepare: confirmed, want: "",
			run: func(ctx context.Context, c *trial) answer {
				a := c.ask("purge, faulted")
				var n int
				if n, a.err = c.forgets.Purge(ctx, broker.Page{Tenant: c.tenant}); a.err == nil && n != 1 {
					c.Errorf("purge forgets %d keys", n)
				}
				return c.note(a)
			},
			after: func(ctx context.Context, c *trial) {
				_, err := c.purge.Purge(ctx, broker.Page{Tenant: c.tenant})
				require.NoError(c, err)
			}})
	for _, s := range all {
		if s.warm = true; !s.taps {
			all = append(all, s)
		}
	}
	return append(all, surfaceScenarios()...)
}

// warmUp runs the scenario with another key on the connection that is then faulted: there every statement is prepared.
func (c *trial) warmUp(ctx context.Context, s scenario) {
	twin := &trial{TB: c.TB, world: c.world, name: c.name + ", warming up", mode: c.mode, tenant: "firm-" + uuid.NewString(),
		in: c.in, shaky: c.shaky, br: c.br, forgets: c.forgets}
	defer twin.end()
	twin.propose(ctx)
	s.prepare(ctx, twin)
	s.run(ctx, twin)
}

// doubleTap confirms twice at the same time. It returns the answer that has a result.
func doubleTap(ctx context.Context, c *trial) answer {
	var taps [2]answer
	var both sync.WaitGroup
	for i := range taps {
		both.Go(func() { taps[i] = c.confirm(ctx, "tap, faulted", c.br, c.shaky) })
	}
	both.Wait()
	if taps[0].err != nil {
		return taps[1]
	}
	return taps[0]
}

func (c *trial) cancel(ctx context.Context, what string, b *broker.Broker[pgx.Tx]) answer {
	a := c.ask(what)
	a.res, a.err = b.Cancel(ctx, c.tenant, c.c.IdempotencyKey)
	return c.note(a)
}

// word is the answer in one word.
func (a answer) word() string {
	if _, outside := errors.AsType[errCaller](a.err); outside {
		return "driver_error"
	}
	return broker.AnswerOf(a.res, a.err)
}

// states are the states of the items that were told, in one line.
func (a answer) states() string {
	if a.res == nil {
		return ""
	}
	line := ""
	for i, o := range a.res.Outcomes {
		if i > 0 {
			line += " "
		}
		line += string(o.State)
	}
	return line
}

// hold claims the key as an attempt that will crash does.
func (c *trial) hold(ctx context.Context, mode store.Mode, first string) store.Fenced {
	digest, err := contract.DigestOf(c.c.Proposal())
	require.NoError(c, err)
	held := store.Fenced{ID: c.id(), Attempt: uuid.New(), Fence: 1}
	s, err := c.store.Own().Claim(ctx, store.ClaimParams{
		ID: held.ID, Digest: digest, Attempt: held.Attempt, Mode: mode, Lease: patience, FirstItem: first,
	})
	require.NoError(c, err)
	require.Equal(c, held.Attempt, s.Claim.Attempt)
	return held
}

// appliedA is the record of item a.
func appliedA(held store.Fenced, next string) store.ProgressParams {
	return store.ProgressParams{Fenced: held, Done: "a", Next: next, Lease: patience,
		Outcome: contract.EncodeOutcomes([]contract.OperationItemOutcome{{ItemID: "a", State: contract.Applied, Ref: "ref/a"}})}
}

// crashedExternal: a is recorded, b has happened and is not recorded, c has not started.
func crashedExternal(ctx context.Context, c *trial) {
	held := c.hold(ctx, store.ModeExternalProgress, "a")
	c.enter(effect{"a", held.Attempt})
	p := appliedA(held, "b")
	require.NoError(c, c.store.Own().Progress(ctx, p))
	c.enter(effect{"b", held.Attempt})
	c.endLease(ctx)
}

// crashedPerItem: a is committed, b was rolled back, c has not started.
func crashedPerItem(ctx context.Context, c *trial) {
	held := c.hold(ctx, store.ModePerItem, "")
	write := func(item string) pgx.Tx {
		tx, _, err := c.store.Begin(ctx, store.Opening{ID: held.ID, Hold: &held})
		require.NoError(c, err)
		_, err = tx.Exec(ctx, `INSERT INTO public.effect (key, item, attempt) VALUES ($1, $2, $3)`, held.Key, item, held.Attempt)
		require.NoError(c, err)
		return tx
	}
	b := write("b")
	require.NoError(c, c.store.Rollback(ctx, b))
	p := appliedA(held, "")
	require.NoError(c, c.store.Commit(ctx, write("a"), store.Closing{Progress: &p}))
	c.endLease(ctx)
}

// ambiguousItem: the executor of b does not know what it did.
func ambiguousItem(ctx context.Context, c *trial) {
	a := c.ask("confirm before")
	a.res, a.err = c.calm.Execute(ctx, c.request(), func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
		c.invoked(ctx, invocation{item: it.ID, attempt: it.Attempt})
		c.enter(effect{it.ID, it.Attempt})
		if it.ID == "b" {
			return broker.Outcome{}, errors.New("the reply was lost")
		}
		return broker.Applied("ref/" + it.ID), nil
	})
	require.Equal(c, "applied ambiguous applied", c.note(a).states())
}

// endLease lets the time of a crashed attempt's lease pass.
func (c *trial) endLease(ctx context.Context) {
	b := new(pgx.Batch)
	b.Queue(`SELECT set_config('app.firm_id', $1, true)`, c.tenant)
	b.Queue(`UPDATE agents.agent_idempotency_key SET lease_until = clock_timestamp()
		WHERE firm_id = $1 AND request_id = $2 AND boundary = 'operation'`, c.tenant, c.c.IdempotencyKey.String())
	require.NoError(c, c.pool.SendBatch(ctx, b).Close())
}

// awaitLease waits until nobody can hold the key any more.
func (c *trial) awaitLease(ctx context.Context) broker.Phase {
	phase := broker.InProgress
	c.eventually("the lease is over", func() bool {
		st, err := c.calm.Lookup(ctx, c.tenant, c.c.IdempotencyKey)
		if err == nil {
			phase = st.Phase
		}
		return err == nil && phase != broker.InProgress
	})
	return phase
}

// aftermath is everything that happens once the faults are gone. It checks every invariant, and in the end the key is settled by
// the library's calls alone (I19).
func (c *trial) aftermath(ctx context.Context, s scenario) {
	c.checkFence(ctx)
	c.checkOthers(ctx)
	if s.after != nil {
		s.after(ctx, c)
	}
	for range 2 {
		c.confirm(ctx, "confirm", c.br, c.shaky)
		c.checkFence(ctx)
	}
	c.checkOthers(ctx)
	if phase := c.awaitLease(ctx); phase == broker.Proposed { // both met what was left of the broken connections
		a := c.confirm(ctx, "confirm, calm", c.calm, c.pool)
		if c.surface != nil && errors.Is(a.err, contract.ErrStale) { // it stays so, and only Cancel settles the key
			c.cancel(ctx, "cancel what is stale", c.calm)
		}
	}
	run := c.invocations()
	first := c.resolve(ctx, "resolve", c.calm)
	again := c.resolve(ctx, "resolve again", c.calm)
	for _, a := range []answer{first, again, c.confirm(ctx, "confirm in the end", c.calm, c.pool)} {
		if a.err != nil || a.res.Recovery() != nil {
			c.Errorf("I19: %v", a)
		}
	}
	c.checkFence(ctx)
	st, err := c.calm.Lookup(ctx, c.tenant, c.c.IdempotencyKey)
	require.NoError(c, err)
	assert.Equal(c, broker.Completed, st.Phase, "I19")
	assert.Empty(c, st.Contradictions)
	open, err := c.calm.ListUnresolved(ctx, broker.Page{Tenant: c.tenant})
	require.NoError(c, err)
	assert.Empty(c, open, "I19")
	c.checkOthers(ctx)
	c.forget(ctx)
	assert.Equal(c, run, c.invocations(), "I6, I7, I15: nothing runs after the key was settled")
	c.checkQuiet(ctx)
	c.checkAll()
}

// forget purges the key: it is settled and never runs again (I15), and other content is still a conflict.
func (c *trial) forget(ctx context.Context) {
	_, err := c.purge.Purge(ctx, broker.Page{Tenant: c.tenant})
	require.NoError(c, err)
	a := c.confirm(ctx, "confirm after purge", c.calm, c.pool)
	if a.err != nil || !a.res.Pruned() {
		c.Errorf("I15: %v", a)
	}
	c.checkOthers(ctx)
	c.checkFence(ctx)
}
