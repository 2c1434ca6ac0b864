package broker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// S11: minted keys are version 7 UUIDs, unique and in order.
func TestMintKey(t *testing.T) {
	seen := map[uuid.UUID]bool{}
	last := ""
	for range 1000 {
		key, err := broker.MintKey()
		require.NoError(t, err)
		assert.EqualValues(t, 7, key.Version())
		assert.False(t, seen[key])
		assert.Greater(t, key.String(), last)
		seen[key], last = true, key.String()
	}
}

// A configuration that cannot be meant is refused at the start, by field.
func TestConfig(t *testing.T) {
	for field, cfg := range map[string]broker.Config{
		"Lease":          {Lease: -time.Second},
		"ProposalExpiry": {ProposalExpiry: -1},
		"StoreTimeout":   {StoreTimeout: -1},
		"Items":          {Limits: contract.Limits{Items: 100_000}},
	} {
		_, err := broker.New(memstore.New(nil), &cfg)
		var invalid *contract.InvalidError
		require.ErrorAs(t, err, &invalid)
		assert.Contains(t, invalid.Path, field)
	}
}

// S4: the broker's limits can be lowered, and hold for proposals and confirmations.
func TestLimits(t *testing.T) {
	st := memstore.New(nil)
	b, err := broker.New(st, nil)
	require.NoError(t, err)
	low, err := broker.New(st, &broker.Config{Limits: contract.Limits{Items: 1}})
	require.NoError(t, err)
	_, err = low.Propose(t.Context(), "firm-a", forums("x", "y"))
	require.ErrorIs(t, err, contract.ErrInvalid)
	c, err := b.Propose(t.Context(), "firm-a", forums("x", "y"))
	require.NoError(t, err)
	_, err = low.Execute(t.Context(), broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface}, addForum)
	require.ErrorIs(t, err, contract.ErrInvalid)
}

type recorder struct{ events []broker.Event }

func (r *recorder) Observe(_ context.Context, e broker.Event) { r.events = append(r.events, e) }

// S21, S22: what Resolve has settled just now is told apart from what an executor did, but not in its result.
func TestResolvedIsObserved(t *testing.T) {
	seen := &recorder{}
	b, err := broker.New(memstore.New(nil), &broker.Config{Observer: seen})
	require.NoError(t, err)
	c, err := b.Propose(t.Context(), "firm-a", forums("x"))
	require.NoError(t, err)
	_, err = b.Execute(t.Context(), broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface},
		func(context.Context, broker.Item) (broker.Outcome, error) {
			return broker.Outcome{}, errors.New("lost")
		})
	require.NoError(t, err)
	var answers []string
	for _, v := range []broker.Verdict{broker.StillUnknown("not read"), broker.FoundApplied("forum/1", "read"), broker.FoundApplied("forum/1", "read")} {
		res, err := b.Resolve(t.Context(), broker.Resolution{Tenant: "firm-a", Key: c.IdempotencyKey, By: "on-call"},
			func(context.Context, broker.Item) (broker.Verdict, error) { return v, nil })
		answers = append(answers, broker.AnswerOf(res, err))
	}
	assert.Equal(t, []string{"ambiguous", "executed", "replayed"}, answers)
	var told []string
	for _, e := range seen.events[2:] {
		told = append(told, e.Answer)
	}
	assert.Equal(t, []string{"ambiguous", "resolved", "replayed"}, told)
}

// S22: an observer and a logger are told method, answer and counts of every call, and no tenant, key, content or outcome.
func TestObservation(t *testing.T) {
	const marker = "plantedmarker"
	var log bytes.Buffer
	seen := &recorder{}
	b, err := broker.New(memstore.New(nil), &broker.Config{Observer: seen, Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	require.NoError(t, err)
	p := forums(marker, marker)
	p.Items[0].ID = marker
	c, err := b.Propose(t.Context(), marker, p)
	require.NoError(t, err)
	req := broker.Request{Tenant: marker, Confirmation: c, Current: surface}
	for range 2 {
		_, err = b.Execute(t.Context(), req, func(_ context.Context, it broker.Item) (broker.Outcome, error) {
			if it.ID == marker {
				panic(marker)
			}
			return broker.Applied(marker).WithDetail(marker), nil
		})
		require.NoError(t, err)
	}
	_, err = b.Lookup(t.Context(), marker+"2", c.IdempotencyKey)
	require.Error(t, err)
	_, err = b.Cancel(t.Context(), marker, c.IdempotencyKey)
	require.NoError(t, err)

	var got []string
	for _, e := range seen.events {
		got = append(got, e.Method+" "+e.Answer)
		assert.GreaterOrEqual(t, e.Duration, time.Duration(0))
	}
	assert.Equal(t, []string{"propose ok", "execute ambiguous", "execute ambiguous", "lookup not_minted", "cancel ambiguous"}, got)
	assert.Equal(t, contract.Tally{Applied: 1, Ambiguous: 1}, seen.events[1].Tally)
	assert.Equal(t, 5, strings.Count(log.String(), "\n"))
	assert.NotContains(t, log.String(), marker)
	assert.NotContains(t, log.String(), c.IdempotencyKey.String())
}
