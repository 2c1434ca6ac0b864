package brokertest

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
)

// standby is the synchronous standby of a server that has none: its commits come back only while none is named. It is one for the
// whole server, so that its tests are not parallel.
type standby struct {
	t     *testing.T
	admin *pgxpool.Pool
}

func newStandby(t *testing.T, db *pgtest.DB) *standby {
	t.Helper()
	if os.Getenv("CONFIRMEXEC_TEST_DSN") != "" {
		t.Skip("SKIPPED: the server is not ours to configure")
	}
	return &standby{t, db.AdminPool(t)}
}

// goesAway returns when a commit waits for the standby, which comes back at the end of t at the latest.
func (s *standby) goesAway(t *testing.T) {
	t.Helper()
	t.Cleanup(s.comesBack)
	s.name("nobody")
	ctx, enough := context.WithCancel(t.Context())
	go func() {
		for s.write() == nil && ctx.Err() == nil { // the first ones may not have had to wait yet
		}
	}()
	until(t, func() bool { return s.waiting("") > 0 })
	enough()
}

// comesBack returns when commits do.
func (s *standby) comesBack() {
	s.t.Helper()
	s.name("")
	require.NoError(s.t, s.write())
}

func (s *standby) name(names string) {
	s.t.Helper()
	for _, sql := range []string{`ALTER SYSTEM SET synchronous_standby_names = '` + names + `'`, `SELECT pg_reload_conf()`} {
		_, err := s.admin.Exec(context.WithoutCancel(s.t.Context()), sql)
		require.NoError(s.t, err)
	}
}

func (s *standby) write() error {
	_, err := s.admin.Exec(context.WithoutCancel(s.t.Context()), `SELECT pg_logical_emit_message(true, 'test', '')`)
	return err
}

// waiting counts the commits of a role, or of all, that wait for the standby.
func (s *standby) waiting(role string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.admin.QueryRow(context.WithoutCancel(s.t.Context()),
		`SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND usename = coalesce(nullif($1, ''), usename)`, role).Scan(&n))
	return n
}

// afterLost calls f before a's attempt looks whether its commit, whose reply was lost, was made: by then it can be seen.
func afterLost(t *testing.T, s *spied[pgx.Tx], f func()) {
	t.Helper()
	s.lookup = func(p store.LookupParams, pass func() (store.Standing, error)) (store.Standing, error) {
		if p.AwaitWrites {
			until(t, func() bool {
				seen, err := s.Store.Own().Lookup(t.Context(), store.LookupParams{ID: p.ID})
				return err == nil && seen.Claim != nil
			})
			f()
		}
		return pass()
	}
}

// S28b, S12, S14: a commit that no synchronous standby has acknowledged can be seen, and is lost in a failover: it is not taken for
// made. Nothing runs under such a claim, and nothing is told of an operation that was committed so.
func TestCommitThatNoStandbyHas(t *testing.T) {
	db := pgtest.New(t)
	standby := newStandby(t, db)
	for _, mode := range []string{execute, perItem, atomically} {
		t.Run(mode, func(t *testing.T) {
			h := postgres(t, db.Pool(t))
			s := spy(&h)
			b := newBench(t, h, mode, &broker.Config{ReplayWait: -1, StoreTimeout: 5 * briefly})
			looked := 0
			afterLost(t, s, func() { looked++ })
			c := b.propose("a")
			standby.goesAway(t)
			exec := b.never
			if mode == atomically {
				exec = apply
			}
			res, err := b.confirm(request(c), exec)
			require.Equal(t, 1, looked)
			want := "unavailable"
			if mode == atomically {
				want = "ambiguous"
			}
			require.Equal(t, want, broker.AnswerOf(res, err), "%v", err)
			failure, _ := contract.FailureOf(err)
			assert.False(t, failure.KnownNoEffect())

			standby.comesBack()
			res, err = b.confirm(request(c), b.never)
			want = "in_progress"
			if mode == atomically {
				want = "replayed"
			}
			assert.Equal(t, want, broker.AnswerOf(res, err), "it was committed after all, and runs no more")
		})
	}
}

// S28b, S12, S14: a commit that a synchronous standby acknowledges late is waited for, and then is what it is.
func TestCommitThatTheStandbyHasLate(t *testing.T) {
	db := pgtest.New(t)
	standby := newStandby(t, db)
	for _, mode := range []string{execute, perItem, atomically} {
		t.Run(mode, func(t *testing.T) {
			h := postgres(t, db.Pool(t))
			s := spy(&h)
			b := newBench(t, h, mode, &broker.Config{ReplayWait: -1, StoreTimeout: 10 * briefly})
			back := make(chan struct{})
			afterLost(t, s, func() {
				go func() {
					defer close(back)
					until(t, func() bool { return standby.waiting(pgtest.AppRole) > 0 })
					standby.comesBack()
				}()
			})
			c := b.propose("a")
			standby.goesAway(t)
			res, err := b.confirm(request(c), apply)
			within(t, back)
			require.NoError(t, err)
			assert.Equal(t, contract.Tally{Applied: 1}, res.Tally())
			assert.EqualValues(t, 1, b.calls.Load())
		})
	}
}
