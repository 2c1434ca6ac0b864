package sqlitestore_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/store"
)

// S12, S18: processes that open one fresh file at once all succeed, and one of them wins the key.
func TestProcessesRaceOnAFreshFile(t *testing.T) {
	for range 10 {
		file := fresh(t)
		var children []*child
		for range 4 {
			children = append(children, startChild(t, "claim", file))
		}
		for _, c := range children {
			c.say(t)
		}
		lines := map[string]int{}
		for _, c := range children {
			lines[c.line(t)]++
		}
		require.Equal(t, map[string]int{"won: true\n": 1, "won: false\n": 3}, lines)
	}
}

// S14, S28a: a process that is killed leaves the claim that it committed, and nothing of the one that it did not.
func TestAKilledProcessLeavesItsClaim(t *testing.T) {
	file := fresh(t)
	c := startChild(t, "interrupt", file)
	require.Equal(t, "claimed\n", c.line(t))
	require.NoError(t, c.cmd.Process.Kill()) // SIGKILL
	_ = c.cmd.Wait()

	s := open(t, file, nil)
	look := store.LookupParams{ID: sharedID, Barrier: true, Content: true}
	standing, err := s.Own().Lookup(t.Context(), look)
	require.NoError(t, err)
	require.NotNil(t, standing.Claim)
	require.False(t, standing.Claim.Completed)
	require.Equal(t, sharedDigest, standing.Claim.Digest)
	require.Equal(t, "content", string(standing.Claim.Content))
	require.Equal(t, map[string][]byte{"i1": nil}, standing.Claim.Items)

	p := sharedClaim()
	lost, err := s.Own().Claim(t.Context(), p)
	require.NoError(t, err)
	require.NotEqual(t, p.Attempt, lost.Claim.Attempt)

	p.Key, p.Lease = uuid.MustParse("00000000-0000-4000-8000-000000000002"), time.Minute
	won, err := s.Own().Claim(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, p.Attempt, won.Claim.Attempt)
}
