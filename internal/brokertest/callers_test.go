package brokertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
)

const briefly = 200 * time.Millisecond // a store's lock timeout where the lock is not let go

// settings of a transaction that are its owner's.
func settings(t *testing.T, tx pgx.Tx) (s [3]string) {
	t.Helper()
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT current_setting('synchronous_commit'), current_setting('lock_timeout'),
		current_setting('app.firm_id', true)`).Scan(&s[0], &s[1], &s[2]))
	return s
}

// savepointsGone checks that none of the library's savepoints stands in tx.
func savepointsGone(t *testing.T, tx pgx.Tx, name string) {
	t.Helper()
	for _, savepoint := range []string{"confirmexec", "confirmexec_item"} {
		_, err := tx.Exec(t.Context(), `SAVEPOINT probe`)
		require.NoError(t, err, name)
		_, err = tx.Exec(t.Context(), `ROLLBACK TO SAVEPOINT `+savepoint)
		pe, ok := errors.AsType[*pgconn.PgError](err)
		require.True(t, ok, "%s: savepoint %s was left behind", name, savepoint)
		assert.Equal(t, "3B001", pe.Code, name)
		_, err = tx.Exec(t.Context(), `ROLLBACK TO SAVEPOINT probe; RELEASE SAVEPOINT probe`)
		require.NoError(t, err, name)
	}
}

// S28a, S28b: every answer in a caller's transaction that starts nothing leaves it usable, without a savepoint, and with its
// owner's durability, lock timeout and tenant.
func TestRefusalLeavesTheTransactionAsItWas(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	b := newBench(t, waiting(t, pool, briefly), inTx, nil)
	free, done, running, crashed, held := b.propose("a"), b.propose("a"), b.propose("a"), b.propose("a"), b.propose("a")
	_, err := b.confirm(request(done), apply)
	require.NoError(t, err)
	b.crashed(running, long, "")
	b.crashed(crashed, short, "")
	b.Advance(2 * short)
	holder, err := b.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(b.ctx) }()
	_, err = b.executeIn(holder, request(held), apply)
	require.NoError(t, err)
	unknown, stale, foreign := request(free), request(free), request(free)
	unknown.Confirmation.IdempotencyKey[0]++
	stale.Current = moved()
	foreign.Tenant = firmB
	var ids []string
	for i := range broker.MaxTxItems + 1 {
		ids = append(ids, fmt.Sprint("item-", i))
	}
	denying := b.with(broker.Config{ReplayWait: -1, Authorize: func(context.Context, broker.Access) error { return errors.New("no") }})
	plain := func(on *bench[pgx.Tx], req broker.Request) func(pgx.Tx) answer {
		return func(tx pgx.Tx) (a answer) {
			a.res, a.err = on.executeIn(tx, req, b.never)
			return a
		}
	}
	read := func(current contract.CurrentSurfaceState, err error) func(pgx.Tx) answer {
		return func(tx pgx.Tx) (a answer) {
			a.res, a.err = b.ExecuteTx(b.ctx, tx, surface(free, func(ctx context.Context, tx pgx.Tx) (contract.CurrentSurfaceState, error) {
				_, sqlErr := tx.Exec(ctx, sqlState("22012"))
				require.Error(t, sqlErr)
				return current, err
			}), b.txExecutor(b.never))
			return a
		}
	}
	for name, c := range map[string]struct {
		call func(pgx.Tx) answer
		want string
	}{
		"unknown key":          {plain(b, unknown), "not_minted"},
		"another tenant's key": {plain(b, foreign), "tenant_mismatch"},
		"other content":        {plain(b, request(otherContent(free))), "key_reused"},
		"other than completed": {plain(b, request(otherContent(done))), "key_reused"},
		"stale":                {plain(b, stale), "stale"},
		"expired":              {plain(b, request(b.with(broker.Config{ProposalExpiry: 1}).propose("a"))), "expired"},
		"denied":               {plain(denying, request(free)), "denied"},
		"denied, in conflict":  {plain(denying, request(otherContent(free))), "key_reused"},
		"completed":            {plain(b, request(done)), "replayed"},
		"running":              {plain(b, request(running)), "in_progress"},
		"being claimed":        {plain(b, request(held)), "in_progress"},
		"never completed":      {plain(b, request(crashed)), "ambiguous"},
		"too many items":       {plain(b, request(b.propose(ids...))), "invalid"},
		"the surface is away":  {read(fresh, errors.New("down")), "unavailable"},
		"an error unnoticed":   {read(fresh, nil), "unavailable"},
	} {
		tx, err := b.Begin(b.ctx)
		require.NoError(t, err)
		_, err = tx.Exec(b.ctx, `SELECT set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '1234ms', true),
			set_config('app.firm_id', $1, true)`, firmA)
		require.NoError(t, err)
		before := settings(t, tx)
		a := c.call(tx)
		assert.Equal(t, c.want, a.String(), "%s: %v", name, a.err)
		assert.Equal(t, before, settings(t, tx), name)
		savepointsGone(t, tx, name)
		require.NoError(t, b.Effect(b.ctx, tx, name))
		require.NoError(t, b.Commit(b.ctx, tx), name)
		assert.Equal(t, 1, b.effects(name), name)
	}
	assert.Equal(t, broker.Proposed, b.phase(free))
}

// S28a: an operation that ran leaves no savepoint behind either, nor its lock timeout.
func TestOperationLeavesNoSavepoint(t *testing.T) {
	b := onPostgres(t)
	for name, exec := range map[string]executor{
		"applied": apply,
		"failed": func(ctx context.Context, it broker.Item, write func(string) error) (broker.Outcome, error) {
			return broker.Outcome{}, errors.Join(write(it.ID), errors.New("refused"))
		},
	} {
		for _, read := range []bool{false, true} {
			tx, err := b.Begin(b.ctx)
			require.NoError(t, err)
			_, err = tx.Exec(b.ctx, `SET LOCAL lock_timeout = '1234ms'`)
			require.NoError(t, err)
			req := broker.TxRequest[pgx.Tx]{Request: request(b.propose("a", "b"))}
			if read {
				req.ReadSurface = isFresh
			}
			_, err = b.ExecuteTx(b.ctx, tx, req, b.txExecutor(exec))
			require.NoError(t, err)
			savepointsGone(t, tx, name)
			assert.Equal(t, "1234ms", settings(t, tx)[1], name)
			require.NoError(t, b.Commit(b.ctx, tx))
		}
	}
}

// refusedOrBroken checks that what a caller's transaction was told is true of it: after a refusal it goes on, after anything
// else that it was told it has to be rolled back.
func refusedOrBroken(t *testing.T, tx pgx.Tx, err error) {
	t.Helper()
	_, useErr := tx.Exec(t.Context(), `SELECT 1`)
	if errors.Is(err, contract.ErrInProgress) {
		assert.NoError(t, useErr, "refused, so it must be usable: %v", err)
		return
	}
	require.ErrorIs(t, err, contract.ErrUnavailable)
}

// S28a: on a connection that has not prepared the store's statements, a lock that is not to be had is a refusal only if the
// transaction is usable after it; and it is not waited for without end.
func TestLockOnAColdConnection(t *testing.T) {
	for _, own := range []string{"", "100ms"} {
		for _, read := range []bool{false, true} {
			t.Run(fmt.Sprintf("the caller's lock timeout %q, surface read inside %t", own, read), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				b := newBench(t, waiting(t, db.Pool(t), briefly), inTx, nil)
				c := b.propose("a")
				cold := db.Pool(t)
				tx, err := cold.Begin(b.ctx)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(context.WithoutCancel(b.ctx)) }()
				if own != "" {
					_, err = tx.Exec(b.ctx, `SELECT set_config('lock_timeout', $1, true)`, own)
					require.NoError(t, err)
				}
				_, unlock := lockTable(t, db, "ACCESS EXCLUSIVE")
				req := broker.TxRequest[pgx.Tx]{Request: request(c)}
				if read {
					req = surface(c, isFresh)
				}
				done := make(chan error, 1)
				go func() {
					_, err := b.ExecuteTx(b.ctx, tx, req, b.txExecutor(b.never))
					done <- err
				}()
				refusedOrBroken(t, tx, within(t, done))
				unlock()
				assert.Equal(t, broker.Proposed, b.phase(c))
			})
		}
	}
}

// S28a, S12: nor is it waited for without end in a transaction of the store's own, whose lock timeout is its role's again once it stands.
func TestBeginOnAColdConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := newBench(t, waiting(t, db.Pool(t, onlyConnection, withSetting("lock_timeout", "1h")), briefly), atomically, nil)
	c := newBench(t, postgres(t, db.Pool(t)), execute, nil).propose("a")
	_, unlock := lockTable(t, db, "ACCESS EXCLUSIVE")
	a := within(t, b.aside(request(c), b.never))
	require.Error(t, a.err)
	unlock()
	for range 2 { // and once the connection is warm
		tx, _, err := b.Store.Begin(b.ctx, store.Opening{ID: store.ID{Tenant: firmA}})
		require.NoError(t, err)
		assert.Equal(t, "1h", settings(t, tx)[1])
		require.NoError(t, b.Store.Rollback(b.ctx, tx))
	}
	res, err := b.confirm(request(c), apply)
	require.NoError(t, err)
	assert.Equal(t, contract.Tally{Applied: 1}, res.Tally())
}

// S28a: of a flight that failed pgx forgets the statements: on that connection, too, a lock that is not to be had is waited for no
// longer than the lock timeout, and the caller's transaction is usable after it.
func TestLockAfterAFailure(t *testing.T) {
	for _, mode := range []string{inTx, execute, atomically} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			one := db.Pool(t, onlyConnection)
			b := newBench(t, waiting(t, one, briefly), mode, nil)
			for range 2 { // every statement once
				_, err := b.confirm(request(b.propose("warm")), apply)
				require.NoError(t, err)
			}
			other := newBench(t, postgres(t, db.Pool(t)), inTx, nil)
			held, c := b.propose("a"), b.propose("a")
			holder, err := other.Begin(b.ctx)
			require.NoError(t, err)
			_, err = other.executeIn(holder, request(held), apply)
			require.NoError(t, err)
			_, err = b.confirm(request(held), b.never)
			require.ErrorIs(t, err, contract.ErrInProgress, "a flight that fails")
			require.NoError(t, other.Rollback(b.ctx, holder))

			if mode != inTx {
				_, unlock := lockTable(t, db, "ACCESS EXCLUSIVE")
				a := within(t, b.aside(request(c), b.never))
				unlock()
				require.ErrorIs(t, a.err, contract.ErrUnavailable)
				failure, _ := contract.FailureOf(a.err)
				require.ErrorIs(t, failure, store.ErrBusy)
				return
			}
			tx, err := b.Begin(b.ctx)
			require.NoError(t, err)
			require.NoError(t, b.Effect(b.ctx, tx, "own"))
			_, unlock := lockTable(t, db, "ACCESS EXCLUSIVE")
			done := make(chan error, 1)
			go func() {
				_, err := b.executeIn(tx, request(c), b.never)
				done <- err
			}()
			err = within(t, done)
			unlock()
			require.ErrorIs(t, err, store.ErrBusy)
			require.NoError(t, b.Effect(b.ctx, tx, "own"), "the transaction is still usable")
			require.NoError(t, b.Commit(b.ctx, tx))
		})
	}
}

// cutTx ends its caller's context as soon as the answer of the n-th flight has come.
type cutTx struct {
	pgx.Tx
	flights *int
	leave   func()
}

func (c cutTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	*c.flights--
	return cutResults{c.Tx.SendBatch(ctx, b), c}
}

type cutResults struct {
	pgx.BatchResults
	tx cutTx
}

func (r cutResults) Close() error {
	err := r.BatchResults.Close()
	if *r.tx.flights == 0 {
		r.tx.leave()
	}
	return err
}

// S28a: a caller that leaves just as its confirm is refused still gets its transaction back.
func TestCallerLeavesDuringTheRefusal(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	b := newBench(t, waiting(t, pool, briefly), inTx, nil)
	c := b.propose("a")
	holder, err := b.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(b.ctx) }()
	_, err = b.executeIn(holder, request(c), apply)
	require.NoError(t, err)
	stale := request(c)
	stale.Current = moved()
	for _, req := range []broker.TxRequest[pgx.Tx]{{Request: request(c)}, {Request: stale}, surface(c, isFresh)} {
		for n := 1; n <= 3; n++ {
			tx, err := b.Begin(b.ctx)
			require.NoError(t, err)
			ctx, leave := context.WithCancel(b.ctx)
			flights := n
			_, err = b.ExecuteTx(ctx, cutTx{tx, &flights, leave}, req, b.txExecutor(b.never))
			refusedOrBroken(t, tx, err)
			if n == 1 && req.ReadSurface == nil {
				require.ErrorIs(t, err, contract.ErrInProgress, "it had been refused by then")
			}
			leave()
			_ = tx.Rollback(b.ctx)
		}
	}
}

// S28a: one that leaves while its confirm waits is not told a refusal: its transaction went with its connection.
func TestCallerLeavesDuringTheWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := newBench(t, waiting(t, db.Pool(t), patience), inTx, nil)
	c := b.propose("a")
	holder, err := b.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(b.ctx) }()
	_, err = b.executeIn(holder, request(c), apply)
	require.NoError(t, err)
	aside := db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	tx, err := aside.Begin(b.ctx)
	require.NoError(t, err)
	ctx, leave := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() {
		_, err := b.ExecuteTx(ctx, tx, broker.TxRequest[pgx.Tx]{Request: request(c)}, b.txExecutor(b.never))
		done <- err
	}()
	until(t, func() bool { return blocked(t, db.AdminPool(t)) })
	leave()
	refusedOrBroken(t, tx, within(t, done))
	_ = tx.Rollback(b.ctx)
}

// S28a: nor is one told a refusal whose connection ends just as its confirm is refused.
func TestConnectionEndsDuringTheRefusal(t *testing.T) {
	t.Parallel()
	b := newBench(t, waiting(t, pgtest.New(t).Pool(t), briefly), inTx, nil)
	c := b.propose("a")
	holder, err := b.Begin(b.ctx)
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(b.ctx) }()
	_, err = b.executeIn(holder, request(c), apply)
	require.NoError(t, err)
	for range 2 {
		tx, err := b.Begin(b.ctx)
		require.NoError(t, err)
		flights := 1
		cut := cutTx{tx, &flights, func() { _ = tx.Conn().Close(b.ctx) }}
		_, err = b.ExecuteTx(b.ctx, cut, broker.TxRequest[pgx.Tx]{Request: request(c)}, b.txExecutor(b.never))
		refusedOrBroken(t, tx, err)
		_ = tx.Rollback(b.ctx)
	}
}
