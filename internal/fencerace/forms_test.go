package fencerace

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/internal/pgtest/claims"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

func TestMain(m *testing.M) { pgtest.Main(m, schema) }

// schema makes the claim table, and one for what the writers write: in which round, and under which epoch.
var schema = claims.Schema(`CREATE TABLE public.written (round bigint NOT NULL, epoch bigint NOT NULL);
		CREATE INDEX ON public.written (round); CREATE INDEX ON public.written (epoch);
		GRANT SELECT, INSERT ON public.written TO {role}`)

const firm = "firm-a"

var epochID = store.ValueID{Tenant: firm, Name: "epoch"}

// race is a mover and its writers on one database.
type race struct {
	testing.TB
	pool *pgxpool.Pool
	st   *pgstore.Store
}

func newRace(t testing.TB) *race {
	t.Helper()
	pool := pgtest.New(t).Pool(t, func(c *pgxpool.Config) { c.MaxConns = 8 })
	r := &race{t, pool, pgstore.New(pool)}
	require.NoError(t, r.move(t.Context(), 0, nil))
	return r
}

// begin begins a transaction of the library's, which is READ COMMITTED.
func (r *race) begin(ctx context.Context) (pgx.Tx, error) {
	tx, _, err := r.st.Begin(ctx, store.Opening{ID: store.ID{Tenant: firm}})
	return tx, err
}

// move moves the epoch on from revision; moved, if set, looks at what stands before the commit.
func (r *race) move(ctx context.Context, revision int64, moved func(tx pgx.Tx) error) error {
	tx, err := r.begin(ctx)
	if err != nil {
		return err
	}
	_, err = r.st.Values(tx).Swap(ctx, store.SwapParams{ValueID: epochID, Revision: revision, Content: []byte("holder")})
	if err == nil && moved != nil {
		err = moved(tx)
	}
	if err != nil {
		return errors.Join(err, r.st.Rollback(ctx, tx))
	}
	return r.st.Commit(ctx, tx, store.Closing{})
}

func (r *race) epoch() int64 {
	r.Helper()
	tx, err := r.begin(r.Context())
	require.NoError(r, err)
	v, err := r.st.Values(tx).Load(r.Context(), epochID)
	require.NoError(r, err)
	require.NoError(r, r.st.Rollback(r.Context(), tx))
	return v.Revision
}

// form is a way for a writer to check the epoch and write, in a transaction that it begins: nil if it was refused.
type form func(ctx context.Context, r *race, round, epoch int64) (pgx.Tx, error)

// ours are the library's forms: the value is held, or a claim has it as its guard; and the row lock that they rest on, alone.
var ours = map[string]form{"held": held, "guard": guarded, "row lock": byHand("FOR SHARE")}

func held(ctx context.Context, r *race, round, epoch int64) (pgx.Tx, error) {
	tx, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	v, err := r.st.Values(tx).Hold(ctx, epochID)
	if err != nil || v.Revision != epoch {
		return nil, errors.Join(err, r.st.Rollback(ctx, tx))
	}
	return r.write(ctx, tx, round, epoch)
}

func guarded(ctx context.Context, r *race, round, epoch int64) (pgx.Tx, error) {
	id := store.ID{Tenant: firm, Key: uuid.New()}
	tx, _, err := r.st.Begin(ctx, store.Opening{ID: id, Claim: &store.ClaimParams{
		ID: id, Digest: contract.Digest{1}, Attempt: uuid.New(), Mode: store.ModeAtomic, AcceptUnminted: true, Content: []byte("{}"),
		Guards: []store.Guard{{Name: epochID.Name, Revision: epoch}},
	}})
	switch {
	case errors.Is(err, store.ErrGuard):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return r.write(ctx, tx, round, epoch)
}

func (r *race) write(ctx context.Context, tx pgx.Tx, round, epoch int64) (pgx.Tx, error) {
	if _, err := tx.Exec(ctx, `INSERT INTO written (round, epoch) VALUES ($1, $2)`, round, epoch); err != nil {
		return nil, errors.Join(err, r.st.Rollback(ctx, tx))
	}
	return tx, nil
}

// byHand is a form that checks within its write, under a lock of this strength.
func byHand(lock string) form {
	return func(ctx context.Context, r *race, round, epoch int64) (pgx.Tx, error) {
		tx, err := r.begin(ctx)
		if err != nil {
			return nil, err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO written (round, epoch) SELECT $1, $2::bigint WHERE EXISTS (
			SELECT FROM agents.agent_idempotency_key WHERE firm_id = $3 AND item_id = $4 AND boundary = 'value' AND fence = $2 `+lock+`)`,
			round, epoch, firm, epochID.Name)
		if err != nil || tag.RowsAffected() == 0 {
			return nil, errors.Join(err, r.st.Rollback(ctx, tx))
		}
		return tx, nil
	}
}

// end commits what a form has begun, and tells whether anything was written.
func (r *race) end(ctx context.Context, tx pgx.Tx, err error) (bool, error) {
	if tx == nil || err != nil {
		return false, err
	}
	return true, r.st.Commit(ctx, tx, store.Closing{})
}
