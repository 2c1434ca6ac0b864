package brokertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

func onlyConnection(c *pgxpool.Config) { c.MaxConns = 1 }

func withSetting(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

// S19: whoever reads a key, or cancels it, while its confirm is being committed waits for the end of that: what is told then is
// still true later.
func TestReadersWaitForACommitUnderWay(t *testing.T) {
	for _, landed := range []bool{true, false} {
		for name, c := range map[string]struct {
			read              func(b *bench[pgx.Tx], c contract.OperationConfirmation) (string, error)
			landed, otherwise string
		}{
			"lookup": {func(b *bench[pgx.Tx], c contract.OperationConfirmation) (string, error) {
				st, err := b.Lookup(b.ctx, firmA, c.IdempotencyKey)
				if err != nil {
					return "", err
				}
				return string(st.Phase), nil
			}, "completed", "proposed"},
			"cancel": {func(b *bench[pgx.Tx], c contract.OperationConfirmation) (string, error) {
				return broker.AnswerOf(b.Cancel(b.ctx, firmA, c.IdempotencyKey)), nil
			}, "replayed", "cancelled"},
			"resolve": {func(b *bench[pgx.Tx], c contract.OperationConfirmation) (string, error) {
				return broker.AnswerOf(b.Resolve(b.ctx, resolution(c), nil)), nil
			}, "replayed", broker.AnswerOf(nil, contract.ErrNotConfirmed)},
		} {
			t.Run(fmt.Sprintf("%s, landed %t", name, landed), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				b := newBench(t, waiting(t, db.Pool(t), patience), inTx, &broker.Config{ReplayWait: -1, StoreTimeout: patience})
				key := b.propose("a")
				tx, err := b.Begin(b.ctx)
				require.NoError(t, err)
				_, err = b.executeIn(tx, request(key), apply)
				require.NoError(t, err)
				done := make(chan string, 1)
				go func() {
					told, err := c.read(b, key)
					assert.NoError(t, err)
					done <- told
				}()
				until(t, func() bool { return blocked(t, db.AdminPool(t)) || len(done) > 0 })
				require.Empty(t, done, "it was told before the end of the commit was known")
				if landed {
					require.NoError(t, b.Commit(b.ctx, tx))
					assert.Equal(t, c.landed, within(t, done))
				} else {
					require.NoError(t, b.Rollback(b.ctx, tx))
					assert.Equal(t, c.otherwise, within(t, done))
				}
			})
		}
	}
}

// S12, S14: a write of the broker's own whose reply is lost while it is still on its way is waited for, not concluded to be
// absent: it lands after the broker has begun to look for it.
func TestLostWriteIsStillUnderWay(t *testing.T) {
	for name, c := range map[string]struct{ mode, write string }{
		"the claim":                  {execute, "claim"},
		"the claim of the items":     {perItem, "claim"},
		"an item's commit":           {perItem, "commit"},
		"the commit":                 {atomically, "commit"},
		"the completion":             {execute, "complete"},
		"the completion of the rest": {perItem, "complete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			admin, pool := db.AdminPool(t), db.Pool(t)
			h := waiting(t, pool, patience)
			inner := h.Store
			s := spy(&h)
			b := newBench(t, h, c.mode, &broker.Config{ReplayWait: -1, StoreTimeout: patience})
			key := b.propose("a", "b")
			var once sync.Once
			concluded, ended := make(chan struct{}), make(chan error, 1)
			later := func(end func() error) { // when the broker waits for it, or has concluded without waiting
				go func() {
					until(t, func() bool {
						select {
						case <-concluded:
							return true
						default:
							return blocked(t, admin)
						}
					})
					ended <- end()
				}()
			}
			lose := func(hang func() func() error, pass func() error) error {
				err := pass
				once.Do(func() {
					later(hang())
					err = func() error { return errLost }
				})
				return err()
			}
			inTransaction := func(do func(store.Claims) error) func() error {
				tx, err := pool.Begin(b.ctx)
				require.NoError(t, err)
				require.NoError(t, do(inner.In(tx)))
				return func() error { return tx.Commit(context.WithoutCancel(b.ctx)) }
			}
			switch c.write {
			case "claim":
				s.claim = func(ctx context.Context, p store.ClaimParams, pass func() (store.Standing, error)) (st store.Standing, err error) {
					err = lose(func() func() error {
						return inTransaction(func(in store.Claims) error { _, err := in.Claim(ctx, p); return err })
					}, func() error { st, err = pass(); return err })
					return st, err
				}
			case "complete":
				s.complete = func(p store.CompleteParams, pass func() error) error {
					return lose(func() func() error {
						return inTransaction(func(in store.Claims) error { return in.Complete(b.ctx, p) })
					}, pass)
				}
			case "commit":
				s.commit = func(_ pgx.Tx, _ store.Closing, pass func() error) error {
					return lose(func() func() error { return pass }, pass)
				}
			}
			a := within(t, b.aside(request(key), apply))
			close(concluded)
			require.NoError(t, within(t, ended))
			require.NoError(t, a.err)
			assert.Equal(t, contract.Tally{Applied: 2}, a.res.Tally())
			assert.EqualValues(t, 2, b.calls.Load())
			again, err := b.confirm(request(key), b.never)
			require.NoError(t, err)
			assert.Equal(t, a.res.Outcomes, again.Outcomes)
		})
	}
}

// S30, S19: a double tap that waits for a claim which is not committed yet concludes nothing until it is: neither that the
// surface has moved, nor that the key has expired, nor nothing at all.
func TestWaitForAClaimUnderWay(t *testing.T) {
	for _, mode := range []string{execute, perItem, atomically} {
		for _, name := range []string{"fresh", "stale", "expired"} {
			t.Run(mode+" "+name, func(t *testing.T) {
				t.Parallel()
				h := waiting(t, pgtest.New(t).Pool(t), briefly)
				s := spy(&h)
				var looks atomic.Int32
				s.lookup = func(p store.LookupParams, pass func() (store.Standing, error)) (store.Standing, error) {
					if !p.Barrier {
						defer looks.Add(1)
					}
					return pass()
				}
				b := newBench(t, h, mode, &broker.Config{ReplayWait: patience})
				c := b.propose("a")
				if name == "expired" {
					c = b.with(broker.Config{ProposalExpiry: expiry}).propose("a")
				}
				tx, err := b.Begin(b.ctx)
				require.NoError(t, err)
				_, err = b.executeIn(tx, request(c), apply)
				require.NoError(t, err)
				req := request(c)
				switch name {
				case "stale":
					req.Current = moved()
				case "expired":
					b.Advance(expiry)
				}
				done := b.aside(req, b.never)
				until(t, func() bool { return looks.Load() >= 3 || len(done) > 0 })
				require.Empty(t, done, "it was told before the claim was committed")
				require.NoError(t, b.Commit(b.ctx, tx))
				a := within(t, done)
				assert.Equal(t, "replayed", a.String(), "%v", a.err)
			})
		}
	}
}

// S30: when the store fails while a double tap waits, what was known before is still the answer.
func TestStoreFailsDuringTheWait(t *testing.T) {
	for _, mode := range []string{execute, perItem, atomically} {
		onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
			s := spy(&h)
			s.lookup = func(p store.LookupParams, pass func() (store.Standing, error)) (store.Standing, error) {
				if !p.Barrier {
					return store.Standing{}, errLost
				}
				return pass()
			}
			b := newBench(t, h, mode, &broker.Config{ReplayWait: patience})
			c := b.propose("a")
			b.crashed(c, long, "")
			a := within(t, b.aside(request(c), b.never))
			require.ErrorIs(t, a.err, contract.ErrInProgress, mode)
			code, ok := contract.CodeOf(a.err)
			require.True(t, ok)
			assert.Equal(t, contract.AlreadyExists, code)
			_, raw := a.err.(*store.Error)
			assert.False(t, raw)
			assert.ErrorIs(t, a.err, errLost, "with its cause")
		})
	}
}
