package main

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
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
	var fsync string
	require.NoError(t, db.AdminPool(t).QueryRow(t.Context(), `SHOW fsync`).Scan(&fsync))
	for _, w := range walks {
		checkWalk(t, w)
		assert.Contains(t, w.err, "confirmexec_examples (no superuser, no BYPASSRLS); row-level security binds it\n")
		warned := strings.Contains(w.err, "\nWarning            fsync is off, so that acknowledged commits can be lost; set fsync = on\n")
		assert.Equal(t, fsync == "off", warned, w.err)
	}
	checkLedger(t, filepath.Join(dir, "ledger.jsonl"), walks...)

	confirmation, key := proposed(t, dir, "-database", db.AdminDSN)
	assert.Equal(t, exitOK, start(t, dir, confirmation, "confirm", "-database", db.AdminDSN).status)
	looked := start(t, dir, "", "lookup", "-database", db.AdminDSN, key)
	assert.Contains(t, looked.out, `"phase": "completed"`)

	settleKilled(t, t.TempDir(), "-database", db.AdminDSN)
	checkOperatorsSQL(t, db.AdminDSN)

	var forumRows, owned int
	pool := db.AdminPool(t)
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM confirmexec_examples.forum`).Scan(&forumRows))
	assert.GreaterOrEqual(t, forumRows, 10, "two of each transaction and one of each per-item")
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
		WHERE r.rolname = $1`, plainRole).Scan(&owned))
	assert.Equal(t, 0, owned, "the plain role owns nothing")
}

// S16, S27: the reply is lost, and nothing else is, however pgx sends its statements.
func TestLostCommitInEveryMode(t *testing.T) {
	db := newPostgres(t)
	u, err := url.Parse(db.AdminDSN)
	require.NoError(t, err)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec"} {
		query := u.Query()
		query.Set("default_query_exec_mode", mode)
		u.RawQuery = query.Encode()
		r := start(t, t.TempDir(), "", "lost-commit", "-database", u.String())
		assert.Equal(t, exitOK, r.status, "%s: %s%s", mode, r.out, r.err)
		assert.Contains(t, r.out, ": 1 reply lost.", mode)
	}
}

// checkOperatorsSQL runs the statements of the operators' page as the plain role.
func checkOperatorsSQL(t *testing.T, admin string) {
	t.Helper()
	plain, err := preparePostgres(t.Context(), admin)
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), plain)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	ask := func(sql string) [][][]byte {
		results, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
		require.NoError(t, err, sql)
		require.Len(t, results, 4)
		return results[2].Rows
	}
	pages := operatorsSQL(t)
	var standing []string
	list := ask(pages[0])
	for _, row := range list {
		var words []string
		for _, flag := range row[3:] {
			words = append(words, map[string]string{"t": "true", "f": "false"}[string(flag)])
		}
		standing = append(standing, string(row[1])+" "+strings.Join(words, " "))
	}
	checkStanding(t, standing)
	require.NotEmpty(t, list)
	one := ask(strings.Replace(pages[1], "01a22cfe-4eed-74f6-b0c0-c0bf9fa47b86", string(list[0][0]), 1))
	require.Len(t, one, 2, "the crash's operation and its proposal")
	assert.Equal(t, "operation", string(one[0][0]))
	assert.Contains(t, string(one[1][8]), `"op":"add_forum"`, "its content")
	assert.Len(t, ask(pages[3]), 2, "the one of each walk that was stale")
	assert.Empty(t, ask(strings.ReplaceAll(pages[0], "set_config('app.firm_id', 'firm-a'", "set_config('app.firm_id', 'firm-b'")))
}

// S16: a role that row-level security does not bind is refused, and so is a table without it.
func TestPostgresRoleIsChecked(t *testing.T) {
	db := newPostgres(t)
	plain, err := preparePostgres(t.Context(), db.AdminDSN)
	require.NoError(t, err)
	var super bool
	require.NoError(t, db.AdminPool(t).QueryRow(t.Context(), `SELECT rolsuper FROM pg_roles WHERE rolname = current_user`).Scan(&super))
	if super {
		_, err = connect(t.Context(), db.AdminDSN)
		require.ErrorContains(t, err, "role: the role is a superuser, whom row security does not bind")
		assert.NotContains(t, err.Error(), "fsync", "which is a warning here")
	}

	opened, err := connect(t.Context(), plain)
	require.NoError(t, err)
	require.NoError(t, opened.close())
	_, err = db.AdminPool(t).Exec(t.Context(), `ALTER TABLE agents.agent_idempotency_key DISABLE ROW LEVEL SECURITY`)
	require.NoError(t, err)
	_, err = connect(t.Context(), plain)
	require.ErrorContains(t, err, "row_security: row security is off")
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
