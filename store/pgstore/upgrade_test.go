package pgstore_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// ownersTable is a claim table of a host application: other boundaries, checks that allow no other, types of its own.
const ownersTable = `CREATE SCHEMA agents;
	CREATE TABLE agents.agent_idempotency_key (
	  firm_id uuid NOT NULL, boundary text NOT NULL, request_id uuid, step text, tool text, sha text, note text NOT NULL DEFAULT '',
	  CONSTRAINT known CHECK (boundary IN ('registration', 'tool')),
	  CONSTRAINT shape CHECK (CASE boundary WHEN 'registration' THEN request_id IS NOT NULL WHEN 'tool' THEN tool IS NOT NULL ELSE false END));
	CREATE UNIQUE INDEX registration ON agents.agent_idempotency_key (firm_id, request_id) WHERE boundary = 'registration';
	INSERT INTO agents.agent_idempotency_key (firm_id, boundary, request_id)
	  SELECT '00000000-0000-4000-8000-00000000000a', 'registration', gen_random_uuid() FROM generate_series(1, 10)`

var upgraded = pgstore.Config{OtherBoundaries: []string{"registration", "tool"}}

func owners(t *testing.T) (db *pgtest.DB, admin *pgxpool.Pool) {
	t.Helper()
	db = pgtest.NewEmpty(t)
	admin = db.AdminPool(t)
	_, err := admin.Exec(t.Context(), ownersTable)
	require.NoError(t, err)
	return db, admin
}

// describe is everything about the table that its owner could miss.
func describe(t *testing.T, admin *pgxpool.Pool) (text string) {
	t.Helper()
	err := admin.QueryRow(t.Context(), `SELECT concat_ws(E'\n',
		(SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attnotnull, E'\n' ORDER BY attname)
		   FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
		(SELECT string_agg(conname || ' ' || pg_get_constraintdef(oid), E'\n' ORDER BY conname) FROM pg_constraint WHERE conrelid = c.oid),
		(SELECT string_agg(pg_get_indexdef(indexrelid), E'\n' ORDER BY 1) FROM pg_index WHERE indrelid = c.oid),
		relrowsecurity, relforcerowsecurity) FROM pg_class c WHERE oid = 'agents.agent_idempotency_key'::regclass`).Scan(&text)
	require.NoError(t, err)
	return text
}

func count(t *testing.T, admin *pgxpool.Pool, where string) (n int) {
	t.Helper()
	require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM agents.agent_idempotency_key WHERE `+where).Scan(&n))
	return n
}

// S24, S26: a table that holds other boundaries' rows is extended: its rows stay, its owner's checks go on to hold for them,
// its row security stays off, and the library works beside it; going down leaves it exactly as it was.
func TestUpgradeOfAnOwnersTable(t *testing.T) {
	t.Parallel()
	db, admin := owners(t)
	before := describe(t, admin)
	require.NoError(t, pgstore.Migrate(t.Context(), admin, &upgraded))
	assert.Equal(t, 10, count(t, admin, "boundary = 'registration'"))
	assert.Contains(t, describe(t, admin), "\nf\nf", "row security is not ours to switch on")

	const insert = `INSERT INTO agents.agent_idempotency_key (firm_id, boundary, request_id) VALUES (gen_random_uuid(), `
	_, err := admin.Exec(t.Context(), insert+`'registration', gen_random_uuid())`)
	require.NoError(t, err, "the owner keeps working, with no tenant bound")
	_, err = admin.Exec(t.Context(), insert+`'registration', NULL)`)
	require.ErrorContains(t, err, `"shape"`, "under its own checks")
	_, err = admin.Exec(t.Context(), insert+`'unheard-of', NULL)`)
	require.Error(t, err)

	grants, err := pgstore.GrantSQL(&upgraded, pgtest.AppRole)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), grants)
	require.NoError(t, err)
	st, err := pgstore.NewWithConfig(db.Pool(t), upgraded)
	require.NoError(t, err)
	firm := uuid.NewString()
	claimAndComplete(t, st, firm)
	moved(t, st, firm, 0) // its name is no UUID, as the owner's request_id is

	require.ErrorIs(t, pgstore.MigrateDown(t.Context(), admin, &upgraded), pgstore.ErrOperationsExist)
	assert.Equal(t, 1, count(t, admin, "boundary = 'operation'"), "a refusal changes nothing")
	require.NoError(t, pgstore.MigrateDownDiscarding(t.Context(), admin, &upgraded))
	assert.Equal(t, before, describe(t, admin))
	assert.Equal(t, 11, count(t, admin, "true"))

	require.NoError(t, pgstore.Migrate(t.Context(), admin, &upgraded), "and up again")
	claimAndComplete(t, st, uuid.NewString())
}

// claimAndComplete takes a key of the firm through its life.
func claimAndComplete(t *testing.T, st *pgstore.Store, firm string) {
	t.Helper()
	id := proposed(t, st, firm)
	p := claimOf(id)
	p.FirstItem = "a"
	s, err := st.Own().Claim(t.Context(), p)
	require.NoError(t, err)
	require.NotNil(t, s.Claim)
	held := store.Fenced{ID: id, Attempt: p.Attempt, Fence: s.Claim.Fence}
	require.NoError(t, st.Own().Progress(t.Context(), store.ProgressParams{Fenced: held, Done: "a", Outcome: []byte("x"), Next: "b", Lease: time.Hour}))
	require.NoError(t, st.Own().Complete(t.Context(), store.CompleteParams{Fenced: held, Outcomes: []byte("y")}))
	s, err = st.Own().Lookup(t.Context(), store.LookupParams{ID: id, Barrier: true})
	require.NoError(t, err)
	assert.Equal(t, []byte("y"), s.Claim.Outcomes)
}

// S16, S24: switching row security on is a step of its own. After it the owner's rows are each tenant's own too.
func TestEnableRowSecurity(t *testing.T) {
	t.Parallel()
	db, admin := owners(t)
	require.NoError(t, pgstore.Migrate(t.Context(), admin, &upgraded))
	grants, err := pgstore.GrantSQL(&upgraded, pgtest.AppRole)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), grants)
	require.NoError(t, err)
	app := db.Pool(t)
	visible := func(firm string) (n int) {
		require.NoError(t, pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT set_config('app.firm_id', $1, true)`, firm)
			require.NoError(t, err)
			return tx.QueryRow(t.Context(), `SELECT count(*) FROM agents.agent_idempotency_key`).Scan(&n)
		}))
		return n
	}
	assert.Equal(t, 10, visible(uuid.NewString()))
	require.NoError(t, pgstore.EnableRowSecurity(t.Context(), admin, &upgraded))
	assert.Equal(t, 0, visible(uuid.NewString()))
	assert.Equal(t, 0, visible(""))
	assert.Equal(t, 10, visible("00000000-0000-4000-8000-00000000000a"))
	st, err := pgstore.NewWithConfig(app, upgraded)
	require.NoError(t, err)
	claimAndComplete(t, st, uuid.NewString())
	require.ErrorContains(t, pgstore.EnableRowSecurity(t.Context(), admin, &upgraded), "its owner's to change")
}

// S26: what cannot be extended is refused with what to do, and left as it was.
func TestUpgradeRefusals(t *testing.T) {
	t.Parallel()
	_, admin := owners(t)
	const table = `agents.agent_idempotency_key`
	refused := func(cfg pgstore.Config, want string) {
		before := describe(t, admin)
		require.ErrorContains(t, pgstore.Migrate(t.Context(), admin, &cfg), want)
		assert.Equal(t, before, describe(t, admin))
	}
	refused(pgstore.Config{OtherBoundaries: []string{"tool"}}, "OtherBoundaries")
	_, err := admin.Exec(t.Context(), `TRUNCATE `+table)
	require.NoError(t, err)
	for column, want := range map[string]string{
		`outcomes jsonb`:         "column outcomes of the claim table is of type jsonb, and must be bytea",
		`must text NOT NULL`:     "must be nullable or have a default: must",
		`mode character varying`: "column mode",
	} {
		_, err := admin.Exec(t.Context(), `ALTER TABLE `+table+` ADD COLUMN `+column)
		require.NoError(t, err)
		refused(upgraded, want)
		_, err = admin.Exec(t.Context(), `ALTER TABLE `+table+` DROP COLUMN `+strings.Fields(column)[0])
		require.NoError(t, err)
	}
}

// S26: a table that Migrate made goes away with MigrateDown, unless somebody else has come to use it.
func TestDownOfOwnTable(t *testing.T) {
	t.Parallel()
	admin := pgtest.NewEmpty(t).AdminPool(t)
	exists := func() (is bool) {
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT to_regclass('agents.agent_idempotency_key') IS NOT NULL`).Scan(&is))
		return is
	}
	cfg := pgstore.Config{OtherBoundaries: []string{"tool"}}
	for range 2 {
		require.NoError(t, pgstore.Migrate(t.Context(), admin, &cfg))
		proposed(t, pgstore.New(admin), "firm-a")
		require.NoError(t, pgstore.MigrateDown(t.Context(), admin, &cfg), "proposals alone protect nothing")
		assert.False(t, exists())
	}
	require.NoError(t, pgstore.MigrateDown(t.Context(), admin, &cfg), "down of nothing is nothing")
	require.NoError(t, pgstore.Migrate(t.Context(), admin, &cfg))
	_, err := admin.Exec(t.Context(), `INSERT INTO agents.agent_idempotency_key (firm_id, boundary, tool) VALUES ('firm-a', 'tool', 'x')`)
	require.NoError(t, err)
	moved(t, pgstore.New(admin), "firm-a", 0)
	require.ErrorIs(t, pgstore.MigrateDown(t.Context(), admin, &cfg), pgstore.ErrOperationsExist, "a value fences off what came before it")
	assert.Equal(t, 1, count(t, admin, "boundary = 'value'"), "a refusal changes nothing")
	require.NoError(t, pgstore.MigrateDownDiscarding(t.Context(), admin, &cfg))
	assert.Equal(t, 1, count(t, admin, "true"))
	assert.Equal(t, 1, count(t, admin, "boundary = 'tool'"))
	require.NoError(t, pgstore.Migrate(t.Context(), admin, &cfg), "and the library comes back to it")
}

// S26: under forced row security the owner sees no rows; the refusal to go down must see them all the same.
func TestDownSeesThroughRowSecurity(t *testing.T) {
	t.Parallel()
	db := pgtest.NewEmpty(t)
	admin := db.AdminPool(t)
	_, err := admin.Exec(t.Context(), `GRANT CREATE ON DATABASE `+pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize()+` TO `+pgtest.AppRole)
	require.NoError(t, err)
	owner := db.Pool(t) // a plain role that owns the table
	require.NoError(t, pgstore.Migrate(t.Context(), owner, nil))
	claimAndComplete(t, pgstore.New(owner), "firm-a")
	require.ErrorIs(t, pgstore.MigrateDown(t.Context(), owner, nil), pgstore.ErrOperationsExist)
	claimAndComplete(t, pgstore.New(owner), "firm-a")
	require.NoError(t, pgstore.MigrateDownDiscarding(t.Context(), owner, nil))
}

// S24: the raw SQL is a well-behaved file system that any migration tool can read, with the configured names in it.
func TestMigrationsFS(t *testing.T) {
	t.Parallel()
	fsys, err := pgstore.Migrations(&pgstore.Config{Schema: "acme", Table: "claims"})
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(fsys, "0001_claims.up.sql", "0001_claims.down.sql"))
	up, err := fs.ReadFile(fsys, "0001_claims.up.sql")
	require.NoError(t, err)
	assert.Contains(t, string(up), `"acme"."claims"`)
	assert.NotRegexp(t, `\{[a-z_]+\}`, string(up), "no name is left open")
	for _, boundary := range []string{"a'b", "value"} {
		_, err = pgstore.Migrations(&pgstore.Config{OtherBoundaries: []string{boundary}})
		require.ErrorContains(t, err, "OtherBoundaries/0")
	}

	down, err := fs.ReadFile(fsys, "0001_claims.down.sql")
	require.NoError(t, err)
	admin := pgtest.NewEmpty(t).AdminPool(t)
	for _, sql := range []string{string(up), string(down), string(up)} {
		require.NoError(t, pgx.BeginFunc(t.Context(), admin, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), sql)
			return err
		}))
	}
}
