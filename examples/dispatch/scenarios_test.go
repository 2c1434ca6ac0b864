package dispatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestScenarios plays each scenario with two processes of its own. A case's name is what it proves first of all.
func TestScenarios(t *testing.T) {
	s := newTestSet(t)
	byName := map[string]scenario{}
	for _, sc := range scenarios() {
		byName[sc.name] = sc
	}
	played := map[string]bool{}
	for _, c := range []struct{ name, scenario string }{
		{"R36 R37 R38 R39", "activate-agent"},
		{"R42 R43 R46 R47", "set-admission-state"},
		{"R50 R51 R53 R54", "execute"},
		{"R58 R59 R67 R68", "execute-authorized"},
		{"R110", "query-execution"},
		{"R70 R71 R73 R75", "get-execution-permit"},
		{"R77 R78 R83 R84", "apply-task-control"},
		{"R85 R86 R87 R88", "apply-approved-task-control"},
		{"R94 R95 R97 R98", "report-execution-event"},
		{"R99 R104 R106", "request-upload"},
		{"R100 R102 R103 R105", "complete-upload"},
		{"R107 R109", "get-agent-status"},
		{"R107", "get-bootstrap"},
		{"R52 R63 R120 R61", "lost-reply"},
		{"R116 R66 R121 R122", "newer-boot"},
		{"R111 R112 R113", "new-epoch"},
		{"R64 R65", "expired"},
		{"R79 R80", "stop-then-resume"},
		{"R90 R91 R92 R88", "stubborn-drain"},
		{"R95 R96", "fact-conflict"},
		{"R101 R100 R102", "queue-failure"},
		{"R69 R55 R60", "adapter-failure"},
	} {
		t.Run(c.name+" "+c.scenario, func(t *testing.T) {
			sc, ok := byName[c.scenario]
			require.True(t, ok)
			played[sc.name] = true
			r, err := s.play(t.Context(), sc)
			require.NoError(t, err)
			assert.Empty(t, r.differences)
		})
	}
	assert.Len(t, played, len(byName))
}
