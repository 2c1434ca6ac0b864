package traps

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
)

// R112, S25, S27: trap 3 for values and guards: every statement runs ten times on one connection, in every query mode and whatever the
// plans are.
func TestValuesInEveryModeAndPlan(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, mode := range modes {
		for _, plans := range []string{"auto", "force_generic_plan"} {
			b := on(t, db.Pool(t, planned(plans), alone(mode)))
			id := store.ValueID{Tenant: firm, Name: "epoch of " + name + plans}
			for revision := range int64(10) {
				tx, _, err := b.st.Begin(t.Context(), store.Opening{ID: store.ID{Tenant: firm}})
				require.NoError(t, err, name)
				values := b.st.Values(tx)
				v, err := values.Hold(t.Context(), id)
				require.NoError(t, err, name)
				require.Equal(t, revision, v.Revision, name)
				content := fmt.Append([]byte{0, 0xff, '\\'}, revision)
				_, err = values.Swap(t.Context(), store.SwapParams{ValueID: id, Revision: revision, Content: content})
				require.NoError(t, err, name)
				v, err = values.Swap(t.Context(), store.SwapParams{ValueID: id, Revision: 70, Content: content})
				require.ErrorIs(t, err, store.ErrRevision, name)
				require.Equal(t, store.Value{Revision: revision + 1, Content: content}, v, name)
				require.NoError(t, b.st.Commit(t.Context(), tx, store.Closing{}), name)

				p := claimOf(store.ID{Tenant: firm, Key: uuid.New()})
				p.AcceptUnminted, p.Content = true, content
				for guard, want := range map[int64]error{revision + 1: nil, revision + 2: store.ErrGuard} {
					p.Guards = []store.Guard{{Name: id.Name, Revision: guard}}
					_, err = b.st.Own().Claim(t.Context(), p)
					require.ErrorIs(t, err, want, name)
					_, err = b.st.Own().Lookup(t.Context(), store.LookupParams{ID: p.ID, Barrier: true, AwaitWrites: true, Guards: p.Guards})
					require.ErrorIs(t, err, want, name)
				}
			}
		}
	}
}
