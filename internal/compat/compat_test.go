// Package compat_test reads what every earlier version of the contract has left behind: golden rows in a claim table of that time,
// under every store that is durable.
package compat_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec"
	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// versions are the contract versions that were ever stored.
var versions = []string{"v1"}

// golden is one version's rows.json.
type golden struct {
	About, Source string
	Rows          []row
	Operations    []operation
	Mutations     []mutation
}

// row is one row of the claim table: its columns that are not null.
type row map[string]any

type operation struct {
	Name, Phase string
	Key         uuid.UUID
	Items       []string
	Want        want
	Runs        int
}

type mutation struct {
	Name        string
	OperationID string `json:"operation_id"`
	Identity    broker.Identity
	Want        want
}

type want struct {
	Document       string
	Code           contract.FailureCode
	Reason         contract.Reason
	Contradictions int
}

func read(t *testing.T, version string) (g golden) {
	t.Helper()
	data, err := confirmexec.Vectors.ReadFile("testdata/rows/" + version + "/rows.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &g))
	require.NotEmpty(t, g.Operations)
	require.NotEmpty(t, g.Mutations)
	return g
}

// value returns a column as a database takes it; at turns a time into the database's.
func (r row) value(t *testing.T, column string, at func(time.Time) any) any {
	t.Helper()
	v := r[column]
	switch column {
	case "digest":
		data, err := hex.DecodeString(v.(string))
		require.NoError(t, err)
		return data
	case "content", "outcomes":
		return []byte(v.(string))
	case "claimed_at", "lease_until", "expires_at", "completed_at":
		when, err := time.Parse(time.RFC3339, v.(string))
		require.NoError(t, err)
		return at(when)
	case "fence":
		return int64(v.(float64))
	}
	return v
}

// S10: every version whose rows are kept is read: a folder that nobody names here would pass by being left out.
func TestEveryVersionIsRead(t *testing.T) {
	folders, err := confirmexec.Vectors.ReadDir("testdata/rows")
	require.NoError(t, err)
	var kept []string
	for _, f := range folders {
		kept = append(kept, f.Name())
	}
	assert.Equal(t, kept, versions)
}

// check asks about every key of a version on a store that holds its rows.
func check[TTx any](t *testing.T, st store.Store[TTx], g golden) {
	t.Helper()
	b, err := broker.New(st, &broker.Config{ReplayWait: -1, AcceptUnmintedKeys: true})
	require.NoError(t, err)
	for _, o := range g.Operations {
		t.Run(o.Name, func(t *testing.T) { checkOperation(t, b, o) })
	}
	for _, m := range g.Mutations {
		t.Run("mutation, "+m.Name, func(t *testing.T) {
			ref := broker.MutationRef{Tenant: "firm-a", AgentID: "agent-1", OperationID: m.OperationID, Identity: m.Identity}
			st, err := b.QueryMutation(t.Context(), ref)
			if m.Want.Document == "" {
				m.Want.refuses(t, err)
				return
			}
			require.NoError(t, err)
			data, err := st.Receipt.MarshalJSON()
			require.NoError(t, err)
			assert.Equal(t, m.Want.Document, string(data))
		})
	}
}

func checkOperation[TTx any](t *testing.T, b *broker.Broker[TTx], o operation) {
	t.Helper()
	st, err := b.Lookup(t.Context(), "firm-a", o.Key)
	require.NoError(t, err)
	assert.Equal(t, o.Phase, string(st.Phase))
	assert.Len(t, st.Contradictions, o.Want.Contradictions)

	p := contract.OperationProposal{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}
	for _, id := range o.Items {
		p.Items = append(p.Items, contract.Item{ID: id, Op: "add_forum", Params: json.RawMessage(`{"name":"forum ` + id + `"}`)})
	}
	current := contract.CurrentSurfaceState{SurfaceKey: p.SurfaceKey, ContractVersion: p.ContractVersion}
	runs := 0
	res, err := b.Execute(t.Context(), broker.Request{Tenant: "firm-a", Confirmation: p.Confirmation(o.Key), Current: current},
		func(_ context.Context, it broker.Item) (broker.Outcome, error) {
			runs++
			return broker.Applied("f-" + it.ID), nil
		})
	assert.Equal(t, o.Runs, runs)
	if o.Want.Document == "" {
		o.Want.refuses(t, err)
		return
	}
	require.NoError(t, err)
	data, err := res.MarshalJSON()
	require.NoError(t, err)
	assert.Equal(t, o.Want.Document, string(data))
}

func (w want) refuses(t *testing.T, err error) {
	t.Helper()
	f, ok := contract.FailureOf(err)
	require.True(t, ok, err)
	assert.Equal(t, []any{w.Code, w.Reason}, []any{f.Code, f.Reason})
}
