package traps

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// Reports about digests, their comparison and their stability.

// S17, S20: the digest of a key is stored with it, compared in every form of the same content, and never lost.
func TestIncidentsDigest(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	t.Run("incident 20: an identical confirm after completion and a restart replays", func(t *testing.T) {
		b := on(t, db.Pool(t))
		c := b.propose("a", "b")
		first, err := b.confirm(c, insert)
		require.NoError(t, err)
		again := on(t, db.Pool(t)) // nothing of the first broker's is left
		second, err := again.confirm(c, again.never)
		require.NoError(t, err)
		assert.True(t, second.Replayed)
		assert.Equal(t, first.Outcomes, second.Outcomes)
		c.Items[0].Params = json.RawMessage(`{"name":"another"}`)
		_, err = again.confirm(c, again.never)
		require.ErrorIs(t, err, contract.ErrKeyReused, "and other content is still refused")
	})
	t.Run("incident 21: what is stored has the digest that is stored", func(t *testing.T) {
		b := on(t, db.Pool(t))
		p := proposal("a")
		p.Items[0].Params = json.RawMessage(" {\"b\":1.50, \"a\":\"\\u0041\\/\"} ")
		c, err := b.Propose(t.Context(), firm, p)
		require.NoError(t, err)
		s, err := b.st.Own().Lookup(t.Context(), store.LookupParams{ID: store.ID{Tenant: firm, Key: c.IdempotencyKey}, Content: true})
		require.NoError(t, err)
		kept, err := contract.DecodeProposal(s.Proposal.Content, contract.Limits{})
		require.NoError(t, err)
		digest, err := contract.DigestOf(kept)
		require.NoError(t, err)
		assert.Equal(t, s.Proposal.Digest, digest)
	})
	t.Run("incident 30: text that is not Unicode is refused before a key is minted", func(t *testing.T) {
		spy := &countingStore{Store: memstore.New(nil)}
		b, err := broker.New(spy, nil)
		require.NoError(t, err)
		refused := func(err error, bad string) {
			t.Helper()
			var invalid *contract.InvalidError
			require.ErrorAs(t, err, &invalid, bad)
			assert.Regexp(t, "^/items/0/params", invalid.Path, bad)
		}
		for _, bad := range []string{`"\udc00\ud800"`, `"\ud800"`, "\"\xff\"", "\"\xed\xa0\x80\"", `"\ud83d\u0041"`} {
			p := proposal("a")
			p.Items[0].Params = json.RawMessage(`{"name":` + bad + `}`)
			_, err := b.Propose(t.Context(), firm, p)
			refused(err, bad)
			_, err = b.Execute(t.Context(), request(p.Confirmation(uuid.New())), func(context.Context, broker.Item) (broker.Outcome, error) {
				t.Error("the executor must not run")
				return broker.Outcome{}, nil
			})
			refused(err, bad)
		}
		assert.Zero(t, spy.calls, "the store is not used")
	})
	t.Run("incident 34: the same intent in other words is a conflict that says read, not mint anew", func(t *testing.T) {
		b := on(t, db.Pool(t))
		p := proposal("a")
		p.Items[0].Params = json.RawMessage(`{"amount":"0.001"}`)
		c, err := b.Propose(t.Context(), firm, p)
		require.NoError(t, err)
		first, err := b.confirm(c, insert)
		require.NoError(t, err)
		c.Items = []contract.Item{{ID: "a", Op: p.Items[0].Op, Params: json.RawMessage(`{"amount":"0.0010"}`)}}
		_, err = b.confirm(c, b.never)
		require.ErrorIs(t, err, contract.ErrKeyReused)
		assert.Contains(t, err.Error(), "read what the key stands for")
		st, err := b.Lookup(t.Context(), firm, c.IdempotencyKey)
		require.NoError(t, err)
		assert.Equal(t, first.Outcomes, st.Result.Outcomes)
		assert.JSONEq(t, `{"amount":"0.001"}`, string(st.Confirmation.Items[0].Params))
	})
	t.Run("incident 32: outcomes that are read back have the hash that they had", func(t *testing.T) {
		b := on(t, db.Pool(t))
		c := b.propose("z", "a")
		res, err := b.confirm(c, withDetail(odd))
		require.NoError(t, err)
		assert.Equal(t, sha256.Sum256(contract.EncodeOutcomes(res.Outcomes)), sha256.Sum256(stored(t, b, c)))
	})
}

// countingStore counts the uses of a store.
type countingStore struct {
	store.Store[*memstore.Tx]
	calls int
}

func (s *countingStore) Own() store.Claims {
	s.calls++
	return s.Store.Own()
}

// Reports about sizes and odd bytes.

// S17, S20: what an outcome holds never costs it, and what a transport does to a document is not content.
func TestIncidentsBytes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	t.Run("incident 82: an outcome over the limit stays applied and is never run again", func(t *testing.T) {
		b := on(t, db.Pool(t))
		c := b.propose("a")
		res, err := b.confirm(c, withDetail(string(make([]byte, 1<<20))))
		require.NoError(t, err)
		require.NoError(t, res.Err())
		assert.LessOrEqual(t, len(res.Outcomes[0].Detail), contract.MaxDetail)
		again, err := b.confirm(c, b.never)
		require.NoError(t, err)
		assert.Equal(t, res.Outcomes, again.Outcomes)
	})
	t.Run("incident 83: a document that a transport has rewritten is the same document", func(t *testing.T) {
		b := on(t, db.Pool(t))
		c := b.propose("a", "b")
		first, err := b.confirm(c, insert)
		require.NoError(t, err)
		sent, err := json.Marshal(c)
		require.NoError(t, err)
		var v any
		require.NoError(t, json.Unmarshal(sent, &v))
		rewritten, err := json.MarshalIndent(v, " ", "\t") // members in another order, too
		require.NoError(t, err)
		require.NotEqual(t, string(sent), string(rewritten))
		received, err := contract.DecodeConfirmation(rewritten, contract.Limits{})
		require.NoError(t, err)
		second, err := b.confirm(received, b.never)
		require.NoError(t, err)
		assert.Equal(t, first.Outcomes, second.Outcomes)
	})
}
