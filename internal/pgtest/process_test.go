package pgtest

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// needy are the tests that need a server, as a pattern for the test processes started here.
const needy = "^(TestPostgresIsAvailable|TestNewEmptyHasNoSchema|TestNewGivesPlainRole|TestPoolTakesChanges)$"

// Without PostgreSQL exactly one test fails, and says what to do. The others are skipped, and say which test tells why.
func TestWithoutServerOneTestFails(t *testing.T) {
	t.Parallel()
	output, failed := rerun(t, needy, childBare+"=1", "PATH="+t.TempDir())
	require.True(t, failed)
	require.Equal(t, []string{"TestPostgresIsAvailable"}, results(output, "FAIL"), output)
	require.Len(t, results(output, "SKIP"), 3, output)
	for _, text := range []string{"install PostgreSQL", envDSN, envBin, envWithout + "=1"} {
		require.Contains(t, output, text)
	}
	require.Equal(t, 3, strings.Count(output, "TestPostgresIsAvailable in internal/pgtest fails"), output)
}

// Under CI a machine without PostgreSQL cannot look green in any package.
func TestWithoutServerCIFails(t *testing.T) {
	t.Parallel()
	output, failed := rerun(t, needy, childBare+"=1", "PATH="+t.TempDir(), "CI=true")
	require.True(t, failed)
	require.Len(t, results(output, "FAIL"), 4, output)
}

// CONFIRMEXEC_NO_POSTGRES skips everything, CI or not, and nobody can overlook it.
func TestWithoutServerOnRequest(t *testing.T) {
	t.Parallel()
	output, failed := rerun(t, needy, envWithout+"=1", "CI=true")
	require.False(t, failed, output)
	require.Len(t, results(output, "SKIP"), 4, output)
	require.Contains(t, output, "EVERY TEST THAT NEEDS POSTGRESQL IS SKIPPED")
}

// What was asked for and does not work is never skipped: every test fails.
func TestBrokenServerFailsEveryTest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env, text string
		failures  int
	}{
		"address":  {envDSN + "=postgres://127.0.0.1:1/postgres?sslmode=disable", envDSN, 4},
		"folder":   {envBin + "=/nonexistent", envBin + "=/nonexistent", 4},
		"template": {childTemplate + "=1", "the template is broken", 3}, // TestNewEmptyHasNoSchema needs none
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.env == childTemplate+"=1" {
				New(t) // skipped without a server
			}
			output, failed := rerun(t, needy, c.env)
			require.True(t, failed)
			require.Len(t, results(output, "FAIL"), c.failures, output)
			require.Contains(t, output, c.text)
		})
	}
}

// A server that is pointed at works for a role that is no superuser, and nothing of the process is left there. What
// older, dead processes left behind is dropped; what may belong to a living one stays.
func TestExternalServer(t *testing.T) {
	t.Parallel()
	db := New(t)
	if shared.cluster.stop == nil {
		t.Skip("the server is not ours: this test would change the password of its " + AppRole)
	}
	admin := db.AdminPool(t)
	do := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	role := "outsider_" + randomHex(4)
	do("CREATE ROLE " + role + " LOGIN CREATEDB CREATEROLE")
	do("GRANT " + AppRole + " TO " + role + " WITH ADMIN OPTION")
	token := randomHex(4)
	dead, alive, young := "1_"+randomHex(4)+"_1", "1_"+token+"_1", "9999999999_"+randomHex(4)+"_1"
	living := db.AdminPool(t, func(config *pgxpool.Config) {
		config.ConnConfig.User = role
		config.ConnConfig.RuntimeParams["application_name"] = databasePrefix + token
	})
	require.NoError(t, living.Ping(t.Context()))
	for _, name := range []string{dead, alive, young} {
		do("CREATE DATABASE " + databasePrefix + name + " OWNER " + role)
	}
	dsn, err := WithDSN(db.AdminDSN, "user", role, "dbname", "postgres")
	require.NoError(t, err)
	output, failed := rerun(t, needy, envDSN+"="+dsn)
	require.False(t, failed, output)
	require.Len(t, results(output, "PASS"), 4, output)
	rows, err := admin.Query(t.Context(), `SELECT datname FROM pg_database d JOIN pg_roles r ON r.oid = datdba
		WHERE rolname = $1 ORDER BY 1`, role)
	require.NoError(t, err)
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{databasePrefix + alive, databasePrefix + young}, left)
	for _, name := range left {
		do("DROP DATABASE " + name)
	}
	do("DROP ROLE " + role)
}

// rerun runs tests of this package in a new process with a clean environment, and reports what they print.
func rerun(t *testing.T, tests string, env ...string) (output string, failed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", tests)
	cmd.Env = childEnvironment(env...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return string(text), err != nil
}

// childEnvironment is ours without what chooses a server.
func childEnvironment(env ...string) []string {
	kept := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == "CI" || strings.HasPrefix(name, "CONFIRMEXEC_")
	})
	return append(kept, env...)
}

// results are the tests with a result, subtests left out.
func results(output, result string) []string {
	pattern := regexp.MustCompile(`(?m)^--- ` + result + `: (\S+)`)
	var names []string
	for _, match := range pattern.FindAllStringSubmatch(output, -1) {
		names = append(names, match[1])
	}
	return names
}
