// Package pgstore is the [store.Store] on PostgreSQL, through pgx v5. It is the only package for importers that
// imports pgx; examples and internal do too.
//
// A claim, its completion and a replay are one network round trip each: the tenant's binding, the lock timeout and the
// statements travel as one pipelined batch, which PostgreSQL runs as one transaction. "Exactly once" is decided by one
// INSERT … ON CONFLICT DO NOTHING against a partial unique index; see claimSQL in sql.go.
//
// A versioned value is a row of the same table. It is held, for its transaction or as the guard of a claim, by a FOR SHARE lock, which
// its changes wait for: a check within the write, without that lock, lets through a writer whose value is being changed. An advisory
// lock besides keeps the waits fair; nothing rests on it.
//
// The table is meant to be used by a plain role under forced row-level security. The tenant is bound inside each
// transaction only, and every statement names it as well. Nothing needs a session: PgBouncer in transaction mode works with
// the pool's default query mode set to pgx.QueryExecModeCacheDescribe or QueryExecModeExec.
//
// A commit that a synchronous standby has not acknowledged can be seen once its wait was cancelled, and a failover loses it. A lookup that
// awaits writes therefore ends with a commit that writes to the log, by pg_logical_emit_message with the prefix confirmexec, and so
// waits for the standby too; every other lookup tells what can be seen.
//
// Supported are PostgreSQL 15 to 18, of which the workflow tests the oldest and the newest.
//
// [Migrate] makes the table; [GrantSQL] is what the service's role needs; [Check] says at the start of a service whether the
// database can keep the promises.
package pgstore
