package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

// asProgram makes the test binary the program, and so every process that the program starts.
const asProgram = "CONFIRMEXEC_EXAMPLES_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	pgtest.Main(m, nil)
}

// ran is what the program did.
type ran struct {
	out, err    string
	status, pid int
}

// start runs the program in dir.
func start(t *testing.T, dir, stdin string, args ...string) ran {
	t.Helper()
	var out, err bytes.Buffer
	cmd := program(t, dir, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &err
	if failed := cmd.Run(); failed != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, failed, &exit)
	}
	return ran{out.String(), err.String(), cmd.ProcessState.ExitCode(), cmd.ProcessState.Pid()}
}

func program(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), asProgram+"=1")
	return cmd
}

// line is a scenario's line of -json.
type line struct {
	Scenario      string                          `json:"scenario"`
	Answer        string                          `json:"answer"`
	ExecutorCalls int                             `json:"executor_calls"`
	Outcomes      []contract.OperationItemOutcome `json:"outcomes"`
	OK            bool                            `json:"ok"`
}

// documented is what the walk must come to, written down a second time.
var documented = []line{
	{Scenario: "first-confirm", Answer: "executed", ExecutorCalls: 1},
	{Scenario: "second-confirm", Answer: "replayed", ExecutorCalls: 1},
	{Scenario: "double-tap", Answer: "replayed", ExecutorCalls: 1},
	{Scenario: "drifted-surface", Answer: "stale", ExecutorCalls: 0},
	{Scenario: "lost-reply", Answer: "replayed", ExecutorCalls: 1},
	{Scenario: "crash", Answer: "ambiguous", ExecutorCalls: 1},
	{Scenario: "batch", Answer: "executed", ExecutorCalls: 3},
	{Scenario: "same-key-other-content", Answer: "key_reused", ExecutorCalls: 1},
	{Scenario: "never-minted", Answer: "not_minted", ExecutorCalls: 0},
	{Scenario: "other-firm", Answer: "executed", ExecutorCalls: 2},
	{Scenario: "transaction", Answer: "executed", ExecutorCalls: 0},
	{Scenario: "cancel", Answer: "cancelled", ExecutorCalls: 0},
	{Scenario: "resolve", Answer: "replayed", ExecutorCalls: 1},
	{Scenario: "resolve-absent", Answer: "replayed", ExecutorCalls: 0},
	{Scenario: "paused-executor", Answer: "replayed", ExecutorCalls: 1},
	{Scenario: "per-item", Answer: "replayed", ExecutorCalls: 0},
	{Scenario: "lost-commit", Answer: "executed", ExecutorCalls: 0},
	{Scenario: "purge", Answer: "pruned", ExecutorCalls: 1},
}

// retried are the scenarios that may take more than one attempt on a busy machine, and whose calls are a child's.
var retried = map[string]bool{"crash": true, "resolve": true, "resolve-absent": true, "paused-executor": true, "per-item": true}

// checkWalk checks one run of all scenarios with -json.
func checkWalk(t *testing.T, r ran) {
	t.Helper()
	require.Equal(t, exitOK, r.status, "%s%s", r.out, r.err)
	lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	require.Len(t, lines, len(documented), r.out)
	for i, text := range lines {
		var got line
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&got), text)
		assert.True(t, got.OK, text)
		assert.NotNil(t, got.Outcomes, text)
		if !canStop && got.Scenario == "paused-executor" {
			assert.Equal(t, "skipped", got.Answer)
			continue
		}
		got.OK, got.Outcomes = false, nil
		assert.Equal(t, documented[i], got)
	}
	assert.Contains(t, r.err, "Scenarios: 18, all as expected.")
	checkVerdicts(t, lines)
}

// checkVerdicts checks what the scenarios that settle a key tell of its items.
func checkVerdicts(t *testing.T, lines []string) {
	t.Helper()
	outcomes := map[string][]contract.OperationItemOutcome{}
	for _, text := range lines {
		var got line
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		outcomes[got.Scenario] = got.Outcomes
	}
	found, absent, later := outcomes["resolve"][0], outcomes["resolve-absent"][0], outcomes["paused-executor"]
	assert.Regexp(t, `^forum/\d+$`, found.Ref)
	assert.Equal(t, contract.OperationItemOutcome{
		ItemID: mumbai, State: contract.Applied, Ref: found.Ref, Reason: contract.ReasonFoundApplied, By: onCall,
		Detail: "the registry shows " + found.Ref + " under the item's key",
	}, found)
	assert.Equal(t, contract.OperationItemOutcome{
		ItemID: mumbai, State: contract.Failed, Reason: contract.ReasonFoundAbsent, By: onCall,
		Detail: "the registry had nothing under the item's key and has sealed it",
	}, absent)
	if canStop {
		require.Len(t, later, 1)
		assert.Equal(t, contract.ReasonFoundAbsent, later[0].Reason)
		assert.True(t, later[0].Provisional)
	}
	var reasons []contract.Reason
	for _, o := range outcomes["per-item"] {
		reasons = append(reasons, o.Reason)
	}
	assert.Equal(t, []contract.Reason{"", contract.ReasonNotCommitted, contract.ReasonNotCommitted}, reasons)
	assert.Empty(t, outcomes["purge"])
}

// checkLedger checks that other processes wrote the ledger, and that those that are killed or stopped called from elsewhere.
func checkLedger(t *testing.T, path string, walks ...ran) {
	t.Helper()
	entries, err := readLedger(path)
	require.NoError(t, err)
	calls, registries, callers := map[string]int{}, map[int]bool{}, map[int]bool{}
	for _, e := range entries {
		calls[e.Scenario]++
		registries[e.PID] = true
		if retried[e.Scenario] {
			callers[e.CallerPID] = true
		}
	}
	for _, want := range documented {
		if n := want.ExecutorCalls * len(walks); retried[want.Scenario] {
			assert.GreaterOrEqual(t, calls[want.Scenario], n, want.Scenario)
			assert.Equal(t, n == 0, calls[want.Scenario] == 0, want.Scenario)
		} else {
			assert.Equal(t, n, calls[want.Scenario], want.Scenario)
		}
	}
	assert.Equal(t, len(walks), calls["resolve-absent-late"], "each walk is refused once")
	assert.Len(t, registries, len(walks), "one registry a walk")
	for _, w := range walks {
		assert.NotContains(t, registries, w.pid, "the registry is another process")
		assert.NotContains(t, callers, w.pid, "the process that is killed is another one")
	}
}

// S12, S13, S14, S20: the whole walk on SQLite, twice on the same database and the same ledger.
func TestWalk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	walk := func() ran {
		return start(t, dir, "", "-json", "-database", "sqlite:walk.db", "-ledger", "ledger.jsonl")
	}
	first, second := walk(), walk()
	checkWalk(t, first)
	checkWalk(t, second)
	checkLedger(t, filepath.Join(dir, "ledger.jsonl"), first, second)

	db, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "walk.db"), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	rows, err := db.DB().QueryContext(t.Context(), operatorsSQL(t)[2])
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var standing []string
	for rows.Next() {
		var key, mode string
		var age float64
		var completed, ambiguous, contested bool
		require.NoError(t, rows.Scan(&key, &mode, &age, &completed, &ambiguous, &contested))
		standing = append(standing, fmt.Sprintf("%s %t %t %t", mode, completed, ambiguous, contested))
	}
	require.NoError(t, rows.Err())
	checkStanding(t, standing)
}

// operatorsSQL are the statements of the operators' page: the list and one key on PostgreSQL, the list on SQLite, and what was
// proposed and not confirmed.
func operatorsSQL(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, block := range strings.Split(sample(t, filepath.Join("..", "docs", "operators.md")), "\n```sql\n")[1:] {
		sql, _, _ := strings.Cut(block, "\n```")
		all = append(all, sql)
	}
	require.Len(t, all, 4)
	return all
}

// The page's SQL is for the program sqlite3 of the machine that it is read on, and that may be older than the driver's: what an
// old one does not know is NULL to it, and a NULL drops rows without a word.
func TestOperatorsSQLIsOld(t *testing.T) {
	t.Parallel()
	for _, sql := range operatorsSQL(t) {
		assert.NotContains(t, sql, "subsec", "needs SQLite 3.42")
	}
}

// checkStanding checks what two walks leave for somebody to settle: mode, completed, ambiguous, contested.
func checkStanding(t *testing.T, standing []string) {
	t.Helper()
	var contested []string
	for _, key := range standing {
		if strings.HasSuffix(key, " true") {
			contested = append(contested, key)
		}
	}
	assert.Contains(t, standing, "external false false false", "the crash's")
	if canStop {
		assert.Equal(t, []string{"external true false true", "external true false true"}, contested)
	}
}

// S7, S8, S15: board, prose and recovery instruction come from the one result.
func TestWalkIsReadable(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), "", "batch", "crash", "drifted-surface", "resolve-absent", "purge")
	require.Equal(t, exitOK, r.status, "%s%s", r.out, r.err)
	for _, want := range []string{
		"── batch: three items, and one of them fails ──",
		"nclt-chennai   failed    registry_refused",
		"2 applied, 1 failed, 0 skipped, 0 ambiguous",
		"2 of 3 items applied, 1 failed (nclt-chennai).",
		"reload_to_check: It is not known whether 1 of 1 item took effect.",
		"(signal: killed)",
		`contract_version was "v1", is "v2"`,
		"removed at the end",
		"the walk makes such a call, and is told: FAILED_PRECONDITION: key_sealed: the item's key is sealed.",
		"verdict         on-call on nclt-mumbai: the registry had nothing under the item's key",
		"answer          pruned",
		"Scenarios: 5, all as expected.",
	} {
		assert.Contains(t, strings.Join(strings.Fields(r.out), " "), strings.Join(strings.Fields(want), " "))
	}
	assert.Contains(t, r.out, "nclt-chennai   failed    registry_refused", "a board has columns")
	assert.Less(t, strings.Index(r.out, "drifted-surface:"), strings.Index(r.out, "batch:"), "in the order of the walk")
	for text := range strings.SplitSeq(r.out, "\n") {
		assert.LessOrEqual(t, len([]rune(text)), 100, text)
	}
	assert.Empty(t, r.err)
}

// Temporary files are gone after the walk.
func TestWalkCleansUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := program(t, dir, "first-confirm")
	cmd.Env = append(cmd.Env, "TMPDIR="+dir, "TMP="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestCompare(t *testing.T) {
	t.Parallel()
	result := &contract.OperationResult{Outcomes: []contract.OperationItemOutcome{{ItemID: "a", State: contract.Applied}}}
	good := report{told: told{result: result}, calls: 1}
	want := expectation{answer: "executed", calls: 1, tally: contract.Tally{Applied: 1}}
	assert.Empty(t, compare(want, &good))
	replayed := *result
	replayed.Replayed = true

	for name, spoil := range map[string]func(*report){
		"the answer: error, not executed":    func(r *report) { r.told.err = errors.New("broken") },
		"executor calls: 2, not 1":           func(r *report) { r.calls = 2 },
		"the tally: {Applied:0 ":             func(r *report) { r.told.result = &contract.OperationResult{} },
		"replayed: true, not false":          func(r *report) { r.told.result = &replayed },
		"the answer: not_minted, not execut": func(r *report) { r.told = told{err: contract.ErrNotMinted} },
	} {
		bad := good
		spoil(&bad)
		assert.Contains(t, strings.Join(compare(want, &bad), "\n"), name)
	}
}

// A scenario that this system cannot show is told as that, and is as expected.
func TestSkipped(t *testing.T) {
	t.Parallel()
	r := report{name: "paused-executor", title: "a title", skipped: "no such signal", told: told{err: errUndecided}}
	assert.Empty(t, compare(expectation{"replayed", 1, applied1, true}, &r))
	var out bytes.Buffer
	r.print(&out)
	assert.Contains(t, out.String(), "  answer          skipped\n  why             no such signal\n  ok\n")
	line, err := r.line()
	require.NoError(t, err)
	assert.JSONEq(t, `{"scenario":"paused-executor","answer":"skipped","executor_calls":0,"outcomes":[],"ok":true}`, string(line))
}

// A scenario that depends on a short lease is made again when the machine was too slow, with a clean report, and not for ever.
func TestTimed(t *testing.T) {
	t.Parallel()
	var leases []time.Duration
	late := func(n int) func(context.Context, *stage, time.Duration) error {
		return func(_ context.Context, s *stage, lease time.Duration) error {
			leases = append(leases, lease)
			s.say("told")
			s.expect(false, "differs")
			if len(leases) < n {
				return errLate
			}
			return nil
		}
	}
	var s stage
	require.NoError(t, timed(late(3))(t.Context(), &s))
	assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, leases)
	assert.Len(t, s.story, 1)
	assert.Len(t, s.differences, 1)
	leases = nil
	require.ErrorIs(t, timed(late(100))(t.Context(), &s), errLate)
	assert.Len(t, leases, 6)
	assert.Equal(t, 8*time.Second, leases[5])
}

// A scenario that differs, or that cannot be carried out, is named and makes the exit status 1.
func TestDifferenceFails(t *testing.T) {
	t.Setenv(asProgram, "1") // for the registry
	o, err := parseOptions([]string{"-json", "-database", "sqlite:" + filepath.Join(t.TempDir(), "walk.db")})
	require.NoError(t, err)
	var out bytes.Buffer
	notes, err := os.Create(filepath.Join(t.TempDir(), "notes")) // which the registry may write to as well
	require.NoError(t, err)
	defer func() { require.NoError(t, notes.Close()) }()
	s := streams{strings.NewReader(""), &out, notes}
	w, err := newWalk(t.Context(), o, s)
	require.NoError(t, err)
	defer func() { require.NoError(t, w.close()) }()

	err = w.runAll(t.Context(), []scenario{
		{"twice", "more calls than there are", expectation{"executed", 2, applied1, false}, firstConfirm},
		{"never", "cannot be carried out", expectation{"executed", 0, none, false},
			func(context.Context, *stage) error { return errors.New("no stage") }},
	})
	require.ErrorIs(t, err, errTold)
	assert.Equal(t, exitFailed, s.finish(err))
	assert.Contains(t, out.String(), `{"scenario":"twice","answer":"executed","executor_calls":1,`)
	assert.Contains(t, out.String(), `{"scenario":"never","answer":"error","executor_calls":0,"outcomes":[],"ok":false}`)
	assert.Equal(t, 2, strings.Count(out.String(), `"ok":false`))
	told := sample(t, notes.Name())
	assert.Contains(t, told, "twice differs: executor calls: 1, not 2")
	assert.Contains(t, told, "never differs: the scenario could not be carried out: no stage")
	assert.Contains(t, told, "Scenarios: 2, 2 DIFFER")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	help := start(t, dir, "", "-h")
	assert.Equal(t, exitOK, help.status)
	assert.Equal(t, usage, help.out)
	assert.Empty(t, help.err)
	for text := range strings.SplitSeq(usage, "\n") {
		assert.LessOrEqual(t, len(text), 100, text)
	}

	names := start(t, dir, "", "list")
	assert.Equal(t, exitOK, names.status)
	lines := strings.Split(strings.TrimSpace(names.out), "\n")
	require.Len(t, lines, len(documented))
	for i, want := range documented {
		assert.Equal(t, want.Scenario, strings.Fields(lines[i])[0])
	}

	for args, problem := range map[string]string{
		"-x":                            "not defined: -x",
		"no-such-thing":                 `"no-such-thing" is neither a command nor a scenario`,
		"first-confirm confirm":         `"confirm" is neither`,
		"list -json":                    `-json does not go with "list"`,
		"list first-confirm":            "list takes no argument",
		"lookup":                        "lookup takes one KEY",
		"lookup not-a-key":              "KEY must be a confirmation",
		"cancel not-a-key":              "KEY must be a confirmation",
		"resolve not-a-key":             "KEY must be a confirmation",
		"unresolved -after not-a-key":   "KEY must be a confirmation",
		"unresolved -limit 0":           "-limit must be from 1 to 1000",
		"unresolved -limit 1001":        "-limit must be from 1 to 1000",
		"unresolved now":                "unresolved takes no argument",
		"lookup -by me x":               `-by does not go with "lookup x"`,
		"resolve -by me":                `-by does not go with "resolve"`,
		"-database mysql:x batch":       "-database wants sqlite:PATH",
		"batch -database sqlite:":       "-database wants sqlite:PATH",
		"confirm -lease 0s":             "-lease must be more than 0",
		"confirm -slow soon":            "invalid value",
		"batch -tenant firm-a":          `-tenant does not go with "batch"`,
		"registry-process":              "takes the ledger's path",
		"cancel first-confirm -slow 1s": `-slow does not go with`,
	} {
		r := start(t, dir, "", strings.Fields(args)...)
		assert.Equal(t, exitUsage, r.status, args)
		assert.Contains(t, r.err, problem, args)
		assert.Empty(t, r.out, args)
	}
}

// Flags may stand anywhere, and "cancel" and "resolve" are scenarios unless a key follows.
func TestFlagsAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range []string{"-json cancel batch", "cancel -json batch", "cancel batch -json"} {
		r := start(t, dir, "", strings.Fields(args)...)
		assert.Equal(t, exitOK, r.status, r.err)
		assert.Equal(t, 2, strings.Count(r.out, `"ok":true`), r.out)
	}
	r := start(t, dir, "", "-json", "resolve", "purge")
	assert.Equal(t, exitOK, r.status, r.err)
	assert.Equal(t, 2, strings.Count(r.out, `"ok":true`), r.out)
}

// reasonsOf are the last parts of the reasons that the non-test files of a package name, in its words.
func reasonsOf(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)(?:Reason = |Reason: )"(?:[a-z_]+\.)*([a-z_]+)"`)
	var reasons []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, found := range named.FindAllStringSubmatch(sample(t, file), -1) {
			reasons = append(reasons, found[1])
		}
	}
	return reasons
}

// Every reason that an answer or an item can have has its row in the operators' page.
func TestOperatorsKnowEveryReason(t *testing.T) {
	t.Parallel()
	page := sample(t, filepath.Join("..", "docs", "operators.md"))
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)`.* \\|$").FindAllStringSubmatch(page, -1)
	known := map[string]bool{}
	for _, row := range rows {
		known[row[1]] = true
	}
	for pkg, atLeast := range map[string]int{"contract": 33, "broker": 2, "fencing": 27} {
		reasons := reasonsOf(t, pkg)
		assert.GreaterOrEqual(t, len(reasons), atLeast, pkg)
		for _, reason := range reasons {
			assert.True(t, known[reason], "%s: %s has no row", pkg, reason)
		}
	}
}

// Every answer of the table in the main README has its row in the operators' page.
func TestOperatorsKnowEveryAnswer(t *testing.T) {
	t.Parallel()
	_, table, found := strings.Cut(sample(t, filepath.Join("..", "README.md")), "## Every answer")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	answers := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1)
	require.Greater(t, len(answers), 14)
	page := sample(t, filepath.Join("..", "docs", "operators.md"))
	for _, answer := range answers {
		assert.Regexp(t, "(?m)^\\| .*`"+answer[1]+"`.* \\| .* \\| .* \\|$", page)
	}
}

// The table of README.md is the one that the walk is held to.
func TestReadmeTable(t *testing.T) {
	t.Parallel()
	readme := sample(t, "README.md")
	for _, want := range documented {
		row := "(?m)^\\| `" + want.Scenario + "` \\| .* \\| `" + want.Answer + "` \\| " + strconv.Itoa(want.ExecutorCalls) + " \\|$"
		assert.Regexp(t, row, readme)
	}
}
