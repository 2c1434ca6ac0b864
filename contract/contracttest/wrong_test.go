package contracttest_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec"
	"github.com/confirmexec/confirmexec/contract/contracttest"
)

// wrong is an implementation that breaks one rule, with only the functions that break it, and the vector that catches it.
type wrong struct {
	name string
	impl contracttest.Implementation
	by   string
}

// S10, S17, R16, R35: every wrong implementation is caught, by the vector that is there for it; with -v the table is printed.
func TestWrongImplementationsAreCaught(t *testing.T) {
	all := slices.Concat(wrongDocuments(), wrongOutcomes(), wrongDigests(), wrongFailures(), wrongReceipts(), wrongKeys(), wrongFencing())
	perTopic := map[string]int{}
	names := map[string]bool{}
	for n, w := range all {
		require.False(t, names[w.name], w.name)
		names[w.name] = true
		failures := contracttest.Check(confirmexec.Vectors, w.impl)
		topic, _, _ := strings.Cut(w.by, "/")
		perTopic[topic]++
		caught := slices.ContainsFunc(failures, func(f contracttest.Failure) bool { return f.Vector == w.by })
		assert.True(t, caught, "%s is not caught by %s, but by %s", w.name, w.by, vectorsOf(failures))
		t.Logf("%3d  %-64s -> %s (%d in all)", n+1, w.name, w.by, len(failures))
	}
	for topic := range topicsOf(t) {
		assert.GreaterOrEqual(t, perTopic[topic], 2, topic)
	}
}

func vectorsOf(failures []contracttest.Failure) string {
	var names []string
	for _, f := range failures {
		names = append(names, f.Vector)
	}
	return cmp.Or(strings.Join(names, "; "), "none")
}

func topicsOf(t *testing.T) map[string]bool {
	t.Helper()
	folders, err := confirmexec.Vectors.ReadDir("testdata/vectors/v1")
	require.NoError(t, err)
	names := map[string]bool{}
	for _, f := range folders {
		names[f.Name()] = true
	}
	return names
}

// S10: an implementation that panics fails the vector, and not the suite; one that lacks a topic fails if it is to be complete.
func TestCheckTellsWhatIsMissing(t *testing.T) {
	failures := contracttest.Check(confirmexec.Vectors, contracttest.Implementation{CheckSurfaceKey: func(string) error { panic("x") }})
	assert.Len(t, failures, len(surfaceKeyVectors(t)))
	assert.Equal(t, "panicked: x", failures[0].Problem)
	assert.Len(t, contracttest.Check(confirmexec.Vectors, contracttest.Implementation{Strict: true}), len(topicsOf(t)))
}

func surfaceKeyVectors(t *testing.T) (names []string) {
	t.Helper()
	for _, l := range leaves(t) {
		if strings.HasPrefix(l.vector, "surface_keys/") {
			names = append(names, l.vector)
		}
	}
	return names
}
