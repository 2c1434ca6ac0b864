package faultnet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
)

const (
	addNote   = "INSERT INTO note VALUES ($1, 'x')"
	patience  = 300 * time.Millisecond // of a client that is met with silence
	unlimited = 30 * time.Second
)

// Every fault that takes the connection, at every place: what the client sees of its statement, and what the server did.
func TestFaultsOfTheConnection(t *testing.T) {
	t.Parallel()
	reset := func(err error) bool {
		return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	}
	ended := func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) || reset(err) }
	gaveUp := func(err error) bool {
		var timeout net.Error
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
	}
	shutDown := func(err error) bool {
		var pe *pgconn.PgError
		return errors.As(err, &pe) && pe.Code == "57P01" && pe.SeverityUnlocalized == "FATAL"
	}
	for _, c := range []struct {
		kind Kind
		seen func(error) bool
		last bool // what the client sees of a connection that it uses after it was broken is the same
	}{
		{Reset, reset, true}, {HalfClose, ended, true}, {Silence, gaveUp, true}, {Partition, gaveUp, true}, {Fatal("57P01"), shutDown, false},
	} {
		for _, at := range Places {
			t.Run(c.kind.String()+" "+at.String(), func(t *testing.T) {
				t.Parallel()
				in, conn, admin := faulty(t)
				in.Arm(2, at, c.kind)
				require.NoError(t, add(conn, 1, unlimited))
				require.False(t, in.Fired())
				err := add(conn, 2, patience)
				if at == Replied {
					require.NoError(t, err)
					err = add(conn, 3, patience)
					require.Error(t, err)
					require.True(t, !c.last || c.seen(err), "%v", err)
				} else {
					require.True(t, c.seen(err), "%v", err)
				}
				require.True(t, in.Fired())
				in.Disarm()
				require.Error(t, add(conn, 4, patience), "the connection is of no use any more")
				wantNotes(t, admin, map[Place][]int{Before: {1}, Executed: {1, 2}, Replied: {1, 2}}[at]...)
				again := dial(t, in)
				require.NoError(t, add(again, 5, unlimited), "the next one is")
			})
		}
	}
}

// What is late is executed after the client was cut off, and after whoever reads meanwhile without a lock. A client that is cut off
// asks for a cancel over another connection, and whether that meets the late flight is chance: here it is lost.
func TestLate(t *testing.T) {
	t.Parallel()
	in, _, admin := faulty(t)
	in.Arm(1, Before, Late(50*time.Millisecond))
	require.ErrorIs(t, add(dialOnce(t, in), 1, unlimited), syscall.ECONNRESET)
	require.True(t, in.Fired())
	require.Eventually(t, func() bool { return len(notes(t, admin)) == 1 }, unlimited, time.Millisecond)
	require.False(t, Late(0).Possible(Executed))
	in.Arm(1, Before, Late(unlimited))
	require.ErrorIs(t, add(dialOnce(t, in), 2, unlimited), syscall.ECONNRESET)
	in.Disarm()
	require.Eventually(t, func() bool { return len(notes(t, admin)) == 2 }, unlimited, time.Millisecond, "Disarm lets it go")
}

// A partition leaves the server's transaction open until it is healed; silence ends with the client.
func TestPartitionKeepsTheTransaction(t *testing.T) {
	t.Parallel()
	in, conn, admin := faulty(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	in.Arm(3, Before, Partition)
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock(7)")
	require.NoError(t, err)
	require.Error(t, tx.Commit(ctx))
	require.True(t, conn.IsClosed())
	locked := func() bool {
		var n int
		require.NoError(t, admin.QueryRow(context.Background(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&n))
		return n > 0
	}
	require.True(t, locked())
	in.Disarm()
	require.Eventually(t, func() bool { return !locked() }, unlimited, time.Millisecond)
}

// Every ERROR that is answered in a server's place leaves both sides agreed on the transaction, and nothing of the flight done.
func TestErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"40001", "40P01", "55P03", "57014", "53100"} {
		for _, at := range []Place{Before, Executed} {
			t.Run(state+" "+at.String(), func(t *testing.T) {
				t.Parallel()
				in, conn, admin := faulty(t)
				wantError := func(err error, status byte) {
					t.Helper()
					var pe *pgconn.PgError
					require.ErrorAs(t, err, &pe)
					require.Equal(t, [2]string{state, "ERROR"}, [2]string{pe.Code, pe.SeverityUnlocalized})
					require.True(t, in.Fired())
					require.Equal(t, string(status), string(conn.PgConn().TxStatus()))
					require.False(t, conn.IsClosed())
				}
				in.Arm(1, at, Error(state))
				wantError(add(conn, 1, unlimited), 'I')

				in.Arm(2, at, Error(state)) // inside a transaction
				tx, err := conn.Begin(t.Context())
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), addNote, 2)
				wantError(err, 'E')
				require.NoError(t, tx.Rollback(t.Context()))

				in.Arm(2, at, Error(state)) // the same in the simple protocol
				tx, err = conn.Begin(t.Context())
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), "INSERT INTO note VALUES (3, 'x');")
				wantError(err, 'E')
				require.NoError(t, tx.Rollback(t.Context()))

				in.Arm(3, at, Error(state)) // its commit
				tx, err = conn.Begin(t.Context())
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), addNote, 4)
				require.NoError(t, err)
				err = tx.Commit(t.Context())
				require.Error(t, err)
				if at == Executed {
					wantError(err, 'I')
				}

				conn = dial(t, in)
				in.Arm(2, at, Error(state)) // a batch with its commit
				tx, err = conn.Begin(t.Context())
				require.NoError(t, err)
				err = batch(tx, 5, 6)
				wantError(err, map[Place]byte{Before: 'E', Executed: 'I'}[at])
				_ = tx.Rollback(t.Context())
				wantNotes(t, admin)

				conn = dial(t, in)
				in.Arm(1, at, Error(state)) // a whole transaction in one flight
				wantError(whole(conn, 7, 8), 'I')
				_, _ = conn.Exec(t.Context(), "ROLLBACK")
				wantNotes(t, admin)

				require.NoError(t, whole(conn, 9), "and nothing is left of it")
				wantNotes(t, admin, 9)
			})
		}
	}
}

// A client that prepares is told of an error in either of its flights, and can go on.
func TestErrorsOfPreparing(t *testing.T) {
	t.Parallel()
	for _, at := range []Place{Before, Executed} {
		for n := 1; n <= 2; n++ {
			in, _, admin := faulty(t)
			config, err := pgx.ParseConfig(in.DSN())
			require.NoError(t, err)
			conn, err := pgx.ConnectConfig(t.Context(), config)
			require.NoError(t, err)
			in.Arm(n, at, Error("57014"))
			var pe *pgconn.PgError
			require.ErrorAs(t, add(conn, 1, unlimited), &pe)
			require.Equal(t, "57014", pe.Code)
			require.True(t, in.Fired())
			wantNotes(t, admin)
			require.NoError(t, conn.Close(t.Context()))
		}
	}
}

// Call runs at its place, with everything passing unharmed after it.
func TestCall(t *testing.T) {
	t.Parallel()
	for _, at := range Places {
		in, conn, admin := faulty(t)
		called := make(chan []int, 1)
		in.Arm(1, at, Call("look", func() { called <- notes(t, admin) }))
		require.NoError(t, add(conn, 1, unlimited))
		seen := <-called
		assert.Equal(t, at == Before, len(seen) == 0)
		require.True(t, in.Fired())
		require.NoError(t, add(conn, 2, unlimited))
		wantNotes(t, admin, 1, 2)
	}
}

// A client whose context ends while its answer is held meets the end before the answer.
func TestCallEndsTheContext(t *testing.T) {
	t.Parallel()
	for _, at := range []Place{Before, Executed} {
		in, conn, admin := faulty(t)
		ctx, cancel := context.WithCancel(t.Context())
		in.Arm(1, at, Call("cancel", cancel))
		_, err := conn.Exec(ctx, addNote, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, conn.IsClosed())
		if at == Executed {
			wantNotes(t, admin, 1)
		}
	}
}

// What is not reached does not strike, flights are counted over all connections, and Disarm takes back.
func TestArming(t *testing.T) {
	t.Parallel()
	in, conn, _ := faulty(t)
	require.Zero(t, in.Boundaries(), "connecting is none")
	in.Arm(3, Before, Reset)
	require.NoError(t, add(conn, 1, unlimited))
	require.NoError(t, add(dial(t, in), 2, unlimited))
	require.False(t, in.Fired())
	require.Equal(t, 2, in.Boundaries())
	in.Disarm()
	require.NoError(t, add(conn, 3, unlimited))
	require.False(t, in.Fired())
	in.Arm(1, Executed, Reset)
	require.Error(t, add(conn, 4, unlimited))
	require.True(t, in.Fired())
	require.Equal(t, 1, in.Boundaries())
	require.False(t, Error("40001").Possible(Replied))
	require.True(t, Reset.Possible(Replied))
}

// faulty is a connection through an injector, and a pool beside it.
func faulty(t *testing.T) (*Injector, *pgx.Conn, *pgxpool.Pool) {
	t.Helper()
	db := pgtest.New(t)
	in := Fault(t, db.AppDSN)
	return in, dial(t, in), db.AdminPool(t)
}

// dial connects for statements of one trip.
func dial(t *testing.T, in *Injector) *pgx.Conn {
	t.Helper()
	return dialAs(t, in, func(*pgx.ConnConfig) {})
}

// dialOnce is dial for a client that reaches the server over this connection only, so that its requests to cancel are lost.
func dialOnce(t *testing.T, in *Injector) *pgx.Conn {
	t.Helper()
	return dialAs(t, in, func(config *pgx.ConnConfig) {
		var dialed atomic.Bool
		reach := config.DialFunc
		config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dialed.Swap(true) {
				return nil, syscall.ECONNREFUSED
			}
			return reach(ctx, network, addr)
		}
	})
}

func dialAs(t *testing.T, in *Injector, configure func(*pgx.ConnConfig)) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(in.DSN())
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	configure(config)
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func add(conn *pgx.Conn, id int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := conn.Exec(ctx, addNote, id)
	return err
}

// batch adds notes and commits, in one flight.
func batch(tx pgx.Tx, ids ...int) error {
	b := new(pgx.Batch)
	for _, id := range ids {
		b.Queue(addNote, id)
	}
	b.Queue("COMMIT")
	return tx.SendBatch(context.Background(), b).Close()
}

// whole adds notes in a transaction of its own, in one flight.
func whole(conn *pgx.Conn, ids ...int) error {
	b := new(pgx.Batch)
	b.Queue("BEGIN")
	for _, id := range ids {
		b.Queue(addNote, id)
	}
	b.Queue("COMMIT")
	return conn.SendBatch(context.Background(), b).Close()
}

func notes(t *testing.T, admin *pgxpool.Pool) []int {
	t.Helper()
	rows, err := admin.Query(context.Background(), "SELECT id FROM note ORDER BY id")
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	return ids
}

func wantNotes(t *testing.T, admin *pgxpool.Pool, want ...int) {
	t.Helper()
	if want == nil {
		want = []int{}
	}
	require.Equal(t, want, notes(t, admin))
}
