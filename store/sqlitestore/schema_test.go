package sqlitestore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/store"
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
		"completeClaim":  {completeClaim, 6, []string{"operation"}},
		"selectHeld":     {selectHeld, 4, []string{"operation"}},
		"seizeClaim":     {seizeClaim, 4, []string{"operation"}},
		"settleClaim":    {settleClaim, 6, []string{"operation"}},
		"observeItem":    {observeItem, 6, []string{"operation"}},
		"listOpen":       {listOpen, 3, []string{"operation", "observation"}},
		"listPurgeable":  {listPurgeable, 3, []string{"operation", "proposal", "observation"}},
		"purge claim":    {purgeKey[0], 2, []string{"operation"}},
		"purge proposal": {purgeKey[1], 2, []string{"proposal"}},
		"purge items":    {purgeKey[2], 2, []string{"item"}},
		"startItem":      {startItem, 5, []string{"operation"}},
		"storeItem":      {storeItem, 6, []string{"operation"}},
		"selectValue":    {selectValue, 2, []string{"value"}},
		"moveValue":      {moveValue, 4, []string{"value"}},
		"selectStanding": {selectStanding, 3, []string{"proposal", "operation", "item", "observation"}},
	} {
		plan := explain(t, s, c.query, c.args)
		for _, index := range c.indexes {
			require.Contains(t, plan, "INDEX agent_idempotency_key_"+index, name)
		}
		require.NotRegexp(t, `SCAN (agent_idempotency_key|o|p)\b`, plan, name)
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
		"observation": {
			"request_id": "'k'", "item_id": "'i'", "attempt": "'a'", "fence": "1", "completed_at": "1", "outcomes": "x''",
		},
		"value": {"item_id": "'n'", "fence": "1", "content": "x''"},
	}
	values := map[string]string{
		"request_id": "'k'", "step": "'s'", "tool": "'t'", "sha": "'s'", "item_id": "'i'",
		"digest": digest, "attempt": "'a'", "fence": "1", "mode": "'m'",
		"lease_until": "1", "expires_at": "1", "completed_at": "1", "content": "x''", "outcomes": "x''", "unsettled": "0",
	}
	for boundary, columns := range good {
		require.NoError(t, insert(t, s, boundary, columns), boundary)
		for column := range columns {
			require.Error(t, insert(t, s, boundary, with(columns, column, "NULL")), "%s without %s", boundary, column)
		}
		for column, value := range values {
			if _, has := columns[column]; !has && column != "content" {
				require.Error(t, insert(t, s, boundary, with(columns, column, value)), "%s with no more than %s", boundary, column)
			}
		}
		if _, has := columns["digest"]; has {
			require.Error(t, insert(t, s, boundary, with(columns, "digest", "zeroblob(31)")), boundary)
		}
	}
	for _, unsettled := range []string{"0", "1"} {
		completed := with(with(good["operation"], "completed_at", "1"), "unsettled", unsettled)
		require.NoError(t, insert(t, s, "operation", completed), "a purged one")
		require.NoError(t, insert(t, s, "operation", with(completed, "outcomes", "x''")))
	}
	require.Error(t, insert(t, s, "operation", with(with(good["operation"], "completed_at", "1"), "unsettled", "2")))
	require.Error(t, insert(t, s, "operation", with(good["operation"], "fence", "0")))
	require.NoError(t, insert(t, s, "item", with(with(good["item"], "completed_at", "1"), "outcomes", "x''")))
	require.Error(t, insert(t, s, "item", with(good["item"], "content", "x''")))
	require.Error(t, insert(t, s, "observation", with(good["observation"], "content", "x''")))
	require.Error(t, insert(t, s, "value", with(good["value"], "fence", "0")))
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

// After a COMMIT that failed half way, what reads behind the barrier writes over it in the log, once.
func TestTheBarrierOverwritesADoubtfulCommit(t *testing.T) {
	s := openFresh(t)
	var file string
	require.NoError(t, s.writer.QueryRowContext(t.Context(), `SELECT file FROM pragma_database_list`).Scan(&file))
	grows := func() bool {
		size := func() int64 {
			log, err := os.Stat(file + "-wal")
			require.NoError(t, err)
			return log.Size()
		}
		before := size()
		_, err := s.Own().Lookup(t.Context(), store.LookupParams{Barrier: true})
		require.NoError(t, err)
		return size() > before
	}
	require.False(t, grows())
	s.doubt.Store(true)
	require.True(t, grows())
	require.False(t, grows())
	version := 0
	require.NoError(t, s.writer.QueryRowContext(t.Context(), readVersion).Scan(&version))
	require.Equal(t, 1, version)
}
