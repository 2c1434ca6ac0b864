package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Finding is one reason why a database cannot keep the library's promises.
type Finding struct {
	Kind    string // "schema", "role", "row_security", "privilege" or "durability"
	Problem string
	Fix     string
}

// CheckError is what [Check] found. Its text names settings, roles, and objects of the schema, and nothing of any row.
type CheckError struct {
	Findings []Finding
}

// Error tells every finding on a line of its own.
func (e *CheckError) Error() string {
	lines := make([]string, len(e.Findings))
	for i, f := range e.Findings {
		lines[i] = fmt.Sprintf("%s: %s; %s", f.Kind, f.Problem, f.Fix)
	}
	return "pgstore: check: the database cannot keep the promises:\n  " + strings.Join(lines, "\n  ")
}

// Check tells whether a service that connects like pool may rely on the database: the table is as [Migrate] made it, the role
// is bound by row-level security whose policies tell tenants apart and has the privileges that it needs, and acknowledged commits
// survive a crash. Of a policy of the table's owner's own it only sees whether it names the tenant's column. Call it
// at the start of a service, with its own pool, and do not start when it fails. It changes nothing.
//
// The error is a *[CheckError] with everything that was found, or the fault that kept it from looking. A nil cfg means the
// defaults.
func Check(ctx context.Context, pool *pgxpool.Pool, cfg *Config) error {
	c, err := orDefault(cfg)
	if err != nil {
		return err
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		return fault("check", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it holds nothing but the expected schema, for comparison
	findings, err := check(ctx, tx, c)
	switch {
	case err != nil:
		return fault("check", err)
	case len(findings) > 0:
		return &CheckError{findings}
	}
	return nil
}

func check(ctx context.Context, tx pgx.Tx, c Config) (findings []Finding, err error) {
	for _, look := range []func(context.Context, pgx.Tx, Config) ([]Finding, error){checkServer, checkRole, checkTable} {
		found, err := look(ctx, tx, c)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

// fact is something that must not be so.
type fact struct {
	is bool
	Finding
}

func those(facts ...fact) (findings []Finding) {
	for _, f := range facts {
		if f.is {
			findings = append(findings, f.Finding)
		}
	}
	return findings
}

const serverSQL = `SELECT pg_is_in_recovery(), current_setting('fsync') <> 'on', current_setting('full_page_writes') <> 'on'`

func checkServer(ctx context.Context, tx pgx.Tx, _ Config) ([]Finding, error) {
	var standby, noFsync, tornPages bool
	if err := tx.QueryRow(ctx, serverSQL).Scan(&standby, &noFsync, &tornPages); err != nil {
		return nil, err
	}
	return those(
		fact{standby, Finding{"durability", "the server is a standby", "connect with target_session_attrs=read-write"}},
		fact{noFsync, Finding{"durability", "fsync is off, so that acknowledged commits can be lost", "set fsync = on"}},
		fact{tornPages, Finding{"durability", "full_page_writes is off, so that a crash can tear pages", "set full_page_writes = on"}},
	), nil
}

const roleSQL = `SELECT bool_or(rolsuper), bool_or(rolbypassrls),
    (SELECT NOT bool_and(has_function_privilege(oid, 'EXECUTE')) FROM pg_proc WHERE proname = 'pg_logical_emit_message')
  FROM pg_roles WHERE rolname IN (current_user, session_user)`

func checkRole(ctx context.Context, tx pgx.Tx, _ Config) ([]Finding, error) {
	var super, bypass, mute bool
	if err := tx.QueryRow(ctx, roleSQL).Scan(&super, &bypass, &mute); err != nil {
		return nil, err
	}
	const fix = "connect as a plain role: NOSUPERUSER NOBYPASSRLS"
	return those(
		fact{super, Finding{"role", "the role is a superuser, whom row security does not bind", fix}},
		fact{bypass, Finding{"role", "the role has BYPASSRLS", fix}},
		fact{mute, Finding{"privilege", "the role may not call pg_logical_emit_message, without which no commit whose reply was lost can be told",
			"GRANT EXECUTE ON FUNCTION pg_logical_emit_message(boolean, text, text) TO the role"}},
	), nil
}

// A role that has an owner's rights by membership is an owner.
const tableSQL = `SELECT relrowsecurity, relforcerowsecurity, pg_has_role(current_user, relowner, 'USAGE'),
    has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE'), relpersistence <> 'p'
  FROM pg_class WHERE oid = to_regclass({table_literal})`

func checkTable(ctx context.Context, tx pgx.Tx, c Config) ([]Finding, error) {
	var secured, forced, owner, privileged, unlogged bool
	err := tx.QueryRow(ctx, c.render(tableSQL)).Scan(&secured, &forced, &owner, &privileged, &unlogged)
	if errors.Is(err, pgx.ErrNoRows) || sqlState(err) == "42501" {
		return []Finding{{"schema", "the claim table does not exist, or the role may not see its schema",
			"run pgstore.Migrate and pgstore.GrantSQL"}}, nil
	}
	if err != nil {
		return nil, err
	}
	findings := those(
		fact{!secured, Finding{"row_security", "row security is off", "run pgstore.EnableRowSecurity"}},
		fact{secured && !forced && owner, Finding{"row_security", "the role owns the table and row security is not forced",
			"ALTER TABLE … FORCE ROW LEVEL SECURITY, or connect as a role that does not own it"}},
		fact{!privileged, Finding{"privilege", "the role may not select, insert and update", "run what pgstore.GrantSQL returns"}},
		fact{unlogged, Finding{"durability", "the claim table is not logged, so that a crash empties it", "ALTER TABLE … SET LOGGED"}},
	)
	open, policies, err := checkPolicies(ctx, tx, c)
	if err != nil {
		return nil, err
	}
	drift, err := checkDrift(ctx, tx, c, policies)
	return slices.Concat(findings, open, drift), err
}

// Policies are the table's owner's to choose. But permissive ones widen each other: each must tell tenants apart.
const policiesSQL = `SELECT polname, polname = 'confirmexec_tenant', polpermissive
    AND (strpos(coalesce(pg_get_expr(polqual, polrelid), {tenant_literal}), {tenant_literal}) = 0
      OR strpos(coalesce(pg_get_expr(polwithcheck, polrelid), {tenant_literal}), {tenant_literal}) = 0)
  FROM pg_policy WHERE polrelid = {table_literal}::regclass
   AND EXISTS (SELECT FROM unnest(polroles) r WHERE CASE WHEN r = 0 THEN true ELSE pg_has_role(current_user, r, 'USAGE') END)`

// checkPolicies also says whether the policy of EnableRowSecurity is to be there: it is, or there is no other.
func checkPolicies(ctx context.Context, tx pgx.Tx, c Config) (findings []Finding, ours bool, err error) {
	rows, err := tx.Query(ctx, c.render(policiesSQL))
	if err != nil {
		return nil, false, err
	}
	others := false
	var name string
	var own, open bool
	_, err = pgx.ForEachRow(rows, []any{&name, &own, &open}, func() error {
		ours, others = ours || own, others || !own
		findings = append(findings, those(fact{open, Finding{"row_security", "the policy " + name + " does not tell tenants apart",
			"drop it, or make it compare the tenant's column with the tenant that is bound"}})...)
		return nil
	})
	return findings, ours || !others, err
}

// The parts of the schema that are this library's, one line each.
const partsSQL = `SELECT 'column ' || attname || ' ' || format_type(atttypid, atttypmod)
      || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
    FROM pg_attribute WHERE attrelid = {table_literal}::regclass AND attname = ANY (ARRAY['item_id', 'digest', 'attempt', 'fence', 'mode',
      'claimed_at', 'lease_until', 'expires_at', 'completed_at', 'content', 'outcomes', 'unsettled'])
  UNION ALL SELECT 'constraint ' || conname || ' ' || pg_get_constraintdef(oid)
    FROM pg_constraint WHERE conrelid = {table_literal}::regclass AND conname LIKE 'confirmexec\_%'
  UNION ALL SELECT 'index ' || relname || CASE WHEN indisunique THEN ' unique' ELSE '' END
      || CASE WHEN indisvalid THEN '' ELSE ' invalid' END || regexp_replace(pg_get_indexdef(indexrelid), '^.* USING', '')
    FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
   WHERE indrelid = {table_literal}::regclass AND relname IN ('{name}_operation', '{name}_proposal', '{name}_item', '{name}_observation',
     '{name}_value')
  UNION ALL SELECT 'policy ' || polname || CASE WHEN polpermissive THEN '' ELSE ' restrictive' END || ' for ' || polcmd::text || ' to '
      || polroles::text || ' using ' || coalesce(pg_get_expr(polqual, polrelid), '-')
      || ' check ' || coalesce(pg_get_expr(polwithcheck, polrelid), '-')
    FROM pg_policy WHERE polrelid = {table_literal}::regclass AND polname LIKE 'confirmexec\_%'`

// checkDrift compares the table with what Migrate makes: it makes that anew, as a temporary table over the same columns of the
// owner's, and lets the server describe both. With policies it has the policy of EnableRowSecurity.
func checkDrift(ctx context.Context, tx pgx.Tx, c Config, policies bool) ([]Finding, error) {
	live, err := parts(ctx, tx, c)
	if err != nil {
		return nil, err
	}
	model := c
	model.Schema = "pg_temp"
	err = makeModel(ctx, tx, c, model, policies)
	if sqlState(err) == "42501" {
		return []Finding{{"schema", "the table cannot be compared, since the role may not create temporary tables",
			"GRANT TEMPORARY ON DATABASE …, or run Check as another role as well"}}, nil
	}
	if err != nil {
		return nil, err
	}
	want, err := parts(ctx, tx, model)
	if err != nil {
		return nil, err
	}
	const fix = "restore it as pgstore.Migrations has it"
	var findings []Finding
	for _, part := range want {
		if !slices.Contains(live, part) {
			findings = append(findings, Finding{"schema", "missing or changed: " + part, fix})
		}
	}
	for _, part := range live {
		if !slices.Contains(want, part) {
			findings = append(findings, Finding{"schema", "not as expected: " + part, fix})
		}
	}
	return findings, nil
}

func makeModel(ctx context.Context, tx pgx.Tx, c, model Config, policies bool) error {
	up, err := embedded.ReadFile("migrations/0001_claims.up.sql")
	if err != nil {
		return err
	}
	text := strings.Replace(string(up), "CREATE SCHEMA IF NOT EXISTS {schema};", "", 1)
	steps := []string{
		`CREATE TEMPORARY TABLE {name} AS SELECT {tenant}, boundary, request_id, step, tool, sha FROM ` + c.render("{table}") + ` WITH NO DATA`,
		text,
	}
	if policies {
		steps = append(steps, rowSecurityDo)
	}
	for _, sql := range steps {
		if _, err := tx.Exec(ctx, model.render(sql)); err != nil {
			return err
		}
	}
	return nil
}

func parts(ctx context.Context, tx pgx.Tx, c Config) ([]string, error) {
	rows, err := tx.Query(ctx, c.render(partsSQL))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func sqlState(err error) string {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pe.Code
	}
	return ""
}
