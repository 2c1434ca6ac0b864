package traps

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
)

// batch sends statements in one flight and returns the first error.
func batch(ctx context.Context, tx pgx.Tx, statements ...string) error {
	b := &pgx.Batch{}
	for _, sql := range statements {
		b.Queue(sql)
	}
	return tx.SendBatch(ctx, b).Close()
}

// Trap 1, the wrong form: a savepoint that travels with the next item's new SQL does not stand when that SQL cannot be
// prepared, because pgx prepares it first. The ROLLBACK TO then undoes the item before: it was told as applied, and is lost.
func TestPipelinedSavepointsLoseAnItem(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, lost := range map[string]bool{"cache statement": true, "cache describe": true, "exec": false} {
		t.Run(name, func(t *testing.T) {
			pool := db.Pool(t, alone(modes[name]))
			tx := begin(t, pool)
			must(t, tx, `SAVEPOINT s`)
			must(t, tx, `INSERT INTO effect (name) VALUES ($1)`, name)
			err := batch(t.Context(), tx, `RELEASE SAVEPOINT s`, `SAVEPOINT s`, `INSERT INTO absent (name) VALUES ('x')`)
			sqlState(t, "42P01", err)
			must(t, tx, `ROLLBACK TO SAVEPOINT s`)
			require.NoError(t, tx.Commit(t.Context()), "and nobody is told")
			assert.Equal(t, lost, effects(t, pool, name) == 0)
		})
	}
}

// badSQL fails before it runs, where a statement is prepared, or at its start.
var badSQL = map[string]struct{ sql, state string }{
	"no such table":       {`INSERT INTO absent (name) VALUES ('x')`, "42P01"},
	"no such column":      {`INSERT INTO effect (absent) VALUES ('x')`, "42703"},
	"syntax":              {`INSERT INTOO effect (name) VALUES ('x')`, "42601"},
	"type":                {`INSERT INTO effect (name) VALUES ('x'::int)`, "22P02"},
	"no such function":    {`INSERT INTO effect (name) VALUES (absent(1))`, "42883"},
	"no right to schema":  {`INSERT INTO secret.effect (name) VALUES ('x')`, "42501"},
	"no right to table":   {`INSERT INTO readonly (name) VALUES ('x')`, "42501"},
	"parameters missing":  {`INSERT INTO effect (name) VALUES ($1)`, "pgx"},
	"two statements":      {`INSERT INTO effect (name) VALUES ('x'); SELECT 1/0`, "22012"},
	"division at its run": {`INSERT INTO effect (name) SELECT (1/n)::text FROM generate_series(1, 0, -1) n`, "22012"},
}

// S15: traps 1 and 2: whichever item's SQL is new and fails, and however pgx sends it, on a connection that nothing was
// prepared on: what ExecuteTx tells as applied is committed, and nothing else is. The items after it have new SQL too.
func TestItemsWithNewSQL(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			warm := on(t, db.Pool(t))
			for name := range badSQL {
				for bad := range 3 {
					cold := on(t, db.Pool(t, alone(modes[mode])))
					itemWithBadSQL(t, cold, warm, name, bad, mode)
					cold.pool.Close()
				}
			}
		})
	}
}

func itemWithBadSQL(t *testing.T, cold, warm *bench, name string, bad int, mode string) {
	t.Helper()
	ids := []string{}
	for i := range 3 {
		ids = append(ids, fmt.Sprintf("%s/%s/%d/%d", mode, name, bad, i))
	}
	res, err := cold.confirm(warm.propose(ids...), func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
		_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO effect (name) VALUES ($1) /* %s */`, it.ID), it.ID)
		require.NoError(t, err)
		if it.Index != bad {
			return broker.Applied(it.ID), nil
		}
		_, err = tx.Exec(ctx, badSQL[name].sql)
		require.Error(t, err)
		if state := badSQL[name].state; state != "pgx" {
			sqlState(t, state, err)
		}
		return broker.Applied(it.ID), err
	})
	require.NoError(t, err, "%s, item %d", name, bad)
	for i, o := range res.Outcomes {
		want, rows := contract.Applied, 1
		if i == bad {
			want, rows = contract.Failed, 0
		}
		assert.Equal(t, want, o.State, "%s, item %d of bad %d", name, i, bad)
		assert.Equal(t, rows, effects(t, warm.pool, ids[i]), "%s, item %d of bad %d", name, i, bad)
	}
}

// S15: the same for an executor that sends the new SQL as a batch, or after a first statement that stands.
func TestItemsWithNewSQLInABatch(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for mode := range modes {
		b := on(t, db.Pool(t, alone(modes[mode])))
		ids := []string{mode + "/0", mode + "/1", mode + "/2"}
		res, err := b.confirm(b.propose(ids...), func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			q := &pgx.Batch{}
			q.Queue(`INSERT INTO effect (name) VALUES ($1) -- `+it.ID, it.ID)
			if it.Index == 1 {
				q.Queue(`INSERT INTO absent (name) VALUES ($1)`, it.ID)
			}
			return broker.Applied(it.ID), tx.SendBatch(ctx, q).Close()
		})
		require.NoError(t, err, mode)
		assert.Equal(t, []contract.OutcomeState{contract.Applied, contract.Failed, contract.Applied}, states(res), mode)
		for i, want := range []int{1, 0, 1} {
			assert.Equal(t, want, effects(t, b.pool, ids[i]), ids[i])
		}
	}
}

// Trap 2, the wrong form: ROLLBACK TO in one flight with new SQL fails in an aborted transaction, because the SQL is
// prepared before the ROLLBACK TO has run. TestItemsWithNewSQL shows that ours goes on.
func TestRollbackToInOneFlightWithNewSQL(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, fails := range map[string]bool{"cache statement": true, "cache describe": true, "exec": false} {
		pool := db.Pool(t, alone(modes[name]))
		tx := begin(t, pool)
		must(t, tx, `SAVEPOINT s`)
		_, err := tx.Exec(t.Context(), `SELECT 1/0`)
		require.Error(t, err)
		err = batch(t.Context(), tx, `ROLLBACK TO SAVEPOINT s`, `INSERT INTO effect (name) VALUES ('new') -- `+name)
		if !fails {
			require.NoError(t, err, name)
			continue
		}
		sqlState(t, "25P02", err, name)
	}
}

// standing tells whether a savepoint of that name stands in tx. It looks from a savepoint of its own, which it takes back.
func standing(t *testing.T, tx pgx.Tx, name string) bool {
	t.Helper()
	must(t, tx, `SAVEPOINT looking`)
	_, err := tx.Exec(t.Context(), `ROLLBACK TO SAVEPOINT `+name)
	if err != nil {
		sqlState(t, "3B001", err)
		must(t, tx, `ROLLBACK TO SAVEPOINT looking; RELEASE SAVEPOINT looking`)
		return false
	}
	return true
}

// S15, S28a: trap 7: no savepoint of the store's is left in the caller's transaction, whichever items fail, the last one too.
func TestSavepointsAreReleased(t *testing.T) {
	t.Parallel()
	b := on(t, pgtest.New(t).Pool(t))
	for _, fails := range []string{"", "0", "1", "2", "012", "12"} {
		tx := b.begin()
		_, err := b.ExecuteTx(t.Context(), tx, txRequest(b.propose("a", "b", "c")),
			func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
				if strings.Contains(fails, fmt.Sprint(it.Index)) {
					_, err := tx.Exec(ctx, `SELECT 1/0`)
					return broker.Outcome{}, err
				}
				return insert(ctx, tx, it)
			})
		require.NoError(t, err)
		for _, name := range []string{"confirmexec", "confirmexec_item"} {
			assert.False(t, standing(t, tx, name), "%s, when items %q fail", name, fails)
		}
		require.NoError(t, tx.Commit(t.Context()))
	}
	tx := b.begin()
	must(t, tx, `SAVEPOINT confirmexec_item`)
	assert.True(t, standing(t, tx, "confirmexec_item"), "a savepoint that stands is seen")
}

// overflowed tells whether a snapshot of another session finds a transaction with more subtransactions than the server
// caches. The snapshot file says so.
func overflowed(t *testing.T, db *pgtest.DB) bool {
	t.Helper()
	admin := db.AdminPool(t)
	must(t, admin, `SELECT pg_current_xact_id()`) // a snapshot looks closely only at what began before something that has ended
	tx := begin(t, admin, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	id := one[string](t, tx, `SELECT pg_export_snapshot()`)
	file := one[string](t, tx, `SELECT pg_read_file('pg_snapshots/' || $1)`, id)
	require.NoError(t, tx.Rollback(t.Context()))
	return strings.Contains(file, "sof:1")
}

// Trap 7: the most items that ExecuteTx takes do not overflow the server's cache of subtransactions, which holds 64, together with
// the claim's and the completion's.
func TestMostItemsFitTheSubtransactionCache(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := on(t, db.Pool(t))
	full := func(n int) bool {
		tx := b.begin()
		res, err := b.ExecuteTx(t.Context(), tx, txRequest(b.propose(ids(n)...)), insert)
		require.NoError(t, err)
		require.Equal(t, n, res.Tally().Applied)
		full := overflowed(t, db)
		require.NoError(t, tx.Rollback(t.Context()))
		return full
	}
	const cache = 64
	assert.False(t, full(broker.MaxTxItems))

	tx := b.begin()
	_, err := b.st.Isolate(t.Context(), tx, cache+1, func(_ int, tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO effect (name) VALUES ('x')`)
		return err
	})
	require.NoError(t, err)
	assert.True(t, overflowed(t, db), "an overflow is seen")
}
