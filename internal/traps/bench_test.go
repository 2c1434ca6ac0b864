package traps

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/internal/sqlitetest"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/pgstore"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// BenchmarkPostgres measures pgstore against a server on this machine that does not wait for its disk.
func BenchmarkPostgres(b *testing.B) {
	storetest.RunBenchmarks(b, func(b *testing.B) storetest.Harness[pgx.Tx] {
		pool := pgtest.New(b).Pool(b)
		return pgHarness(pool, pgstore.New(pool))
	})
}

// BenchmarkSQLite measures sqlitestore, which waits for the disk at each commit.
func BenchmarkSQLite(b *testing.B) {
	storetest.RunBenchmarks(b, func(b *testing.B) storetest.Harness[*sql.Tx] {
		st, err := sqlitestore.Open(b.Context(), b.TempDir()+"/claims.db", nil)
		require.NoError(b, err)
		b.Cleanup(func() { _ = st.Close() })
		return sqlitetest.Harness(b, st)
	})
}

// BenchmarkMemory measures memstore: what the calls cost without a database.
func BenchmarkMemory(b *testing.B) {
	storetest.RunBenchmarks(b, func(*testing.B) storetest.Harness[*memstore.Tx] {
		st := memstore.New(nil)
		return storetest.Harness[*memstore.Tx]{
			Store:    st,
			Begin:    st.BeginTx,
			Commit:   func(_ context.Context, tx *memstore.Tx) error { return tx.Commit() },
			Rollback: func(_ context.Context, tx *memstore.Tx) error { return tx.Rollback() },
			Effect:   func(context.Context, *memstore.Tx, string) error { return nil },
			Count:    func(context.Context, string) (int, error) { return 0, nil },
			Advance:  time.Sleep,
		}
	})
}
