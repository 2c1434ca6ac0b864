package faultnet

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
)

const selectNote = "SELECT body FROM note WHERE id = $1"

// The counts that are known beforehand: what pgx sends for each of these is documented, and cold statements cost more
// exactly where they are prepared first.
func TestTripsOfPgx(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode                             pgx.QueryExecMode
		cold, warm, coldBatch, warmBatch int
	}{
		"prepared":  {pgx.QueryExecModeCacheStatement, 2, 1, 2, 1},
		"described": {pgx.QueryExecModeCacheDescribe, 2, 1, 2, 1},
		"exec":      {pgx.QueryExecModeExec, 1, 1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, counter, conn := connect(t, c.mode)
			query := func() { require.NoError(t, drain(conn.Query(t.Context(), selectNote, 1))) }
			batch := func() { sendBatch(t, conn) }
			require.Zero(t, counter.Trips(), "connecting is not counted")
			require.Equal(t, c.cold, counter.During(query))
			require.Equal(t, c.warm, counter.During(query))
			require.Equal(t, c.coldBatch, counter.During(batch))
			require.Equal(t, c.warmBatch, counter.During(batch))
			require.Equal(t, 3, counter.During(func() { queryInTx(t, conn) }))
			require.Equal(t, c.cold+c.warm+c.coldBatch+c.warmBatch+3, counter.Trips())
		})
	}
}

// A batch too large for one piece is still one trip, and so is a large answer.
func TestTripsOfLargeFlights(t *testing.T) {
	t.Parallel()
	_, counter, conn := connect(t, pgx.QueryExecModeExec)
	batch, large := new(pgx.Batch), strings.Repeat("x", 10_000)
	for range 100 {
		batch.Queue("SELECT repeat($1::text, 10)", large)
	}
	require.Equal(t, 1, counter.During(func() { require.NoError(t, conn.SendBatch(t.Context(), batch).Close()) }))
}

// A COPY is one trip, after another one in which pgx looks up the columns.
func TestTripsOfCopy(t *testing.T) {
	t.Parallel()
	_, counter, conn := connect(t, pgx.QueryExecModeExec)
	rows := pgx.CopyFromRows([][]any{{1, "one"}, {2, "two"}})
	require.Equal(t, 2, counter.During(func() {
		_, err := conn.CopyFrom(t.Context(), pgx.Identifier{"note"}, []string{"id", "body"}, rows)
		require.NoError(t, err)
	}))
}

// Trips of connections that work at the same time add up exactly.
func TestTripsAddUp(t *testing.T) {
	t.Parallel()
	const clients, queries = 8, 50
	db := pgtest.New(t)
	counter := Count(t, db.AppDSN)
	through := &pgtest.DB{AppDSN: counter.DSN()}
	pool := through.Pool(t, func(config *pgxpool.Config) {
		config.MaxConns = clients
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	require.Equal(t, clients*queries, counter.During(func() {
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range queries {
					_, err := pool.Exec(t.Context(), selectNote, 1)
					require.NoError(t, err)
				}
			})
		}
		all.Wait()
	}))
}

// During waits for an answer that the function has not waited for. A pipeline of two Syncs is one trip.
func TestDuringWaitsForAnswers(t *testing.T) {
	t.Parallel()
	db, counter, conn := connect(t, pgx.QueryExecModeExec)
	gate := closeGate(t, db, conn)
	var pipeline *pgconn.Pipeline
	require.Equal(t, 1, counter.During(func() {
		pipeline = conn.PgConn().StartPipeline(t.Context())
		pipeline.SendQueryParams(passGate, nil, nil, nil, nil)
		pipeline.SendPipelineSync()
		pipeline.SendQueryParams("SELECT 1", nil, nil, nil, nil)
		require.NoError(t, pipeline.Sync())
		gate.awaitArrival()
		require.Zero(t, counter.Trips())
		gate.openSoon()
	}))
	require.NoError(t, pipeline.Close())
	require.Equal(t, 1, counter.Trips())
}

// What is on its way when During begins is not counted as the function's.
func TestDuringLeavesOutEarlierTrips(t *testing.T) {
	t.Parallel()
	db, counter, conn := connect(t, pgx.QueryExecModeExec)
	gate := closeGate(t, db, conn)
	pipeline := conn.PgConn().StartPipeline(t.Context())
	pipeline.SendQueryParams(passGate, nil, nil, nil, nil)
	require.NoError(t, pipeline.Sync())
	gate.awaitArrival()
	gate.openSoon()
	require.Zero(t, counter.During(func() {}))
	require.NoError(t, pipeline.Close())
	require.Equal(t, 1, counter.Trips())
}

// A server that hangs up is passed on with its last words, and leaves nothing that During would wait for.
func TestServerHangsUp(t *testing.T) {
	t.Parallel()
	db, counter, conn := connect(t, pgx.QueryExecModeExec)
	gate := closeGate(t, db, conn)
	require.Zero(t, counter.During(func() {
		failed := make(chan error, 1)
		go func() {
			_, err := conn.Exec(t.Context(), passGate)
			failed <- err
		}()
		gate.awaitArrival()
		gate.terminate()
		var last *pgconn.PgError
		require.ErrorAs(t, <-failed, &last)
		require.Equal(t, "57P01", last.Code)
	}))
	require.True(t, conn.IsClosed())
}

// A cancel request reaches the server, and is not a trip. The cancelled query is answered: it is one.
func TestCancelRequest(t *testing.T) {
	t.Parallel()
	db, counter, conn := connect(t, pgx.QueryExecModeExec)
	gate := closeGate(t, db, conn)
	require.Equal(t, 1, counter.During(func() {
		failed := make(chan error, 1)
		go func() {
			_, err := conn.Exec(t.Context(), passGate)
			failed <- err
		}()
		gate.awaitArrival()
		require.NoError(t, conn.PgConn().CancelRequest(t.Context()))
		var cancelled *pgconn.PgError
		require.ErrorAs(t, <-failed, &cancelled)
		require.Equal(t, "57014", cancelled.Code)
	}))
}

// A client that would like to encrypt is refused by the proxy, and goes on unencrypted.
func TestEncryptionIsRefused(t *testing.T) {
	t.Parallel()
	counter := Count(t, pgtest.New(t).AppDSN)
	dsn, err := pgtest.WithDSN(counter.DSN(), "sslmode", "prefer")
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	require.NoError(t, conn.Close(context.Background()))
	require.Zero(t, counter.Trips())
}

// A server that is not there is a failed connection, not a hanging one.
func TestServerIsAbsent(t *testing.T) {
	t.Parallel()
	counter := Count(t, "postgres://nobody@127.0.0.1:1/nothing?sslmode=disable")
	_, err := pgx.Connect(t.Context(), counter.DSN())
	require.Error(t, err)
}

// connect opens one connection through a counter.
func connect(t *testing.T, mode pgx.QueryExecMode) (*pgtest.DB, *Counter, *pgx.Conn) {
	t.Helper()
	db := pgtest.New(t)
	counter := Count(t, db.AppDSN)
	config, err := pgx.ParseConfig(counter.DSN())
	require.NoError(t, err)
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return db, counter, conn
}

func sendBatch(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	batch := new(pgx.Batch)
	for i := range 5 {
		batch.Queue("SELECT id FROM note WHERE id = $1", i)
	}
	require.NoError(t, conn.SendBatch(t.Context(), batch).Close())
}

// queryInTx is begin, a warm statement and commit.
func queryInTx(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, drain(tx.Query(t.Context(), selectNote, 2)))
	require.NoError(t, tx.Commit(t.Context()))
}

func drain(rows pgx.Rows, err error) error {
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}
