package pgtest

import (
	"context"
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
	for _, text := range []string{
		"install PostgreSQL", envDSN, envBin, envImage, envRepository, envWithout + "=1",
		"- dsn: " + envDSN + " is not set", "- local: no initdb and postgres", "- docker: ",
		"- embedded: it needs the go command",
	} {
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
		"rungs":    {envRungs + "=dsn", "- dsn: " + envDSN + " is not set", 4},
		"rung":     {envRungs + "=dsn,helm", `there is no "helm", only dsn, local, docker and embedded`, 4},
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
	needRung(t, rungLocal) // on others this test would change the password of AppRole, which other tests use
	admin := db.AdminPool(t)
	do := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	role, dsn := outsider(t, db, do)
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

// An application role that is there with another password is taken over, also by a role that is no superuser. It is not
// parallel: the other tests' pools use that password.
func TestExternalServerByPassword(t *testing.T) {
	db := New(t)
	if shared.cluster.stop == nil || shared.cluster.password == "" {
		t.Skip("the server is not ours, or asks for no password")
	}
	admin := db.AdminPool(t)
	do := func(sql string) {
		t.Helper()
		_, err := admin.Exec(context.Background(), sql)
		require.NoError(t, err, sql)
	}
	defer do("ALTER ROLE " + AppRole + " PASSWORD '" + shared.cluster.password + "'")
	role, dsn := outsider(t, db, do)
	output, failed := rerun(t, needy, envDSN+"="+dsn)
	require.False(t, failed, output)
	require.Len(t, results(output, "PASS"), 4, output)
	do("DROP ROLE " + role)
}

// outsider makes a role that may create databases and roles, and no more, and returns its connection string.
func outsider(t *testing.T, db *DB, do func(string)) (role, dsn string) {
	t.Helper()
	password := randomHex(8)
	role = "outsider_" + randomHex(4)
	do("CREATE ROLE " + role + " LOGIN CREATEDB CREATEROLE PASSWORD '" + password + "'")
	do("GRANT " + AppRole + " TO " + role + " WITH ADMIN OPTION")
	dsn, err := WithDSN(db.AdminDSN, "user", role, "password", password, "dbname", "postgres")
	require.NoError(t, err)
	return role, dsn
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

// needRung skips a test that is about one kind of server.
func needRung(t *testing.T, rung string) {
	t.Helper()
	if shared.cluster.rung != rung {
		t.Skipf("the server comes from the rung %s, and this test is about %s", shared.cluster.rung, rung)
	}
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
