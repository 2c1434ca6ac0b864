package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
)

// newPostgres is an empty database and the URL of its owner.
func newPostgres(t *testing.T) *pgtest.DB {
	t.Helper()
	db := pgtest.NewEmpty(t)
	if !isPostgres(db.AdminDSN) {
		t.Skip("SKIPPED: needs CONFIRMEXEC_TEST_DSN as a URL")
	}
	return db
}

// S16, S18, S27: the whole walk on PostgreSQL, from an empty database and again, as a plain role under row-level
// security. Not in parallel: the role's password is the server's.
func TestWalkOnPostgres(t *testing.T) {
	db, dir := newPostgres(t), t.TempDir()
	var walks []ran
	for range 2 {
		walks = append(walks, start(t, dir, "", "-json", "-ledger", "ledger.jsonl", "-database", db.AdminDSN))
	}
	for _, w := range walks {
		checkWalk(t, w)
		assert.Contains(t, w.err, "confirmexec_examples (no superuser, no BYPASSRLS); row-level security is forced\n")
	}
	checkLedger(t, filepath.Join(dir, "ledger.jsonl"), walks...)

	confirmation, key := proposed(t, dir, "-database", db.AdminDSN)
	assert.Equal(t, exitOK, start(t, dir, confirmation, "confirm", "-database", db.AdminDSN).status)
	looked := start(t, dir, "", "lookup", "-database", db.AdminDSN, key)
	assert.Contains(t, looked.out, `"phase": "completed"`)

	var forumRows, owned int
	pool := db.AdminPool(t)
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM confirmexec_examples.forum`).Scan(&forumRows))
	assert.Equal(t, 4, forumRows, "two of each walk")
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
		WHERE r.rolname = $1`, plainRole).Scan(&owned))
	assert.Equal(t, 0, owned, "the plain role owns nothing")
}

// S16: a role that row-level security does not bind is refused, and so is a table without it.
func TestPostgresRoleIsChecked(t *testing.T) {
	db := newPostgres(t)
	plain, err := preparePostgres(t.Context(), db.AdminDSN)
	require.NoError(t, err)
	admin := db.AdminPool(t)
	_, _, err = checkRole(t.Context(), admin)
	require.ErrorContains(t, err, "row-level security does not bind the role")

	opened, err := connect(t.Context(), plain)
	require.NoError(t, err)
	require.NoError(t, opened.close())
	_, err = admin.Exec(t.Context(), `ALTER TABLE agents.agent_idempotency_key NO FORCE ROW LEVEL SECURITY`)
	require.NoError(t, err)
	_, err = connect(t.Context(), plain)
	require.ErrorContains(t, err, "forced false")
}

func TestWithRole(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://owner:secret@db.example:5433/app?sslmode=require&user=owner&password=secret"
	got, err := withRole(dsn, "plain", "p")
	require.NoError(t, err)
	assert.Equal(t, "postgres://plain:p@db.example:5433/app?sslmode=require", got)
	_, err = withRole("postgres://owner:secret@[broken/app", "plain", "p")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
}
