package traps

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
)

// odd is JSON that a jsonb column would change: member order, white space, number forms and a name that appears twice.
const odd = `{"zz": 1.0, "a" :[1e2,  "\u0041"], "zz": 2}`

// S17: trap 8: outcomes are bytes. The wrong forms are shown: jsonb rejects a NUL and rewrites everything else, and text
// rejects bytes that are not UTF-8; what is stored with us comes back as it was.
func TestOutcomesAreBytes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	err := pool.QueryRow(t.Context(), `SELECT $1::text::jsonb::text`, `{"a":"\u0000"}`).Scan(new(string))
	sqlState(t, "22P05", err)
	assert.NotEqual(t, odd, one[string](t, pool, `SELECT $1::text::jsonb::text`, odd))
	err = pool.QueryRow(t.Context(), `SELECT convert_from($1, 'UTF8')`, []byte("\xff")).Scan(new(string))
	sqlState(t, "22021", err)

	b := on(t, pool)
	for _, outcomes := range []string{odd, `{"a":"\u0000"}`, "\x00", "\xff\xfe", `{"a":"` + "\x00" + `"}`, ""} {
		id := proposed(t, b.st)
		p := claimOf(id)
		s, err := b.st.Own().Claim(t.Context(), p)
		require.NoError(t, err)
		held := store.Fenced{ID: id, Attempt: p.Attempt, Fence: s.Claim.Fence}
		require.NoError(t, b.st.Own().Progress(t.Context(), store.ProgressParams{Fenced: held, Done: "a", Outcome: []byte(outcomes), Lease: time.Hour}))
		s, err = b.st.Own().Lookup(t.Context(), store.LookupParams{ID: id})
		require.NoError(t, err)
		assert.Equal(t, outcomes, string(s.Claim.Items["a"]))
		require.NoError(t, b.st.Own().Complete(t.Context(), store.CompleteParams{Fenced: held, Outcomes: []byte(outcomes)}))
		s, err = b.st.Own().Claim(t.Context(), claimOf(id))
		require.NoError(t, err)
		assert.Equal(t, outcomes, string(s.Claim.Outcomes))
	}
}

// S17: trap 8: a replay is the first answer, byte for byte, but for replayed; also when the executor's texts hold what
// jsonb would reject.
func TestReplayIsByteIdentical(t *testing.T) {
	t.Parallel()
	b := on(t, pgtest.New(t).Pool(t))
	c := b.propose("z", "a", "m")
	first, err := b.confirm(c, withDetail("b\x00\xff\u2028 \"\\ <&> ü"))
	require.NoError(t, err)
	second, err := b.confirm(c, b.never)
	require.NoError(t, err)
	require.True(t, second.Replayed)
	second.Replayed = false
	assert.Equal(t, encoded(t, first), encoded(t, second))
	assert.Equal(t, contract.EncodeOutcomes(first.Outcomes), stored(t, b, c))
}

func encoded(t *testing.T, r *contract.OperationResult) string {
	t.Helper()
	data, err := json.Marshal(r)
	require.NoError(t, err)
	return string(data)
}

// stored reads the outcomes' bytes.
func stored(t *testing.T, b *bench, c contract.OperationConfirmation) []byte {
	t.Helper()
	s, err := b.st.Own().Lookup(t.Context(), store.LookupParams{ID: store.ID{Tenant: firm, Key: c.IdempotencyKey}})
	require.NoError(t, err)
	return s.Claim.Outcomes
}
