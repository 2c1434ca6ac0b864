package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

func sample(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

// proposed is a confirmation by hand, and its key.
func proposed(t *testing.T, dir string, flags ...string) (confirmation, key string) {
	t.Helper()
	r := start(t, dir, sample(t, "proposal.json"), append([]string{"propose"}, flags...)...)
	require.Equal(t, exitOK, r.status, r.err)
	assert.Contains(t, r.err, "go run ./examples confirm < confirmation.json")
	c, err := contract.DecodeConfirmation([]byte(r.out), contract.Limits{})
	require.NoError(t, err)
	return r.out, c.IdempotencyKey.String()
}

func result(t *testing.T, r ran) contract.OperationResult {
	t.Helper()
	var res contract.OperationResult
	require.NoError(t, json.Unmarshal([]byte(r.out), &res), "%s%s", r.out, r.err)
	return res
}

// S12, S17, S20: confirmed twice, and then edited.
func TestByHand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	confirmation, key := proposed(t, dir)

	first := start(t, dir, confirmation, "confirm")
	require.Equal(t, exitOK, first.status, first.err)
	assert.Equal(t, contract.Tally{Applied: 2}, result(t, first).Tally())
	assert.False(t, result(t, first).Replayed)
	again := start(t, dir, confirmation, "confirm")
	require.Equal(t, exitOK, again.status, again.err)
	assert.Equal(t, strings.Replace(first.out, `"replayed": false`, `"replayed": true`, 1), again.out)

	edited := start(t, dir, strings.Replace(confirmation, "NCLT Delhi", "NCLT Chennai", 1), "confirm")
	assert.Equal(t, exitFailed, edited.status)
	assert.Empty(t, edited.out)
	for _, want := range []string{"pramaan.agent_operation.key_reused", "ABORTED", "the key stands for other content"} {
		assert.Contains(t, edited.err, want)
	}

	looked := start(t, dir, "", "lookup", key)
	require.Equal(t, exitOK, looked.status, looked.err)
	var status struct {
		Phase        broker.Phase                   `json:"phase"`
		Confirmation contract.OperationConfirmation `json:"confirmation"`
		Result       *contract.OperationResult      `json:"result"`
	}
	require.NoError(t, json.Unmarshal([]byte(looked.out), &status))
	assert.Equal(t, broker.Completed, status.Phase)
	assert.Equal(t, key, status.Confirmation.IdempotencyKey.String())
	assert.Equal(t, 2, status.Result.Tally().Applied)

	late := start(t, dir, "", "cancel", key)
	assert.Equal(t, exitFailed, late.status)
	assert.Contains(t, late.err, "Not cancelled: it was confirmed before.")
	entries, err := readLedger(filepath.Join(dir, "registry.jsonl"))
	require.NoError(t, err)
	assert.Len(t, entries, 2, "one call for each item")
}

// S13, S11, S29: drift, another tenant, and cancel.
func TestByHandRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	confirmation, key := proposed(t, dir)

	stale := start(t, dir, confirmation, "confirm", "-version", "v2")
	assert.Equal(t, exitFailed, stale.status)
	assert.Contains(t, stale.err, `contract_version was "v1", is "v2"`)
	assert.Contains(t, stale.err, "propose again")
	foreign := start(t, dir, confirmation, "confirm", "-tenant", "firm-b")
	unknown := start(t, dir, sample(t, "confirmation.sample.json"), "confirm")
	assert.Equal(t, exitFailed, foreign.status)
	assert.Contains(t, foreign.err, "pramaan.agent_operation.not_minted")
	assert.Equal(t, unknown.err, foreign.err)

	gone := start(t, dir, "", "cancel", key)
	require.Equal(t, exitOK, gone.status, gone.err)
	assert.True(t, result(t, gone).Cancelled())
	late := start(t, dir, confirmation, "confirm")
	assert.Equal(t, exitFailed, late.status)
	assert.Contains(t, late.err, "Answer: cancelled. Cancelled before it ran: 0 of 2 items applied, 2 skipped.")
	entries, err := readLedger(filepath.Join(dir, "registry.jsonl"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// S14: a confirm that is killed is ambiguous after its lease, and nothing runs again.
func TestByHandKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	confirmation, key := proposed(t, dir)
	cmd := program(t, dir, "confirm", "-slow", "1m", "-lease", "1s")
	cmd.Stdin = strings.NewReader(confirmation)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "Entered item 1") {
			break
		}
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	before := sample(t, filepath.Join(dir, "registry.jsonl"))

	answer := start(t, dir, confirmation, "confirm") // waits for the first one, within its lease
	for strings.Contains(answer.err, "in_progress") {
		answer = start(t, dir, confirmation, "confirm")
	}
	assert.Equal(t, exitFailed, answer.status)
	res := result(t, answer)
	require.NotNil(t, res.Recovery())
	assert.Equal(t, key, res.Recovery().IdempotencyKey.String())
	assert.Contains(t, answer.err, "Reload to check what is unclear; do not confirm again.")
	assert.Equal(t, before, sample(t, filepath.Join(dir, "registry.jsonl")))
	assert.NotEmpty(t, before)
}

// S1: what is wrong with an input is told with its place.
func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := sample(t, "confirmation.sample.json")
	replaced := func(old, with string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, with, 1)
	}
	for _, c := range []struct{ input, where string }{
		{"", "the whole document"},
		{"{", "the whole document"},
		{replaced(`"item_id": "nclt-delhi"`, `"item_id": 7`), "/items/1/item_id"},
		{replaced(`"item_id": "nclt-delhi"`, `"item_id": "nclt-mumbai"`), "/items/1/item_id"},
		{replaced(`"matter:7/forums"`, `"https://example.org/"`), "/surface_key"},
		{replaced(`0198c0de-7a11-7000-8000-00000000c0de`, `one`), "/idempotency_key"},
		{replaced(`{"name": "NCLT Mumbai"}`, `{"name": "a", "name": "b"}`), "/items/0/params/name"},
		{replaced(`operation_recovery.v1`, `operation_recovery.v2`), "/schema_version"},
	} {
		r := start(t, dir, c.input, "confirm")
		assert.Equal(t, exitFailed, r.status, c.input)
		assert.Contains(t, r.err, "where:   "+c.where+"\n", c.input)
		assert.Contains(t, r.err, "INVALID_ARGUMENT")
		assert.Empty(t, r.out)
	}
	unkeyed := start(t, dir, good, "propose")
	assert.Equal(t, exitFailed, unkeyed.status)
	assert.Contains(t, unkeyed.err, "where:   /idempotency_key")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "an input that is refused touches nothing")
}
