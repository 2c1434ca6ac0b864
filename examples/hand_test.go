package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
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

// killed confirms by hand, with a slow registry, and kills the process by SIGKILL when it has entered the first item. It
// returns what the process said.
func killed(t *testing.T, dir, confirmation string, flags ...string) string {
	t.Helper()
	cmd := program(t, dir, append([]string{"confirm", "-slow", "1m", "-lease", "3s"}, flags...)...)
	cmd.Stdin = strings.NewReader(confirmation)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	entered, said := false, ""
	for lines := bufio.NewScanner(stderr); !entered && lines.Scan(); {
		entered = strings.HasPrefix(lines.Text(), "Entered item 1")
		said += lines.Text() + "\n"
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	require.True(t, entered, said)
	require.True(t, wasKilled(cmd.ProcessState), cmd.ProcessState)
	return said
}

// confirmed confirms by hand until the lease of the confirm that was killed is over.
func confirmed(t *testing.T, dir, confirmation string, flags ...string) ran {
	t.Helper()
	answer := start(t, dir, confirmation, append([]string{"confirm"}, flags...)...) // waits for the first one, within its lease
	for strings.Contains(answer.err, "in_progress") {
		answer = start(t, dir, confirmation, append([]string{"confirm"}, flags...)...)
	}
	return answer
}

// S14, S21: a confirm that is killed is ambiguous after its lease, nothing runs again, and reading settles it.
func TestByHandKilled(t *testing.T) {
	t.Parallel()
	settleKilled(t, t.TempDir())
}

func settleKilled(t *testing.T, dir string, flags ...string) {
	t.Helper()
	confirmation, key := proposed(t, dir, flags...)
	with := func(args ...string) []string { return append(args, flags...) }
	killed(t, dir, confirmation, flags...)
	registry := filepath.Join(dir, "registry.jsonl")
	before := sample(t, registry)
	assert.Equal(t, 1, strings.Count(before, "\n"))

	answer := confirmed(t, dir, confirmation, flags...)
	assert.Equal(t, exitFailed, answer.status)
	res := result(t, answer)
	require.NotNil(t, res.Recovery())
	assert.Equal(t, key, res.Recovery().IdempotencyKey.String())
	assert.Contains(t, answer.err, "Reload to check what is unclear; do not confirm again.")

	listed := start(t, dir, "", with("unresolved")...)
	require.Equal(t, exitOK, listed.status, listed.err)
	assert.Regexp(t, `^KEY +AGE +WHY\n`+key+` +\d+s +never completed, and its lease is over\n$`, listed.out)

	settled := start(t, dir, "", with("resolve", "-by", "the test", key)...)
	assert.Equal(t, exitFailed, settled.status, "the second item was not started, which needs attention")
	assert.Contains(t, settled.err, "Resolved by the test. 1 of 2 items applied, 1 skipped (nclt-delhi).")
	outcomes := result(t, settled).Outcomes
	require.Len(t, outcomes, 2)
	assert.Equal(t, contract.OperationItemOutcome{
		ItemID: mumbai, State: contract.Applied, Ref: outcomes[0].Ref, Reason: contract.ReasonFoundApplied, By: "the test",
		Detail: "line 1 of registry.jsonl has the item's key",
	}, outcomes[0])
	assert.Regexp(t, `^entry/[0-9a-f-]{36}$`, outcomes[0].Ref)
	assert.Equal(t, contract.OperationItemOutcome{ItemID: delhi, State: contract.Skipped, Reason: contract.ReasonNotStarted}, outcomes[1])

	again := start(t, dir, "", with("resolve", key)...) // by the user of this system
	assert.Contains(t, again.err, "It was settled before. 1 of 2 items applied")
	late := start(t, dir, confirmation, with("confirm")...)
	assert.Contains(t, late.err, "Answer: replayed.")
	assert.Equal(t, outcomes, result(t, late).Outcomes, "a later confirm is told the verdict")
	listed = start(t, dir, "", with("unresolved")...)
	assert.Empty(t, listed.out)
	assert.Contains(t, listed.err, "No key needs anybody.")
	assert.Equal(t, before, sample(t, registry), "no executor ran again")
}

// S21: what the registry does not have is absent, for now; a registry that cannot be read proves nothing, and can be asked again.
func TestByHandAbsentAndUnknown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	confirmation, key := proposed(t, dir)
	killed(t, dir, confirmation)
	registry := filepath.Join(dir, "registry.jsonl")
	require.NoError(t, os.Rename(registry, registry+".away"))
	confirmed(t, dir, confirmation) // which makes an empty one
	require.NoError(t, os.Remove(registry))

	unread := start(t, dir, "", "resolve", key)
	assert.Equal(t, exitFailed, unread.status)
	o := result(t, unread).Outcomes[0]
	assert.Equal(t, contract.Ambiguous, o.State)
	assert.Equal(t, contract.ReasonStillUnknown, o.Reason)
	assert.Contains(t, o.Detail, "the registry could not be read")
	listed := start(t, dir, "", "unresolved")
	assert.Regexp(t, `(?m)^`+key+` +\S+ +completed, but an item is unclear$`, listed.out)

	require.NoError(t, os.WriteFile(registry, nil, 0o600))
	absent := start(t, dir, "", "resolve", key)
	assert.Equal(t, exitFailed, absent.status)
	o = result(t, absent).Outcomes[0]
	assert.Equal(t, contract.Failed, o.State)
	assert.True(t, o.Provisional)
	assert.Equal(t, "registry.jsonl has no line with the item's key (lines read: 0)", o.Detail)
	assert.NotEmpty(t, o.By, "the user of this system")
	assert.Contains(t, start(t, dir, "", "unresolved").err, "No key needs anybody.")
}

// S21: only what was confirmed and is not running can be resolved.
func TestByHandNothingToResolve(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, key := proposed(t, dir)
	for args, reason := range map[string]string{
		"resolve " + key:                     "pramaan.agent_operation.not_confirmed",
		"resolve -tenant firm-b " + key:      "pramaan.agent_operation.not_minted",
		"resolve " + strings.Repeat("a", 32): "pramaan.agent_operation.not_minted",
	} {
		r := start(t, dir, "", strings.Fields(args)...)
		assert.Contains(t, r.err, reason, args)
		assert.Empty(t, r.out, args)
	}
}

// The pages of the list: each key once, in order, with the command for the next page.
func TestByHandPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var keys, listed []string
	var last string
	for range 3 {
		confirmation, key := proposed(t, dir)
		killed(t, dir, confirmation)
		keys, last = append(keys, key), confirmation
	}
	confirmed(t, dir, last)
	next := regexp.MustCompile(`go run ./examples (unresolved -after \S+)`)
	args := []string{"unresolved"}
	for range 3 {
		r := start(t, dir, "", append(args, "-limit", "2")...)
		require.Equal(t, exitOK, r.status, r.err)
		for _, row := range strings.Split(strings.TrimSpace(r.out), "\n")[1:] {
			listed = append(listed, strings.Fields(row)[0])
		}
		more := next.FindStringSubmatch(r.err)
		if more == nil {
			break
		}
		args = strings.Fields(more[1])
	}
	assert.Equal(t, keys, listed)
	assert.Contains(t, start(t, dir, "", "unresolved", "-after", keys[2]).err, "No key needs anybody.")
}

// S21: why a key is in the list, and what contradicts a verdict, as they are printed.
func TestWhyAndStatus(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "completed, but an item is unclear", why(broker.UnresolvedKey{Completed: true}))
	assert.Equal(t, "never completed, and its lease is over; contested", why(broker.UnresolvedKey{Contested: true}))
	assert.Contains(t, why(broker.UnresolvedKey{Completed: true, Contested: true}), "contested: a late attempt said otherwise")
	said := contract.OperationItemOutcome{ItemID: "a", State: contract.Applied}
	data, err := json.Marshal(statusOf(&broker.Status{Contradictions: []broker.Contradiction{{Said: said}}}).Contradictions)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"attempt":"00000000-0000-0000-0000-000000000000","said":{"item_id":"a","state":"applied"}}]`, string(data))
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
