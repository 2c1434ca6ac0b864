package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"modernc.org/sqlite"
)

// loan is the transaction that an executor was lent, from Begin to its end, or while Isolate calls: while it stands, nothing commits
// on the writer's connection. So an executor cannot commit it, and what one writes after it has ended it - or after SQLite has, as it does
// when a context interrupts a write - does not commit statement by statement.
//
// There is one connection, so the loan is over when the pool hands it out again.
type loan struct{ tx atomic.Pointer[sql.Tx] }

// give lends tx.
func (l *loan) give(tx *sql.Tx) { l.tx.Store(tx) }

// during lends tx until the function that it returns is called, unless it is lent already.
func (l *loan) during(tx *sql.Tx) (end func()) {
	if !l.tx.CompareAndSwap(nil, tx) {
		return func() {}
	}
	return func() { l.back(tx) }
}

// back ends the loan of tx. It says whether it stood until now, so that nothing of tx is committed.
func (l *loan) back(tx *sql.Tx) bool { return l.tx.CompareAndSwap(tx, nil) }

// refuses is SQLite's commit hook: not 0 makes a ROLLBACK of a commit.
func (l *loan) refuses() int32 {
	if l.tx.Load() != nil {
		return 1
	}
	return 0
}

// lending opens connections that ask the loan before they commit.
type lending struct {
	driver.Connector
	loan *loan
}

// Connect implements [driver.Connector].
func (c lending) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	whole, ok := conn.(driverConn)
	if !ok {
		return nil, errors.Join(errors.New("sqlitestore: the driver's connections have changed"), conn.Close())
	}
	c.loan.tx.Store(nil)
	whole.RegisterCommitHook(c.loan.refuses)
	return lentConn{whole, c.loan}, nil
}

// driverConn is what the driver's connections are to database/sql, and have besides.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	sqlite.HookRegisterer
}

// lentConn ends the loan when the pool hands it out.
type lentConn struct {
	driverConn
	loan *loan
}

// ResetSession implements [driver.SessionResetter]: database/sql calls it before whoever gets the connection uses it.
func (c lentConn) ResetSession(ctx context.Context) error {
	c.loan.tx.Store(nil)
	return c.driverConn.ResetSession(ctx)
}

// Unwrap lets the driver's own functions see the connection.
func (c lentConn) Unwrap() driver.Conn { return c.driverConn }
