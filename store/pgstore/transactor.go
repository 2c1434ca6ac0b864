package pgstore

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/store"
)

// ownedTx is a transaction that Begin made: it is ended through the store only, and notes SQL errors like every lent one.
type ownedTx struct {
	lentTx
	conn *pgxpool.Conn
}

// ownedMark is a savepoint that only the transaction that Begin made has: one that an executor began instead does not.
const ownedMark = "confirmexec_owned"

var errNotOwned = errors.New("pgstore: not a transaction that Begin made")

// Begin implements [store.Transactor].
func (s *Store) Begin(ctx context.Context, o store.Opening) (pgx.Tx, store.Standing, error) {
	var standing store.Standing
	if err := validOpening(o); err != nil {
		return nil, standing, invalid("begin", err)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, standing, fault("begin", err)
	}
	g := guardsOf(o.Tenant, o.Guards)
	var steps []step
	if o.Claim != nil {
		g.all = append(slices.Clone(g.all), o.Claim.Guards...)
		steps = s.sql.claimSteps(*o.Claim, &standing)
	}
	if o.Hold != nil {
		steps = append(steps, step{sql: s.sql.hold, args: heldArgs(*o.Hold), scan: func(r pgx.Row) error { return r.Scan(nil) }})
	}
	tx, err := s.begin(ctx, conn, surround(step{sql: s.sql.bind, args: []any{o.Tenant}}, g.before(&s.sql, steps),
		step{sql: restoreSQL}, step{sql: "SAVEPOINT " + ownedMark}))
	if err == nil && g.met {
		return &ownedTx{lentTx: lentTx{Tx: tx, seen: &seen{}}, conn: conn}, standing, nil
	}
	if tx != nil {
		undo(ctx, tx)
	}
	conn.Release()
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrFenced
	}
	if !g.met {
		err = store.ErrGuard
	}
	if sqlState(err) == divisionByZero { // the key expired while the claim waited
		err = errors.Join(store.ErrRetryTx, err)
	}
	return nil, store.Standing{}, fault("begin", err)
}

// undo rolls a transaction back that has failed, or gives its connection up: nothing may wait for that without a bound.
func undo(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := undoing(ctx)
	defer cancel()
	_ = tx.Rollback(ctx)
}

func validOpening(o store.Opening) error {
	err := store.ValidateGuards(o.Guards)
	if err == nil && o.Claim != nil {
		err = store.ValidateGuards(o.Claim.Guards)
	}
	return err
}

// begin begins with steps. On a connection that has not seen all of them the lock timeout goes first, as in a flight of the store's own;
// the steps then find it as it was, and set and restore it as they always do.
func (s *Store) begin(ctx context.Context, conn *pgxpool.Conn, steps []step) (pgx.Tx, error) {
	known := knownTo(conn.Conn())
	if known.all(steps) {
		tx, err := beginWith(ctx, conn, steps)
		return tx, known.learn(steps, err)
	}
	tx, err := conn.Conn().BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, err
	}
	if _, err = tx.Exec(ctx, s.sql.wait); err != nil {
		return tx, err
	}
	return tx, known.learn(steps, run(ctx, tx, surround(step{sql: restoreSQL}, steps)))
}

// beginWith sends BEGIN and steps in one flight. The transaction is nil if it was not begun.
func beginWith(ctx context.Context, conn *pgxpool.Conn, steps []step) (pgx.Tx, error) {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	for _, st := range steps {
		b.Queue(st.sql, st.args...)
	}
	results := conn.SendBatch(ctx, b)
	tx := results.Tx()
	_, err := results.Exec()
	if err = beside(err); err == nil {
		err = read(results, steps)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return tx, err
}

// Commit implements [store.Transactor]. What is known of a COMMIT that failed is told by commitFault.
func (s *Store) Commit(ctx context.Context, tx pgx.Tx, c store.Closing) error {
	own, ok := tx.(*ownedTx)
	if !ok {
		return fault("commit", errNotOwned)
	}
	defer own.conn.Release()
	own.takeBack()
	if ended(own) {
		return fault("commit", store.ErrTxEnded)
	}
	var n int64
	steps := []step{{sql: "RELEASE SAVEPOINT " + ownedMark}}
	if p := c.Progress; p != nil {
		steps = append(append(steps, step{sql: s.sql.guard, args: heldArgs(p.Fenced)}), s.sql.progressSteps(s.sql.finishItem, *p, &n)...)
	}
	if p := c.Complete; p != nil {
		steps = append(steps, step{sql: s.sql.guard, args: heldArgs(p.Fenced)}, s.sql.completeStep(*p, &n))
	}
	err := commitWith(ctx, own, steps)
	if err != nil && !own.conn.Conn().IsClosed() && own.conn.Conn().PgConn().TxStatus() != 'I' {
		undo(ctx, own.Tx)
	}
	return fault("commit", err)
}

func commitWith(ctx context.Context, own *ownedTx, steps []step) error {
	b := &pgx.Batch{}
	for _, st := range steps {
		b.Queue(st.sql, st.args...)
	}
	b.Queue("COMMIT")
	results := own.conn.SendBatch(ctx, b)
	before := read(results, steps)
	var tag pgconn.CommandTag
	var commit error
	if before == nil {
		tag, commit = results.Exec()
	}
	closeErr := results.Close()
	if before == nil && commit == nil && closeErr == nil && tag.String() == "COMMIT" {
		return nil
	}
	err := errors.Join(before, commit)
	if err == nil {
		err = closeErr
	}
	return commitFault(knownTo(own.conn.Conn()).learn(steps, err), before != nil, own)
}

// commitFault adds to the error of a COMMIT that it certainly did not happen, if that is so: the server said ROLLBACK; or it
// refused a statement before the COMMIT, which it then skipped; or it refused the COMMIT itself and is idle again. Errors of any
// other kind - fatal ones, a deadline, a connection that ended - leave it open.
func commitFault(err error, before bool, own *ownedTx) error {
	if err == nil { // the server answered the COMMIT of an aborted transaction with ROLLBACK
		return rolledBack(own.seen)
	}
	pe, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pe.SeverityUnlocalized != "ERROR" {
		return err
	}
	conn := own.conn.Conn()
	if !before && (conn.IsClosed() || conn.PgConn().TxStatus() != 'I') {
		return err
	}
	if kindOf(err) == store.ErrTxEnded { //nolint:errorlint // kindOf returns the sentinel itself
		return err // an executor ended the transaction: what became of what it wrote is not known
	}
	if pe.Code != abortedTransaction {
		_ = own.note(err)
	}
	return rolledBack(own.seen)
}

// rolledBack is what is told of a transaction that certainly was not committed, and what came first.
func rolledBack(s *seen) error {
	if s.retry != nil {
		return s.retry
	}
	return errors.Join(store.ErrNotCommitted, s.first)
}

// Retryable implements [store.Transactor].
func (s *Store) Retryable(tx pgx.Tx, err error) bool {
	own, ok := tx.(*ownedTx)
	if ok && ended(own) {
		return false
	}
	return ok && own.seen.retry != nil || kindOf(err) == store.ErrRetryTx //nolint:errorlint // kindOf returns the sentinel itself
}

// Rollback implements [store.Transactor].
func (s *Store) Rollback(ctx context.Context, tx pgx.Tx) error {
	own, ok := tx.(*ownedTx)
	if !ok {
		return fault("roll back", errNotOwned)
	}
	defer own.conn.Release()
	own.takeBack()
	conn := own.conn.Conn()
	if ended(own) {
		return fault("roll back", store.ErrTxEnded)
	}
	// Without the mark it is another transaction than the one that Begin made.
	_, err := conn.Exec(ctx, "ROLLBACK TO SAVEPOINT "+ownedMark+"; ROLLBACK")
	if err != nil {
		undo(ctx, own.Tx) // or the connection goes
	}
	return fault("roll back", err)
}
