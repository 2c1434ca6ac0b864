package dispatch

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// R33, R55, R60, R61: both processes killed before and after each commit of what originates, and of what settles it afterwards. The
// whole matrix is `go run ./internal/killmatrix`.
func TestKillMatrix(t *testing.T) {
	var out bytes.Buffer
	rows, err := Matrix(t.Context(), MatrixOptions{
		Methods: []string{"ExecuteAuthorized", "Execute", "CompleteUpload", "GetBootstrap", "(settle what crashed)"}, Workers: 2, Out: &out,
	})
	require.NoError(t, err, out.String())
	kills := map[string]int{}
	for _, r := range rows {
		kills[r.Method+" "+r.Victim] = r.Kills
		assert.Equal(t, 2*r.Commits, r.Kills)
		assert.Equal(t, r.Kills, r.Restarts)
		assert.Zero(t, r.Double)
	}
	assert.Equal(t, map[string]int{
		"ExecuteAuthorized agent": 4, "ExecuteAuthorized dispatcher": 4, "Execute agent": 4, "Execute dispatcher": 4, "CompleteUpload agent": 0,
		"CompleteUpload dispatcher": 4, "GetBootstrap agent": 0, "GetBootstrap dispatcher": 0, "(settle what crashed) agent": 4,
	}, kills)
	assert.Contains(t, out.String(), "ExecuteAuthorized       agent")
}

// R60: an adapter that is invoked twice, and an answer that does not agree with the ledger, are found.
func TestMatrixFindsDoubles(t *testing.T) {
	s := newTestStage(t, newTestSet(t))
	var mu sync.Mutex
	for range 2 {
		require.NoError(t, appendLine(&mu, s.ledger(), entry{Kind: invoked, Execution: "e-1"}))
	}
	require.NoError(t, appendLine(&mu, s.ledger(), entry{Kind: sealed, Execution: "e-2"}))
	row := MatrixRow{Method: "Execute", Victim: roleAgent}
	s.count(&row)
	assert.Equal(t, 1, row.Double)
	assert.Equal(t, 2, row.Invocations)
	require.Len(t, s.differences, 1)
	row.Differences = s.differences
	var out bytes.Buffer
	require.ErrorIs(t, tellMatrix(&out, []MatrixRow{row}), ErrDiffers)
	assert.Contains(t, out.String(), "DIFFERS: Execute, agent killed the adapter was invoked 2 times for e-1")

	s.ready()
	s.applied("issued", s.issue("e-3", "+49301"))
	s.differences = nil
	checkExecution(s) // of e-1, which nobody issued
	assert.NotEmpty(t, s.differences)
}

// A scenario that differs, or that cannot be carried out, is told, and is the error of the walk.
func TestWalkDiffers(t *testing.T) {
	set := newTestSet(t)
	r, err := set.play(t.Context(), scenario{"wrong", "calls that nobody made", expectation{"applied", 2}, func(s *stage) {
		s.ready()
		s.decide("issued", s.issue("e-1", "+49301"))
		s.want("a query", "applied", s.ask(s.dispatcher, order{Do: "query", Execution: "e-2"}))
		s.ask(s.dispatcher, order{Do: "no such order"})
		s.agent.kill()
		s.ask(s.agent, order{Do: "status"})
	}})
	require.NoError(t, err)
	told := strings.Join(r.differences, "\n")
	assert.Contains(t, told, "adapter calls: 1, not 2")
	assert.Contains(t, told, `a query: the answer is "no_mutation", not "applied"`)
	assert.Contains(t, told, "could not be carried out: the process has ended: the agent (signal: killed)")
	var out, notes bytes.Buffer
	Options{JSON: true, Out: &out, Notes: &notes}.tell(r)
	assert.JSONEq(t, `{"scenario":"wrong","answer":"applied","adapter_calls":1,"ok":false}`, out.String())
	assert.Contains(t, notes.String(), "wrong differs: adapter calls: 1, not 2")
	out.Reset()
	Options{Out: &out}.tell(r)
	assert.Contains(t, out.String(), "  DIFFERS         adapter calls: 1, not 2\n")
}
