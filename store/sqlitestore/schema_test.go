package sqlitestore

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func openFresh(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "claims.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// S25: every statement finds its rows by the index of its boundary.
func TestStatementsUseTheIndexes(t *testing.T) {
	s := openFresh(t)
	for name, c := range map[string]struct {
		query   string
		args    int
		indexes []string
	}{
		"insertClaim":    {insertClaim, 11, []string{"proposal"}},
		"renewLease":     {renewLease, 5, []string{"operation"}},
		"completeClaim":  {completeClaim, 5, []string{"operation"}},
		"startItem":      {startItem, 5, []string{"operation"}},
		"storeItem":      {storeItem, 6, []string{"operation"}},
		"selectStanding": {selectStanding, 3, []string{"proposal", "operation", "item"}},
	} {
		plan := explain(t, s, c.query, c.args)
		for _, index := range c.indexes {
			require.Contains(t, plan, "USING INDEX agent_idempotency_key_"+index, name)
		}
		require.NotContains(t, plan, "SCAN agent_idempotency_key", name)
	}
}

func explain(t *testing.T, s *Store, query string, args int) string {
	t.Helper()
	rows, err := s.writer.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, make([]any, args)...)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		plan = append(plan, detail)
	}
	require.NoError(t, rows.Err())
	return strings.Join(plan, "\n")
}

// S24: the CHECKs give each boundary its shape.
func TestShapes(t *testing.T) {
	s := openFresh(t)
	const digest = "zeroblob(32)"
	good := map[string]map[string]string{
		"operation": {
			"request_id": "'k'", "digest": digest, "attempt": "'a'", "fence": "1", "mode": "'m'", "lease_until": "1",
		},
		"proposal": {"request_id": "'k'", "digest": digest, "expires_at": "1", "completed_at": "1"},
		"item":     {"request_id": "'k'", "item_id": "'i'", "attempt": "'a'", "fence": "1"},
	}
	for boundary, columns := range good {
		require.NoError(t, insert(t, s, boundary, columns), boundary)
		for column := range columns {
			require.Error(t, insert(t, s, boundary, with(columns, column, "NULL")), "%s without %s", boundary, column)
		}
		for _, column := range []string{"step", "tool", "sha"} {
			require.Error(t, insert(t, s, boundary, with(columns, column, "'x'")), "%s with %s", boundary, column)
		}
		if _, has := columns["digest"]; has {
			require.Error(t, insert(t, s, boundary, with(columns, "digest", "zeroblob(31)")), boundary)
			require.Error(t, insert(t, s, boundary, with(columns, "item_id", "'i'")), boundary)
		}
	}
	require.Error(t, insert(t, s, "operations", good["operation"]), "a boundary that is not known")
	require.Error(t, insert(t, s, "fact", nil), "a boundary that is not known")
}

func with(columns map[string]string, column, value string) map[string]string {
	all := map[string]string{column: value}
	for c, v := range columns {
		if c != column {
			all[c] = v
		}
	}
	return all
}

// insert tries a row, and leaves nothing.
func insert(t *testing.T, s *Store, boundary string, columns map[string]string) error {
	t.Helper()
	names, values := []string{"firm_id", "boundary", "claimed_at"}, []string{"'f'", "'" + boundary + "'", "1"}
	for c, v := range columns {
		names, values = append(names, c), append(values, v)
	}
	tx, err := s.writer.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	_, err = tx.ExecContext(t.Context(), `INSERT INTO agent_idempotency_key (`+strings.Join(names, ", ")+
		`) VALUES (`+strings.Join(values, ", ")+`)`)
	return err
}

// A pragma that SQLite did not take is an error of Open.
func TestPragmasAreReadBack(t *testing.T) {
	s := openFresh(t)
	err := checkPragmas(t.Context(), s.writer, []pragma{{"synchronous", "FULL", "1"}})
	require.EqualError(t, err, `sqlitestore: open: PRAGMA synchronous is "2", want "1"`)
	require.Error(t, checkPragmas(t.Context(), s.writer, []pragma{{"syncronous", "FULL", "2"}}))
	require.NoError(t, checkPragmas(t.Context(), s.readers, s.readerPragmas()))
}

func TestReadersCannotWrite(t *testing.T) {
	s := openFresh(t)
	err := s.read(t.Context(), "op", func(ctx context.Context, q querier) error {
		_, err := q.ExecContext(ctx, `DELETE FROM agent_idempotency_key`)
		return err
	})
	require.EqualError(t, err, "op: the database could not be used (SQLITE_READONLY)")
}
