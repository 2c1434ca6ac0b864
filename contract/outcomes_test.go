package contract

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var states = []OutcomeState{Applied, Failed, Skipped, Ambiguous}

// S6: the states are closed in every direction.
func TestOutcomeStates(t *testing.T) {
	for _, s := range states {
		assert.True(t, s.Valid())
		text, err := s.MarshalText()
		require.NoError(t, err)
		var back OutcomeState
		require.NoError(t, back.UnmarshalText(text))
		assert.Equal(t, s, back)
		require.NoError(t, json.Unmarshal([]byte(`"`+s+`"`), &back))
	}
	for _, bad := range []OutcomeState{"", "Applied", "APPLIED", " applied", "success", "unknown", "applied\x00"} {
		assert.False(t, bad.Valid())
		_, err := bad.MarshalText()
		assert.ErrorIs(t, err, ErrInvalid)
		_, err = json.Marshal(bad)
		assert.ErrorIs(t, err, ErrInvalid)
		s := Failed
		assert.ErrorIs(t, s.UnmarshalText([]byte(bad)), ErrInvalid)
		assert.Equal(t, Failed, s, "a failed decode changes nothing")
	}
}

const storedDoc = `{"schema_version":"operation_recovery.v1","outcomes":[` +
	`{"item_id":"a","state":"applied","ref":"forum/7"},` +
	`{"item_id":"b","state":"failed","reason":"quota","detail":"no room left"},{"item_id":"c","state":"ambiguous"}]}`

var storedOutcomes = []OperationItemOutcome{
	{ItemID: "a", State: Applied, Ref: "forum/7"},
	{ItemID: "b", State: Failed, Reason: "quota", Detail: "no room left"},
	{ItemID: "c", State: Ambiguous},
}

// S17: stored outcomes are these bytes, and read back as they were.
func TestStoredOutcomes(t *testing.T) {
	assert.Equal(t, storedDoc, string(EncodeOutcomes(storedOutcomes)))
	outcomes, err := DecodeOutcomes([]byte(storedDoc))
	require.NoError(t, err)
	assert.Equal(t, storedOutcomes, outcomes)
	assert.Equal(t, `{"schema_version":"operation_recovery.v1","outcomes":[]}`, string(EncodeOutcomes(nil)))
	outcomes, err = DecodeOutcomes(EncodeOutcomes(nil))
	require.NoError(t, err)
	assert.Empty(t, outcomes)
}

// S6, S17: whatever an executor says can be stored, and the first run shows what a replay will show.
func TestAnyOutcomeCanBeStored(t *testing.T) {
	long := strings.Repeat("é\x00\xff", 5000)
	for _, o := range []OperationItemOutcome{
		{}, {State: "bogus"}, {ItemID: long, State: Applied, Ref: long, Reason: Reason(long), Detail: long},
		{ItemID: "\ud7ff\xed\xa0\x80", State: Failed, Detail: `"}],"state":"applied" \u0000`}, {Detail: "a\nb\u202e\u2028c"},
	} {
		back, err := DecodeOutcomes(EncodeOutcomes([]OperationItemOutcome{o}))
		require.NoError(t, err)
		assert.Equal(t, []OperationItemOutcome{o.Clean()}, back)
		assert.Equal(t, o.Clean(), o.Clean().Clean())
		assert.LessOrEqual(t, len(o.Clean().Ref), MaxRef)
		assert.LessOrEqual(t, len(o.Clean().Detail), MaxDetail)
		assert.LessOrEqual(t, len(o.Clean().Reason), MaxReason)
	}
	assert.Equal(t, Ambiguous, OperationItemOutcome{State: "bogus"}.Clean().State)
	assert.Equal(t, storedOutcomes[1], storedOutcomes[1].Clean())
}

// S6: stored outcomes are read strictly; another state is an error, never a default.
func TestDecodeOutcomesIsStrict(t *testing.T) {
	for name, tc := range map[string]struct{ old, repl, path string }{
		"other state":    {`"applied"`, `"done"`, "/outcomes/0/state"},
		"upper case":     {`"applied"`, `"Applied"`, "/outcomes/0/state"},
		"empty state":    {`"ambiguous"`, `""`, "/outcomes/2/state"},
		"null state":     {`"ambiguous"`, `null`, "/outcomes/2/state"},
		"number state":   {`"ambiguous"`, `4`, "/outcomes/2/state"},
		"no state":       {`,"state":"ambiguous"`, ``, "/outcomes/2/state"},
		"no id":          {`"item_id":"a",`, ``, "/outcomes/0/item_id"},
		"null ref":       {`"forum/7"`, `null`, "/outcomes/0/ref"},
		"number ref":     {`"forum/7"`, `7`, "/outcomes/0/ref"},
		"ref too long":   {`forum/7`, strings.Repeat("x", MaxRef+1), "/outcomes/0"},
		"hidden text":    {`no room left`, `no\u0000room`, "/outcomes/1"},
		"reason object":  {`"quota"`, `{}`, "/outcomes/1/reason"},
		"unknown member": {`"reason"`, `"why":1,"reason"`, "/outcomes/1/why"},
		"twice":          {`"item_id":"c"`, `"item_id":"c","item_id":"c"`, "/outcomes/2/item_id"},
		"null outcome":   {`{"item_id":"c","state":"ambiguous"}`, `null`, "/outcomes/2"},
		"count":          {`"outcomes"`, `"applied":1,"outcomes"`, "/applied"},
		"other version":  {`.v1`, `.v2`, "/schema_version"},
		"no version":     {`"schema_version":"operation_recovery.v1",`, ``, "/schema_version"},
		"no outcomes":    {`"outcomes":[`, `"outcome":[`, "/outcome"},
		"trailing":       {`]}`, `]}{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, storedDoc, tc.old)
			outcomes, err := DecodeOutcomes([]byte(strings.Replace(storedDoc, tc.old, tc.repl, 1)))
			requireInvalid(t, err, tc.path)
			assert.Nil(t, outcomes)
		})
	}
	_, err := DecodeOutcomes([]byte(`{"schema_version":"operation_recovery.v1"}`))
	requireInvalid(t, err, "/outcomes")
	_, err = DecodeOutcomes(nil)
	requireInvalid(t, err, "")
}

// S6: one outcome by itself is as strict, for users of encoding/json.
func TestOutcomeJSON(t *testing.T) {
	out, err := json.Marshal(storedOutcomes[1])
	require.NoError(t, err)
	assert.JSONEq(t, `{"item_id":"b","state":"failed","reason":"quota","detail":"no room left"}`, string(out))
	var o OperationItemOutcome
	require.NoError(t, json.Unmarshal(out, &o))
	assert.Equal(t, storedOutcomes[1], o)
	for _, bad := range []string{
		`{}`, `{"item_id":"a"}`, `{"item_id":"a","state":"done"}`, `{"item_id":"a","state":"failed","x":1}`,
	} {
		assert.ErrorIs(t, json.Unmarshal([]byte(bad), &o), ErrInvalid)
	}
	assert.Equal(t, storedOutcomes[1], o)
}

// S6, S17: no bytes make the decoder panic; what it accepts is what the encoder writes.
func FuzzDecodeOutcomes(f *testing.F) {
	f.Add([]byte(storedDoc))
	f.Add([]byte(`{"schema_version":"operation_recovery.v1","outcomes":[]}`))
	f.Add([]byte(`{"outcomes":[{"item_id":"\u0041","state":"skipped","ref":"","detail":"\ud83d\ude00"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		outcomes, err := DecodeOutcomes(data)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		again, err := DecodeOutcomes(EncodeOutcomes(outcomes))
		require.NoError(t, err)
		require.Equal(t, outcomes, again)
	})
}

// S6, S17: any outcome at all can be stored and read back as Clean leaves it.
func FuzzEncodeOutcomes(f *testing.F) {
	f.Add("a", "applied", "ref", "reason", "detail", "by", true)
	f.Add("\xff", "", "\x00", "\u2028", "\u202e\"\\", "\x7f", false)
	f.Fuzz(func(t *testing.T, id, state, ref, reason, detail, by string, provisional bool) {
		o := OperationItemOutcome{id, OutcomeState(state), ref, Reason(reason), detail, by, provisional}
		back, err := DecodeOutcomes(EncodeOutcomes([]OperationItemOutcome{o}))
		require.NoError(t, err)
		require.Equal(t, []OperationItemOutcome{o.Clean()}, back)
	})
}
