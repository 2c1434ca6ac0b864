package fencetests

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/fencing/fencetest"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

const (
	firm        = "firm-1"
	lockTimeout = 2 * time.Second
)

func TestSQLite(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Harness[*sql.Tx] { return sqlite(t, t.TempDir()+"/confirm.db") })
}

// sqlite is the harness on a file, which a restart opens again.
func sqlite(t *testing.T, path string) fencetest.Harness[*sql.Tx] {
	t.Helper()
	st, err := sqlitestore.Open(t.Context(), path, &sqlitestore.Config{LockTimeout: lockTimeout})
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	h := fencetest.Of(st, firm)
	h.Snapshot = func(ctx context.Context) (string, error) { return dumpSQLite(ctx, st.DB()) }
	h.Restart = func(t *testing.T) fencetest.Harness[*sql.Tx] {
		t.Helper()
		require.NoError(t, st.Close())
		return sqlite(t, path)
	}
	return h
}

// dumpSQLite tells every row of the claim table but the log's.
func dumpSQLite(ctx context.Context, db *sql.DB) (string, error) {
	rows, err := db.QueryContext(ctx, `SELECT boundary, request_id, item_id, fence, attempt, content, outcomes, completed_at
    FROM agent_idempotency_key WHERE item_id IS NULL OR item_id <> 'fencetest/log' ORDER BY 1, 2, 3, 5`)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	var b strings.Builder
	for rows.Next() {
		row, to := [8]any{}, [8]any{}
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to[:]...); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s\n", row)
	}
	return b.String(), rows.Err()
}
