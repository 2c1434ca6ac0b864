package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dispatched is a scenario's line of dispatch -json.
type dispatched struct {
	Scenario     string `json:"scenario"`
	Answer       string `json:"answer"`
	AdapterCalls int    `json:"adapter_calls"`
	OK           bool   `json:"ok"`
}

// contracted is what the walk through the Agent contract must come to, written down a second time.
var contracted = []dispatched{
	{"activate-agent", "applied, replayed", 0, true},
	{"set-admission-state", "applied, replayed", 1, true},
	{"execute", "applied, replayed", 2, true},
	{"execute-authorized", "applied, replayed", 2, true},
	{"query-execution", "applied, replayed", 1, true},
	{"get-execution-permit", "applied, replayed", 1, true},
	{"apply-task-control", "applied, replayed", 1, true},
	{"apply-approved-task-control", "applied", 1, true},
	{"report-execution-event", "applied, replayed", 1, true},
	{"request-upload", "applied, replayed", 1, true},
	{"complete-upload", "applied, replayed", 1, true},
	{"get-agent-status", "ok", 0, true},
	{"get-bootstrap", "ok", 0, true},
	{"lost-reply", "applied", 1, true},
	{"newer-boot", "session_fenced", 1, true},
	{"new-epoch", "epoch_fenced", 1, true},
	{"expired", "not_applied", 0, true},
	{"stop-then-resume", "terminal_state", 1, true},
	{"stubborn-drain", "applied", 1, true},
	{"fact-conflict", "key_reused", 0, true},
	{"queue-failure", "applied", 1, true},
	{"adapter-failure", "applied", 1, true},
}

// checkDispatch checks one run of all scenarios of dispatch with -json.
func checkDispatch(t *testing.T, r ran) {
	t.Helper()
	require.Equal(t, exitOK, r.status, "%s%s", r.out, r.err)
	lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	require.Len(t, lines, len(contracted), r.out)
	for i, text := range lines {
		var got dispatched
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		assert.Equal(t, contracted[i], got)
	}
	assert.Contains(t, r.err, "Scenarios: 22, all as expected.")
}

// R36, R58, R85, R100: the thirteen methods and nine stories of the Agent contract, in processes of their own, on SQLite.
func TestDispatch(t *testing.T) {
	t.Parallel()
	checkDispatch(t, start(t, t.TempDir(), "", "dispatch", "-json"))
}

// R19, R70, R112, R120: the same on PostgreSQL, as a plain role under row-level security. Not in parallel: the role's password is
// the server's.
func TestDispatchOnPostgres(t *testing.T) {
	db := newPostgres(t)
	checkDispatch(t, start(t, t.TempDir(), "", "dispatch", "-json", "-database", db.AdminDSN))
}

func TestDispatchIsReadable(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), "", "dispatch", "lost-reply", "activate-agent")
	require.Equal(t, exitOK, r.status, "%s%s", r.out, r.err)
	for _, want := range []string{
		"── lost-reply: the reply of an originate is lost ──",
		"issued, and the connection is cut before the reply: unknown",
		"the agent heard ExecuteAuthorized op-e-1, QueryExecution",
		"adapter calls 1 in its ledger",
		"Scenarios: 2, all as expected.",
	} {
		assert.Contains(t, strings.Join(strings.Fields(r.out), " "), want)
	}
	assert.Less(t, strings.Index(r.out, "activate-agent:"), strings.Index(r.out, "lost-reply:"), "in the order of the walk")
	listed := start(t, t.TempDir(), "", "dispatch", "list")
	assert.Len(t, strings.Split(strings.TrimSpace(listed.out), "\n"), len(contracted))
	for args, problem := range map[string]string{
		"dispatch no-such-thing":     `"no-such-thing" is not a scenario of dispatch`,
		"dispatch list expired":      `"list" is not a scenario of dispatch`,
		"dispatch -ledger x":         `-ledger does not go with "dispatch"`,
		"dispatch -database sqlite:": "-database wants postgres://",
	} {
		r := start(t, t.TempDir(), "", strings.Fields(args)...)
		assert.Equal(t, exitUsage, r.status, args)
		assert.Contains(t, r.err, problem, args)
	}
}

// The table of README.md is the one that the walk is held to.
func TestReadmeDispatchTable(t *testing.T) {
	t.Parallel()
	readme := sample(t, "README.md")
	for _, want := range contracted {
		row := "(?m)^\\| `" + want.Scenario + "` \\| .* \\| `" + regexp.QuoteMeta(want.Answer) + "` \\| " + strconv.Itoa(want.AdapterCalls) + " \\|$"
		assert.Regexp(t, row, readme)
	}
}

// The diagrams are of what happened: every arrow is in the trace that the processes wrote.
func TestDispatchDiagrams(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), "", "dispatch", "-diagrams", "lost-reply", "set-admission-state")
	require.Equal(t, exitOK, r.status, "%s%s", r.out, r.err)
	assert.Equal(t, 2, strings.Count(r.out, "```mermaid\nsequenceDiagram\n"))
	for _, want := range []string{
		"## lost-reply: the reply of an originate is lost",
		"  dispatcher->>agent: ExecuteAuthorized op-e-1\n  agent->>adapter: call +49301 for e-1\n  adapter-->>agent: call/e-1/1\n" +
			"  agent--xdispatcher: applied\n  dispatcher->>agent: QueryExecution\n  agent-->>dispatcher: applied, replayed\n",
		"  Note over agent: signal: killed\n  Note over agent: starts boot-2\n",
	} {
		assert.Contains(t, r.out, want)
	}
	assert.Contains(t, r.err, "Scenarios: 2, all as expected.")
}

// docs/agent-contract.md shows the scenarios of today, in their words and with who takes part. Its arrows are of the run that wrote
// it: what is polled and what is published has its own time. CONFIRMEXEC_UPDATE=1 writes the page again.
func TestAgentContractPage(t *testing.T) {
	t.Parallel()
	page := filepath.Join("..", "docs", "agent-contract.md")
	head, shown, found := strings.Cut(sample(t, page), "\n## ")
	require.True(t, found)
	r := start(t, t.TempDir(), "", "dispatch", "-diagrams")
	require.Equal(t, exitOK, r.status, r.err)
	body := strings.TrimLeft(r.out, "\n")
	if os.Getenv("CONFIRMEXEC_UPDATE") == "1" {
		require.NoError(t, os.WriteFile(page, []byte(head+"\n"+body), 0o600))
		return
	}
	assert.Equal(t, withoutArrows("## "+shown), withoutArrows(body))
}

func withoutArrows(page string) string {
	return regexp.MustCompile("(?m)^  (Note|\\w+ ?-).*\n").ReplaceAllString(page, "")
}
