package traps

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// S11, S32: incident 26: one broker serves one operation after the other, and none gets a key of one before it, whatever its end was.
func TestIncident26AReusedBrokerCarriesNoKey(t *testing.T) {
	t.Parallel()
	b := on(t, pgtest.New(t).Pool(t))
	seen := map[uuid.UUID]bool{}
	unseen := func(key uuid.UUID) {
		t.Helper()
		assert.False(t, seen[key], "a key of an operation before")
		seen[key] = true
	}
	for n := range 6 {
		c := b.propose("a", "b")
		unseen(c.IdempotencyKey)
		_, err := b.Execute(t.Context(), request(c), func(_ context.Context, it broker.Item) (broker.Outcome, error) {
			unseen(it.IdempotencyKey)
			if n%2 == 1 {
				return broker.Outcome{}, contract.ErrUnavailable
			}
			return broker.Applied(it.ID), nil
		})
		require.NoError(t, err)
	}
	assert.Len(t, seen, 6*3)
}

// digestChild is the environment of the child process of TestIncident28DigestOfAnyLocale.
const digestChild = "CONFIRMEXEC_TRAPS_DIGEST"

// S20: incident 28: the digest does not depend on the locale of the process that computes it: its members are such as locales sort
// in different orders.
func TestIncident28DigestOfAnyLocale(t *testing.T) {
	p := proposal("a", "i", "I", "ä", "z", "Z", "ch")
	p.Items[0].Params = json.RawMessage(`{"z":1,"ä":2,"Z":3,"ch":4,"c":5,"I":6,"ı":7,"i":8,"İ":9,"😀":10,"\ufb33":11,"co-op":12,"coop":13}`)
	digest, err := contract.DigestOf(p)
	require.NoError(t, err)
	if os.Getenv(digestChild) != "" {
		t.Logf("digest=%x", digest)
		return
	}
	for _, locale := range []string{"C", "tr_TR.UTF-8", "sv_SE.UTF-8", "cs_CZ.UTF-8", "de_DE.ISO-8859-1"} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		child.Env = append(os.Environ(), digestChild+"=1", "LANG="+locale, "LC_ALL="+locale, "LC_COLLATE="+locale)
		out, err := child.CombinedOutput()
		require.NoError(t, err, string(out))
		assert.Contains(t, string(out), "digest="+fmt.Sprintf("%x", digest), locale)
	}
}

// lossy is a store whose first claim's answer is lost.
type lossy struct {
	store.Store[*memstore.Tx]
	made, lost bool
}

func (l *lossy) Own() store.Claims { return lossyClaims{l.Store.Own(), l} }

type lossyClaims struct {
	store.Claims
	l *lossy
}

func (c lossyClaims) Claim(ctx context.Context, p store.ClaimParams) (store.Standing, error) {
	if c.l.lost {
		return c.Claims.Claim(ctx, p)
	}
	c.l.lost = true
	if c.l.made {
		if _, err := c.Claims.Claim(ctx, p); err != nil {
			return store.Standing{}, err
		}
	}
	return store.Standing{}, &store.Error{Op: "claim", Cause: context.DeadlineExceeded}
}

// S32, S14: incident 65: a connection that is lost while claiming shifts no item: each has the place, and the key, that it has on a
// store that is never lost.
func TestIncident65OrdinalsDoNotShift(t *testing.T) {
	type place struct {
		index int
		key   uuid.UUID
	}
	run := func(st store.Store[*memstore.Tx], c contract.OperationConfirmation) map[string]place {
		b, err := broker.New(st, &broker.Config{ReplayWait: -1, AcceptUnmintedKeys: true})
		require.NoError(t, err)
		ran := map[string]place{}
		for range 2 { // the second one finds what the first one left
			_, _ = b.Execute(t.Context(), request(c), func(_ context.Context, it broker.Item) (broker.Outcome, error) {
				assert.NotContains(t, ran, it.ID, "an item runs once")
				ran[it.ID] = place{it.Index, it.IdempotencyKey}
				return broker.Applied(it.ID), nil
			})
		}
		return ran
	}
	c := proposal("a", "b", "c").Confirmation(uuid.New())
	want := run(memstore.New(nil), c)
	require.Len(t, want, 3)
	for i, it := range c.Items {
		assert.Equal(t, i, want[it.ID].index)
	}
	for _, made := range []bool{false, true} {
		st := &lossy{Store: memstore.New(nil), made: made}
		assert.Equal(t, want, run(st, c), "the claim was made: %t", made)
		assert.True(t, st.lost)
	}
}

// S26: incident 67: a migration that fails leaves no lock, also on the connection that it had, and the next one is not blocked.
func TestIncident67AFailedMigrationBlocksNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.NewEmpty(t)
	admin := db.AdminPool(t)
	only := db.AdminPool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	must(t, admin, `CREATE SCHEMA agents; CREATE VIEW agents.agent_idempotency_key AS SELECT 1 AS firm_id`)
	for range 3 {
		require.Error(t, pgstore.Migrate(t.Context(), only, nil))
		assert.Zero(t, one[int](t, only, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND
			database = (SELECT oid FROM pg_database WHERE datname = current_database())`))
		assert.Equal(t, 0, one[int](t, admin, `SELECT count(*) FROM pg_tables WHERE schemaname = 'agents'`), "nothing of it stays")
	}
	must(t, admin, `DROP VIEW agents.agent_idempotency_key`)
	must(t, admin, `SET lock_timeout = '10s'`)
	require.NoError(t, pgstore.Migrate(t.Context(), only, nil))
	require.NoError(t, pgstore.Migrate(t.Context(), admin, nil))
	proposed(t, pgstore.New(admin))
}
