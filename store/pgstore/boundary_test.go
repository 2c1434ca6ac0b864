package pgstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// proposed is a key of the firm with a proposal.
func proposed(t *testing.T, st *pgstore.Store, firm string) store.ID {
	t.Helper()
	id := store.ID{Tenant: firm, Key: uuid.New()}
	require.NoError(t, st.Own().Propose(t.Context(),
		store.ProposeParams{ID: id, Digest: contract.Digest{1}, Content: []byte("{}"), Expiry: time.Hour}))
	return id
}

func claimOf(id store.ID) store.ClaimParams {
	return store.ClaimParams{ID: id, Digest: contract.Digest{1}, Attempt: uuid.New(), Mode: store.ModeAtomic, Lease: time.Hour}
}

func setting(t *testing.T, tx pgx.Tx, name string) string {
	t.Helper()
	var v string
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT coalesce(current_setting($1, true), '')`, name).Scan(&v))
	return v
}

func begin(t *testing.T, p *pgxpool.Pool, opts pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := p.BeginTx(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	return tx
}

// S16, S27: row-level security hides one firm's rows from another, also from SQL that forgets the firm, and a connection
// that served a firm shows nothing to whoever comes next without one.
func TestRowSecurity(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	st := pgstore.New(p)
	id := proposed(t, st, "firm-a")
	_, err := st.Own().Claim(t.Context(), claimOf(id))
	require.NoError(t, err)
	rows := func(tx pgx.Tx) (n int) {
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM agents.agent_idempotency_key`).Scan(&n))
		return n
	}
	for firm, want := range map[string]int{"firm-a": 2, "firm-b": 0, "": 0} {
		require.NoError(t, pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT set_config('app.firm_id', $1, true)`, firm)
			require.NoError(t, err)
			assert.Equal(t, want, rows(tx), "as %q", firm)
			return nil
		}))
	}
	tx := begin(t, p, pgx.TxOptions{})
	assert.Zero(t, rows(tx), "with no firm bound, on a connection that had one")
	_, err = tx.Exec(t.Context(), `INSERT INTO agents.agent_idempotency_key (firm_id, boundary) VALUES ('firm-a', 'other')`)
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe)
	assert.Equal(t, "42501", pe.Code)
}

// S28a: in a caller's transaction the tenant is bound if unset, accepted if equal and refused otherwise without touching it;
// the lock timeout is restored; after the refusal the transaction is usable.
func TestCallersTransaction(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	st := pgstore.New(p)
	for _, c := range []struct{ bound, after string }{{"", "firm-a"}, {"firm-a", "firm-a"}, {"firm-b", "firm-b"}} {
		id := proposed(t, st, "firm-a")
		tx := begin(t, p, pgx.TxOptions{})
		_, err := tx.Exec(t.Context(), `SELECT set_config('app.firm_id', $1, true), set_config('lock_timeout', '1234ms', true)`, c.bound)
		require.NoError(t, err)
		s, err := st.In(tx).Claim(t.Context(), claimOf(id))
		if c.bound == "firm-b" {
			require.ErrorIs(t, err, store.ErrTenantMismatch)
			err := st.In(tx).Propose(t.Context(), store.ProposeParams{ID: store.ID{Tenant: "firm-a", Key: uuid.New()}, Expiry: time.Hour})
			require.ErrorIs(t, err, store.ErrTenantMismatch)
			_, err = st.In(tx).Lookup(t.Context(), store.LookupParams{ID: id, Barrier: true})
			require.ErrorIs(t, err, store.ErrTenantMismatch)
		} else {
			require.NoError(t, err)
			require.NotNil(t, s.Claim)
		}
		assert.Equal(t, c.after, setting(t, tx, "app.firm_id"))
		assert.Equal(t, "1234ms", setting(t, tx, "lock_timeout"))
		require.NoError(t, tx.Commit(t.Context()))
		s, err = st.Own().Lookup(t.Context(), store.LookupParams{ID: id})
		require.NoError(t, err)
		assert.Equal(t, c.bound != "firm-b", s.Claim != nil)
	}
}

// S28a: a wait for another transaction's claim ends with the lock timeout, the caller's own timeout is restored and the
// transaction stays usable.
func TestCallersTransactionAfterLockTimeout(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	st, err := pgstore.NewWithConfig(p, pgstore.Config{LockTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	id := proposed(t, st, "firm-a")
	first, second := begin(t, p, pgx.TxOptions{}), begin(t, p, pgx.TxOptions{})
	_, err = st.In(first).Claim(t.Context(), claimOf(id))
	require.NoError(t, err)
	_, err = second.Exec(t.Context(), `SET LOCAL lock_timeout = '777ms'`)
	require.NoError(t, err)
	_, err = st.In(second).Claim(t.Context(), claimOf(id))
	require.ErrorIs(t, err, store.ErrLockTimeout)
	assert.Equal(t, "777ms", setting(t, second, "lock_timeout"))
	require.NoError(t, first.Commit(t.Context()))
	s, err := st.In(second).Claim(t.Context(), claimOf(id))
	require.NoError(t, err)
	require.NotNil(t, s.Claim)
}

// S28b: a claim commits with synchronous_commit at least on, also for a role whose default is off; remote_apply is never lowered.
func TestSynchronousCommit(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	st := pgstore.New(p)
	for role, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		id := proposed(t, st, "firm-a")
		tx := begin(t, p, pgx.TxOptions{})
		_, err := tx.Exec(t.Context(), `SELECT set_config('synchronous_commit', $1, true)`, role)
		require.NoError(t, err)
		_, err = st.In(tx).Claim(t.Context(), claimOf(id))
		require.NoError(t, err)
		assert.Equal(t, want, setting(t, tx, "synchronous_commit"), "role default %s", role)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// S12, S28a: under REPEATABLE READ and SERIALIZABLE a claim that was lost after the snapshot is never a first run nor a
// wrong answer: the transaction must be run again.
func TestFixedSnapshots(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	st := pgstore.New(p)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		id := proposed(t, st, "firm-a")
		tx := begin(t, p, pgx.TxOptions{IsoLevel: level})
		s, err := st.In(tx).Lookup(t.Context(), store.LookupParams{ID: id})
		require.NoError(t, err)
		assert.True(t, s.FixedSnapshot)
		_, err = st.Own().Claim(t.Context(), claimOf(id)) // another one wins after the snapshot
		require.NoError(t, err)
		_, err = st.In(tx).Claim(t.Context(), claimOf(id))
		require.ErrorIs(t, err, store.ErrRetryTx)
		_, err = st.In(tx).Lookup(t.Context(), store.LookupParams{ID: id, Barrier: true})
		require.ErrorIs(t, err, store.ErrRetryTx)
	}
}

// S15: an executor that swallows an SQL error does not get its item kept, and the cause is the first error, however it was
// met; the items around it are kept.
func TestSwallowedErrors(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	st := pgstore.New(p)
	ctx := t.Context()
	swallow := map[string]func(pgx.Tx){
		"exec":  func(tx pgx.Tx) { _, _ = tx.Exec(ctx, `SELECT 1/0`) },
		"query": func(tx pgx.Tx) { rows, _ := tx.Query(ctx, `SELECT 1/n FROM generate_series(1, 0, -1) n`); rows.Close() },
		"collect": func(tx pgx.Tx) {
			rows, _ := tx.Query(ctx, `SELECT 1/n FROM generate_series(1, 0, -1) n`)
			_, _ = pgx.CollectRows(rows, pgx.RowTo[int])
		},
		"row": func(tx pgx.Tx) { _ = tx.QueryRow(ctx, `SELECT 1/0`).Scan(new(int)) },
		"batch": func(tx pgx.Tx) {
			b := &pgx.Batch{}
			b.Queue(`SELECT 1/0`)
			_ = tx.SendBatch(ctx, b).Close()
		},
		"copy": func(tx pgx.Tx) {
			_, _ = tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"name"}, pgx.CopyFromRows([][]any{{nil}}))
		},
		"then another": func(tx pgx.Tx) {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			_, _ = tx.Exec(ctx, `SELECT 1`) // 25P02 must not hide the first cause
		},
	}
	for name, fn := range swallow {
		tx := begin(t, p, pgx.TxOptions{})
		undone, err := st.Isolate(ctx, tx, 3, func(i int, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO effect (name) VALUES ($1)`, name)
			if i == 1 {
				fn(tx)
			}
			return err
		})
		require.NoError(t, err, name)
		assert.NoError(t, undone[0], name)
		var pe *pgconn.PgError
		require.ErrorAs(t, undone[1], &pe, name)
		assert.Contains(t, []string{"22012", "23502"}, pe.Code, name)
		assert.NoError(t, undone[2], name)
		require.NoError(t, tx.Commit(ctx))
		var n int
		require.NoError(t, p.QueryRow(ctx, `SELECT count(*) FROM effect WHERE name = $1`, name).Scan(&n))
		assert.Equal(t, 2, n, name)
	}
}

// S15: an item whose executor handled its error in a transaction that it nested is kept: nothing of it was lost.
func TestNestedTransactions(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	ctx := t.Context()
	tx := begin(t, p, pgx.TxOptions{})
	undone, err := pgstore.New(p).Isolate(ctx, tx, 2, func(_ int, tx pgx.Tx) error {
		nested, err := tx.Begin(ctx)
		require.NoError(t, err)
		_, err = nested.Exec(ctx, `SELECT 1/0`)
		require.Error(t, err)
		require.NoError(t, nested.Rollback(ctx))
		_, err = tx.Exec(ctx, `INSERT INTO effect (name) VALUES ('kept')`)
		return err
	})
	require.NoError(t, err)
	assert.Equal(t, []error{nil, nil}, undone)
}

// S15, S28a: the transaction that an executor gets refuses to end; one that is ended by SQL text is noticed.
func TestExecutorEndsTransaction(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	st := pgstore.New(p)
	ctx := t.Context()
	tx := begin(t, p, pgx.TxOptions{})
	undone, err := st.Isolate(ctx, tx, 2, func(i int, tx pgx.Tx) error {
		if i == 0 {
			return tx.Commit(ctx)
		}
		return tx.Rollback(ctx)
	})
	require.NoError(t, err)
	assert.ErrorContains(t, undone[0], "must not end")
	assert.ErrorContains(t, undone[1], "must not end")
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		tx := begin(t, p, pgx.TxOptions{})
		_, err = st.Isolate(ctx, tx, 2, func(_ int, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, end)
			return err
		})
		require.ErrorIs(t, err, store.ErrTxEnded, end)
	}
}

// A serialization failure or a deadlock inside an item is the transaction's, also when the executor swallowed it.
func TestRetryIsTheTransactions(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	st := pgstore.New(p)
	ctx := t.Context()
	for _, swallow := range []bool{false, true} {
		for _, state := range []string{"40001", "40P01"} {
			tx := begin(t, p, pgx.TxOptions{})
			ran := 0
			_, err := st.Isolate(ctx, tx, 2, func(_ int, tx pgx.Tx) error {
				ran++
				_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '`+state+`'; END $$`)
				require.Error(t, err)
				if swallow {
					return nil
				}
				return errors.Join(errors.New("wrapped"), err)
			})
			require.ErrorIs(t, err, store.ErrRetryTx)
			assert.Equal(t, 1, ran, "nothing runs after it")
		}
	}
}

// S22: no text of the database, which quotes values, reaches an error of the store.
func TestErrorsQuoteNothing(t *testing.T) {
	t.Parallel()
	p := pgtest.NewEmpty(t).Pool(t) // no table
	st := pgstore.New(p)
	_, err := st.Own().Claim(t.Context(), claimOf(store.ID{Tenant: "plantedmarker", Key: uuid.New()}))
	var se *store.Error
	require.ErrorAs(t, err, &se)
	assert.Equal(t, "42P01", se.Code)
	assert.NoError(t, se.Kind)
	assert.Equal(t, "pgstore: claim: the database could not be used (42P01)", err.Error())
}
