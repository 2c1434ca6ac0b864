package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/confirmexec/confirmexec/store"
)

// write runs body in a transaction of its own. ctx and the lock timeout bound the wait for the writer; what follows is
// not interrupted, because SQLite then undoes it and because a commit that is half way must be known.
func (s *Store) write(ctx context.Context, op string, body func(context.Context, querier) error) error {
	if err := ctx.Err(); err != nil {
		return fault(op, err)
	}
	wait, cancel := context.WithTimeout(ctx, s.lockTimeout)
	defer cancel()
	conn, err := s.writer.Conn(wait)
	if err != nil {
		return waitFault(wait, op, err)
	}
	defer func() { _ = conn.Close() }() // back to its pool
	ctx = context.WithoutCancel(ctx)
	if _, err := conn.ExecContext(wait, "BEGIN IMMEDIATE"); err != nil {
		_, _ = conn.ExecContext(ctx, "ROLLBACK") // wait may have ended just after it began
		return waitFault(wait, op, err)
	}
	doubt := s.doubt.Load()
	err = body(ctx, conn)
	if err == nil && doubt {
		err = overwrite(ctx, conn)
	}
	if err != nil {
		abandon(ctx, conn)
		return fault(op, err)
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		abandon(ctx, conn)
		s.doubt.Store(true)
		return fault(op, err)
	}
	if doubt {
		s.doubt.Store(false)
	}
	return nil
}

// overwrite makes sure that a COMMIT that failed half way never comes true. SQLite has forgotten it, but as long as
// nothing is written over it in the log, the next recovery of the file may find it there. So what reads behind the
// barrier writes.
func overwrite(ctx context.Context, q querier) error {
	for _, step := range []int{1, -1} { // to write the same again is not to write
		if _, err := q.ExecContext(ctx, touchVersion, step); err != nil {
			return err
		}
	}
	return nil
}

// abandon rolls conn's transaction back. A connection that cannot even do that is not used again.
func abandon(ctx context.Context, conn *sql.Conn) {
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// read runs body on a connection that cannot write and waits for no writer.
func (s *Store) read(ctx context.Context, op string, body func(context.Context, querier) error) error {
	wait, cancel := context.WithTimeout(ctx, s.lockTimeout)
	defer cancel()
	err := body(wait, s.readers)
	if err == nil || ctx.Err() != nil {
		return fault(op, err)
	}
	return waitFault(wait, op, err)
}

// callerTx is a transaction that a caller began and ends.
type callerTx struct{ tx *sql.Tx }

// read runs body in the caller's transaction. Like write it lets no context interrupt a statement: SQLite would roll
// the whole transaction back.
func (t callerTx) read(ctx context.Context, op string, body func(context.Context, querier) error) error {
	if err := ctx.Err(); err != nil {
		return fault(op, err)
	}
	ctx = context.WithoutCancel(ctx)
	if err := t.begun(ctx); err != nil {
		return fault(op, err)
	}
	return fault(op, body(ctx, t.tx))
}

// write runs body in a savepoint, so that an error half way leaves nothing of it in the caller's transaction.
func (t callerTx) write(ctx context.Context, op string, body func(context.Context, querier) error) error {
	return t.read(ctx, op, func(ctx context.Context, q querier) error {
		if _, err := q.ExecContext(ctx, "SAVEPOINT confirmexec_write"); err != nil {
			return broken(ctx, op, err, nil)
		}
		err := body(ctx, q)
		if err != nil {
			_, _ = q.ExecContext(ctx, "ROLLBACK TO confirmexec_write")
		}
		if _, err2 := q.ExecContext(ctx, "RELEASE confirmexec_write"); err == nil && err2 != nil {
			return broken(ctx, op, err2, nil)
		}
		return err
	})
}

// begun makes sure that the transaction is still one. After a COMMIT or ROLLBACK in text, database/sql believes in a
// transaction that SQLite has ended, and every statement would commit by itself. Within one, BEGIN is an error that
// changes nothing.
func (t callerTx) begun(ctx context.Context) error {
	_, err := t.tx.ExecContext(ctx, "BEGIN")
	if err == nil {
		_, _ = t.tx.ExecContext(ctx, "ROLLBACK")
		return store.ErrTxEnded
	}
	if isPlainError(err) {
		return nil
	}
	return err
}
