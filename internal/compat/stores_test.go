package compat_test

import (
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/internal/pgtest/claims"
	"github.com/confirmexec/confirmexec/store/pgstore"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

func TestMain(m *testing.M) { pgtest.Main(m, schema) }

// schema is the claim table alone.
var schema = claims.Schema("")

// S17, S26, R34: a file that the first version wrote is brought up to date when it is opened, and every key in it answers as before.
func TestGoldenRowsOnSQLite(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			g := read(t, version)
			file := filepath.Join(t.TempDir(), "claims.db")
			writeSQLite(t, file, version, g)
			st, err := sqlitestore.Open(t.Context(), file, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, st.Close()) })
			check(t, st, g)
		})
	}
}

// schemas are the SQLite schemas, as they were when a contract version was released: their number, and testdata/sqlite_N.sql.
var schemas = map[string]int{"v1": 1}

// writeSQLite makes the file with the schema of its time, without the store's own code.
func writeSQLite(t *testing.T, file, version string, g golden) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer db.Close()
	schema, err := os.ReadFile(fmt.Sprintf("testdata/sqlite_%d.sql", schemas[version]))
	require.NoError(t, err)
	for _, statement := range []string{string(schema),
		`CREATE TABLE agent_idempotency_schema (the_only INTEGER PRIMARY KEY CHECK (the_only = 1), version INTEGER NOT NULL) STRICT`,
		fmt.Sprintf(`INSERT INTO agent_idempotency_schema (the_only, version) VALUES (1, %d)`, schemas[version])} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	for _, r := range g.Rows {
		statement, values := r.insert(t, "agent_idempotency_key", "?%d", func(at time.Time) any { return float64(at.Unix()) })
		_, err := db.ExecContext(t.Context(), statement, values...)
		require.NoError(t, err)
	}
}

// S17, S26, R34: rows that the first version wrote answer as before, to the application's role under row security.
func TestGoldenRowsOnPostgres(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			g := read(t, version)
			db := pgtest.New(t)
			admin := db.AdminPool(t)
			for _, r := range g.Rows {
				statement, values := r.insert(t, "agents.agent_idempotency_key", "$%d", func(at time.Time) any { return at })
				_, err := admin.Exec(t.Context(), statement, values...)
				require.NoError(t, err)
			}
			st, err := pgstore.NewWithConfig(db.Pool(t), pgstore.Config{})
			require.NoError(t, err)
			check(t, st, g)
		})
	}
}

// insert is the statement that writes the row, and its values.
func (r row) insert(t *testing.T, table, parameter string, at func(time.Time) any) (statement string, values []any) {
	t.Helper()
	columns := slices.Sorted(maps.Keys(r))
	parameters := make([]string, len(columns))
	for i, column := range columns {
		parameters[i] = fmt.Sprintf(parameter, i+1)
		values = append(values, r.value(t, column, at))
	}
	return "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(parameters, ", ") + ")", values
}
