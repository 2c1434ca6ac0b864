package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
)

var strictLevels = []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable}

// snapshot is a transaction of that level whose snapshot has been taken.
func snapshot(b *bench[pgx.Tx], level pgx.TxIsoLevel) pgx.Tx {
	b.Helper()
	tx, err := b.Begin(b.ctx)
	require.NoError(b, err)
	b.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.ctx)) })
	_, err = tx.Exec(b.ctx, `SET TRANSACTION ISOLATION LEVEL `+string(level))
	require.NoError(b, err)
	require.NoError(b, b.Effect(b.ctx, tx, "snapshot taken"))
	return tx
}

// surface is a request whose surface is read in the transaction, by read.
func surface(c contract.OperationConfirmation, read func(context.Context, pgx.Tx) (contract.CurrentSurfaceState, error)) broker.TxRequest[pgx.Tx] {
	return broker.TxRequest[pgx.Tx]{Request: broker.Request{Tenant: firmA, Confirmation: c}, ReadSurface: read}
}

func isFresh(context.Context, pgx.Tx) (contract.CurrentSurfaceState, error) { return fresh, nil }

// strictly makes connections whose transactions are of that level by default.
func strictly(level pgx.TxIsoLevel) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level) }
}

// S11, S20, S31: a key that a proposal newer than the snapshot binds is not executed as if it had none.
func TestAcceptedKeyProposedAfterTheSnapshot(t *testing.T) {
	accept := broker.Config{ReplayWait: -1, AcceptUnmintedKeys: true}
	brief := accept
	brief.ProposalExpiry = 1
	b := onPostgres(t).with(accept)
	for _, level := range strictLevels {
		for name, propose := range map[string]func() (contract.OperationConfirmation, string){
			"key_reused": func() (contract.OperationConfirmation, string) { return otherContent(b.propose("a")), "key_reused" },
			"expired":    func() (contract.OperationConfirmation, string) { return b.with(brief).propose("a"), "expired" },
		} {
			for _, read := range []bool{false, true} {
				tx := snapshot(b, level)
				c, then := propose()
				req := broker.TxRequest[pgx.Tx]{Request: request(c)}
				if read {
					req = surface(c, isFresh)
				}
				_, err := b.ExecuteTx(b.ctx, tx, req, b.txExecutor(b.never))
				require.ErrorIs(t, err, contract.ErrRetryTx, "%s: %s, surface read inside: %t", level, name, read)
				require.NoError(t, b.Rollback(b.ctx, tx))
				assert.Equal(t, then, broker.AnswerOf(b.confirm(request(c), b.never)), "what a new snapshot tells")
			}
		}
	}
}

// S11, S20: the same for the broker's own transactions, under a role whose isolation is stricter by default: the proposal
// is committed while the claim, whose snapshot has been taken, waits for a lock.
func TestAcceptedKeyProposedDuringTheClaim(t *testing.T) {
	for _, level := range strictLevels {
		for _, mode := range []string{execute, perItem, atomically} {
			t.Run(fmt.Sprint(level, " ", mode), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				pool := db.Pool(t, strictly(level), func(c *pgxpool.Config) { c.MaxConns = 2 })
				b := newBench(t, waiting(t, pool, patience), mode, &broker.Config{ReplayWait: -1, AcceptUnmintedKeys: true})
				for range 2 { // every statement is prepared on both connections, so that the claim waits and not its preparation
					first, err := pool.Acquire(t.Context())
					require.NoError(t, err)
					_, err = b.confirm(request(proposal("warm").Confirmation(uuid.New())), apply)
					require.NoError(t, err)
					second, err := pool.Acquire(t.Context())
					require.NoError(t, err)
					first.Release()
					_, err = b.confirm(request(proposal("warm").Confirmation(uuid.New())), apply)
					require.NoError(t, err)
					second.Release()
				}
				minted := b.propose("a")
				admin, _ := lockTable(t, db, "SHARE")
				digest, err := contract.DigestOf(minted.Proposal())
				require.NoError(t, err)
				late := otherContent(proposal("a").Confirmation(uuid.New()))
				done := b.aside(request(late), b.never)
				until(t, func() bool { return blocked(t, db.AdminPool(t)) })
				_, err = admin.Exec(t.Context(), `INSERT INTO agents.agent_idempotency_key (firm_id, boundary, request_id, digest, claimed_at,
					expires_at, completed_at, content) SELECT firm_id, boundary, $1, $2, claimed_at, expires_at, completed_at, content
					FROM agents.agent_idempotency_key WHERE boundary = 'proposal' AND request_id = $3`,
					late.IdempotencyKey.String(), digest[:], minted.IdempotencyKey.String())
				require.NoError(t, err)
				require.NoError(t, admin.Commit(t.Context()))
				a := within(t, done)
				assert.Equal(t, "key_reused", a.String(), "%v", a.err)
			})
		}
	}
}

// S12: a serialization failure or a deadlock in the reader of the surface is the transaction's, also when the reader swallowed
// it; any other error that it swallowed is no fresh surface.
func TestReaderOfTheSurfaceMeetsAnSQLError(t *testing.T) {
	b := onPostgres(t)
	for _, state := range []string{"40001", "40P01"} {
		for _, swallow := range []bool{false, true} {
			c := b.propose("a")
			fails := 1
			req := surface(c, func(ctx context.Context, tx pgx.Tx) (contract.CurrentSurfaceState, error) {
				if fails--; fails >= 0 {
					if _, err := tx.Exec(ctx, sqlState(state)); !swallow {
						return contract.CurrentSurfaceState{}, fmt.Errorf("reading: %w", err)
					}
				}
				return fresh, nil
			})
			tx, err := b.Begin(b.ctx)
			require.NoError(t, err)
			_, err = b.ExecuteTx(b.ctx, tx, req, b.txExecutor(b.never))
			require.ErrorIs(t, err, contract.ErrRetryTx, "%s swallowed: %t", state, swallow)
			require.NoError(t, b.Rollback(b.ctx, tx))

			fails = 2
			res, err := b.ExecuteAtomic(b.ctx, req, b.txExecutor(apply))
			require.NoError(t, err, "%s swallowed: %t: the broker runs its own transaction again", state, swallow)
			assert.Equal(t, contract.Tally{Applied: 1}, res.Tally())
		}
	}
	for _, state := range []string{"55P03", "22012"} {
		c := b.propose("a")
		req := surface(c, func(ctx context.Context, tx pgx.Tx) (contract.CurrentSurfaceState, error) {
			_, _ = tx.Exec(ctx, sqlState(state))
			return fresh, nil
		})
		tx, err := b.Begin(b.ctx)
		require.NoError(t, err)
		_, err = b.ExecuteTx(b.ctx, tx, req, b.txExecutor(b.never))
		require.ErrorIs(t, err, contract.ErrUnavailable, state)
		require.NoError(t, b.Effect(b.ctx, tx, "own write"), "the transaction is still usable")
		require.NoError(t, b.Rollback(b.ctx, tx))
		_, err = b.ExecuteAtomic(b.ctx, req, b.txExecutor(b.never))
		require.ErrorIs(t, err, contract.ErrUnavailable, state)
		assert.Equal(t, broker.Proposed, b.phase(c))
	}
}

// S12: a real one: the surface was changed after the snapshot.
func TestSurfaceChangedAfterTheSnapshot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.AdminPool(t)
	_, err := admin.Exec(t.Context(), `CREATE TABLE surface (version text); INSERT INTO surface VALUES ('v1');
		GRANT SELECT, UPDATE ON surface TO `+pgtest.AppRole)
	require.NoError(t, err)
	b := newBench(t, postgres(t, db.Pool(t)), inTx, nil)
	for _, level := range strictLevels {
		c := b.propose("a")
		tx := snapshot(b, level)
		_, err = admin.Exec(t.Context(), `UPDATE surface SET version = 'v1'`)
		require.NoError(t, err)
		_, err = b.ExecuteTx(b.ctx, tx, surface(c, func(ctx context.Context, tx pgx.Tx) (contract.CurrentSurfaceState, error) {
			now := fresh
			return now, tx.QueryRow(ctx, `SELECT version FROM surface FOR SHARE`).Scan(&now.ContractVersion)
		}), b.txExecutor(b.never))
		require.ErrorIs(t, err, contract.ErrRetryTx, level)
		require.NoError(t, b.Rollback(b.ctx, tx))
	}
}

// S11: what an old snapshot does not show, and cannot be looked up beside it, is not concluded to be absent.
func TestLookupBesideASnapshotFails(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	one := db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	b := newBench(t, postgres(t, one), inTx, &broker.Config{ReplayWait: -1, StoreTimeout: 300 * time.Millisecond})
	other := newBench(t, postgres(t, db.Pool(t)), inTx, nil)
	for _, level := range strictLevels {
		tx := snapshot(b, level) // holds the only connection
		c := other.propose("a")
		_, err := b.executeIn(tx, request(c), b.never)
		require.ErrorIs(t, err, contract.ErrRetryTx, level)
		require.NoError(t, b.Rollback(b.ctx, tx))
		assert.Equal(t, broker.Proposed, other.phase(c))
	}
}

// S17, S14: a key that was running when the snapshot was taken and has been completed since is not told ambiguous.
func TestKeyCompletedAfterTheSnapshot(t *testing.T) {
	b := onPostgres(t)
	done := contract.EncodeOutcomes([]contract.OperationItemOutcome{{ItemID: marked("a"), State: contract.Applied}})
	for _, level := range strictLevels {
		c := b.propose("a")
		b.crashed(c, short, "")
		snapshots := [2]pgx.Tx{snapshot(b, level), snapshot(b, level)}
		b.Advance(2 * short) // the lease that the snapshots show is over
		s, err := b.Store.Own().Lookup(b.ctx, lookupOf(c))
		require.NoError(t, err)
		held := store.Fenced{ID: lookupOf(c).ID, Attempt: s.Claim.Attempt, Fence: s.Claim.Fence}
		require.NoError(t, b.Store.Own().Complete(b.ctx, store.CompleteParams{Fenced: held, Outcomes: done}))
		for i, req := range []broker.TxRequest[pgx.Tx]{{Request: request(c)}, surface(c, isFresh)} {
			_, err = b.ExecuteTx(b.ctx, snapshots[i], req, b.txExecutor(b.never))
			require.ErrorIs(t, err, contract.ErrRetryTx, "%s, surface read inside: %t", level, i == 1)
			require.NoError(t, b.Rollback(b.ctx, snapshots[i]))
		}
		res, err := b.confirm(request(c), b.never)
		require.NoError(t, err)
		assert.Equal(t, contract.Tally{Applied: 1}, res.Tally())
	}
}

// S12, S30: a role's stricter isolation is no business of who confirms: of many double taps one runs, and none of them, nor a
// lookup or a proposal beside them, is told to run a transaction again.
func TestStricterIsolationOfTheRole(t *testing.T) {
	const taps, keys = 12, 6
	for _, level := range strictLevels {
		for _, mode := range []string{execute, perItem, atomically} {
			t.Run(fmt.Sprint(level, " ", mode), func(t *testing.T) {
				t.Parallel()
				pool := pgtest.New(t).Pool(t, strictly(level), func(c *pgxpool.Config) { c.MaxConns = taps })
				b := newBench(t, waiting(t, pool, patience), mode, &broker.Config{ReplayWait: patience, StoreTimeout: patience})
				for range keys {
					c := b.propose("a", "b", "c")
					before := b.calls.Load()
					answers := make([]string, taps)
					var wg sync.WaitGroup
					start := make(chan struct{})
					for i := range taps {
						wg.Go(func() {
							<-start
							answers[i] = broker.AnswerOf(b.confirm(request(c), apply))
							if _, err := b.Lookup(b.ctx, firmA, c.IdempotencyKey); err != nil && !errors.Is(err, contract.ErrInProgress) {
								t.Errorf("lookup: %v", err)
							}
							if _, err := b.Propose(b.ctx, firmA, proposal("n")); err != nil {
								t.Errorf("propose: %v", err)
							}
						})
					}
					close(start)
					wg.Wait()
					tally := map[string]int{}
					for _, a := range answers {
						tally[a]++
					}
					require.Equal(t, map[string]int{"executed": 1, "replayed": taps - 1}, tally)
					if mode != atomically { // there an executor is run again with its transaction
						assert.EqualValues(t, 3, b.calls.Load()-before)
					}
				}
				if b.inDatabase() {
					assert.Equal(t, keys, b.effects("a"))
				}
			})
		}
	}
}
