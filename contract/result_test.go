package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// resultOf makes a result from one letter per item: a(pplied), f(ailed), s(kipped by choice), c(ancelled), n(ot
// started), u(nclear), x (no state at all).
func resultOf(letters string) OperationResult {
	r := OperationResult{IdempotencyKey: uuid.MustParse(testKey)}
	for i, letter := range letters {
		o := OperationItemOutcome{ItemID: fmt.Sprint("item-", i), Detail: "d3tail"}
		switch letter {
		case 'a':
			o.State = Applied
		case 'f':
			o.State = Failed
		case 's':
			o.State, o.Reason = Skipped, "not_wanted"
		case 'c':
			o.State, o.Reason = Skipped, ReasonCancelled
		case 'n':
			o.State, o.Reason = Skipped, ReasonNotStarted
		case 'u':
			o.State = Ambiguous
		}
		r.Outcomes = append(r.Outcomes, o)
	}
	return r
}

// everyResult calls fn with every combination of up to four outcomes.
func everyResult(fn func(letters string, r OperationResult)) {
	words := []string{""}
	for range 4 {
		for _, w := range words {
			for _, letter := range "afscnux" {
				words = append(words, w+string(letter))
			}
		}
	}
	seen := map[string]bool{}
	for _, w := range words {
		if !seen[w] {
			seen[w] = true
			fn(w, resultOf(w))
		}
	}
}

// S7: the tally is the outcomes, counted; its sum is the number of items, always.
func TestTally(t *testing.T) {
	everyResult(func(letters string, r OperationResult) {
		n := func(of string) int { return len(letters) - len(strings.Trim(strings.Map(drop(of), letters), "")) }
		want := Tally{n("a"), n("f"), n("scn"), n("ux")}
		require.Equal(t, want, r.Tally(), letters)
		require.Equal(t, len(letters), r.Tally().Total(), letters)
	})
}

func drop(set string) func(rune) rune {
	return func(r rune) rune {
		if strings.ContainsRune(set, r) {
			return -1
		}
		return r
	}
}

// S8: Err is nil exactly when every item is applied or left out by choice; no outcome at all is no success.
func TestErr(t *testing.T) {
	everyResult(func(letters string, r OperationResult) {
		err := r.Err()
		if letters != "" && strings.Trim(letters, "as") == "" {
			require.NoError(t, err, letters)
			return
		}
		require.ErrorIs(t, err, ErrUnsettled, letters)
		unsettled, ok := errors.AsType[*UnsettledError](fmt.Errorf("wrapped: %w", err))
		require.True(t, ok)
		require.Equal(t, r.Tally(), unsettled.Tally)
		require.Equal(t, r.IdempotencyKey, unsettled.IdempotencyKey)
		require.NotContains(t, err.Error(), testKey)
		require.NotContains(t, err.Error(), "item-")
		require.NotContains(t, err.Error(), "d3tail")
	})
	assert.EqualError(t, resultOf("aaf").Err(), "ABORTED: pramaan.agent_operation.unsettled: not every item was applied; "+
		"see the result's outcomes (2 applied, 1 failed, 0 skipped, 0 ambiguous)")
}

// S8: there is one recovery instruction exactly when an item is ambiguous, and it names the key that Resolve takes.
func TestRecovery(t *testing.T) {
	everyResult(func(letters string, r OperationResult) {
		recovery := r.Recovery()
		if !strings.ContainsAny(letters, "ux") {
			require.Nil(t, recovery, letters)
			return
		}
		require.Equal(t, ReloadToCheck, recovery.Action)
		require.Equal(t, r.IdempotencyKey, recovery.IdempotencyKey)
		require.Contains(t, recovery.Message, "do not confirm again")
	})
	assert.Equal(t, "It is not known whether 1 of 3 items took effect. Reload to check; do not confirm again.",
		resultOf("auf").Recovery().Message)
}

// S8: a result is cancelled when every item is, and only then.
func TestCancelled(t *testing.T) {
	everyResult(func(letters string, r OperationResult) {
		require.Equal(t, letters != "" && strings.Trim(letters, "c") == "", r.Cancelled(), letters)
	})
}

// S7: the prose says what the tally says.
func TestSummary(t *testing.T) {
	for letters, want := range map[string]string{
		"":       "No outcome is known of any item.",
		"a":      "1 of 1 item applied.",
		"aaa":    "3 of 3 items applied.",
		"aas":    "2 of 3 items applied, 1 skipped.",
		"af":     "1 of 2 items applied, 1 failed (item-1).",
		"afffff": "1 of 6 items applied, 5 failed (item-1, item-2, item-3 and 2 more).",
		"fnu": "0 of 3 items applied, 1 failed (item-0), 1 skipped (item-1), 1 unclear (item-2). " +
			"Reload to check what is unclear; do not confirm again.",
		"cc": "Cancelled before it ran: 0 of 2 items applied, 2 skipped.",
	} {
		assert.Equal(t, want, resultOf(letters).Summary())
	}
}

// S7: no summary of any result contradicts its tally, nor shows more than counts and ids.
func TestSummaryNeverContradictsTheTally(t *testing.T) {
	number := func(s, pattern string) int {
		m := regexp.MustCompile(pattern).FindStringSubmatch(s)
		if m == nil {
			return 0
		}
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		return n
	}
	everyResult(func(letters string, r OperationResult) {
		s, tally := r.Summary(), r.Tally()
		require.Equal(t, tally, Tally{
			number(s, `(\d+) of \d+ items? applied`), number(s, `(\d+) failed`), number(s, `(\d+) skipped`),
			number(s, `(\d+) unclear`),
		}, s)
		require.Equal(t, tally.Total(), number(s, `\d+ of (\d+) items? applied`), s)
		require.Equal(t, r.Recovery() != nil, strings.Contains(s, "do not confirm again"), s)
		require.Equal(t, r.Cancelled(), strings.Contains(s, "Cancelled"), s)
		require.NotContains(t, s, "d3tail")
		require.NotContains(t, s, testKey)
		require.LessOrEqual(t, strings.Count(s, "."), 2, s)
	})
}

const resultJSON = `{"schema_version":"operation_recovery.v1","idempotency_key":"` + testKey + `",` +
	`"outcomes":[{"item_id":"a","state":"applied"},{"item_id":"b","state":"ambiguous","reason":"timeout"}],` +
	`"replayed":false,"recovery":{"action":"reload_to_check","message":"` + unclearMessage + `",` +
	`"idempotency_key":"` + testKey + `"}}`

const unclearMessage = "It is not known whether 1 of 2 items took effect. Reload to check; do not confirm again."

// S7, S17: the wire form has no count, and a replay differs from the first run in replayed alone.
func TestResultJSON(t *testing.T) {
	var r OperationResult
	require.NoError(t, json.Unmarshal([]byte(resultJSON), &r))
	assert.Equal(t, OperationResult{uuid.MustParse(testKey), []OperationItemOutcome{
		{ItemID: "a", State: Applied}, {ItemID: "b", State: Ambiguous, Reason: ReasonTimeout}}, false}, r)
	out, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Equal(t, resultJSON, string(out))

	stored, err := DecodeOutcomes(EncodeOutcomes(r.Outcomes))
	require.NoError(t, err)
	replay, err := json.Marshal(OperationResult{r.IdempotencyKey, stored, true})
	require.NoError(t, err)
	assert.Equal(t, strings.Replace(resultJSON, `"replayed":false`, `"replayed":true`, 1), string(replay))

	out, err = json.Marshal(resultOf("as"))
	require.NoError(t, err)
	assert.NotContains(t, string(out), "recovery\"")
}

// S7, S17: every result is written, and reads back as its outcomes clean.
func TestResultRoundTrip(t *testing.T) {
	everyResult(func(letters string, r OperationResult) {
		r.Replayed = len(letters)%2 == 1
		data, err := json.Marshal(r)
		require.NoError(t, err)
		var back OperationResult
		require.NoError(t, json.Unmarshal(data, &back), letters)
		r.Outcomes = cleanAll(r.Outcomes)
		require.Equal(t, r, back)
	})
}

// S6, S8: a result is read strictly, and its instruction must agree with its outcomes.
func TestResultIsStrict(t *testing.T) {
	recovery := resultJSON[strings.Index(resultJSON, `,"recovery"`) : len(resultJSON)-1]
	for name, tc := range map[string]struct{ old, repl, path string }{
		"count":               {`"replayed"`, `"applied":1,"replayed"`, "/applied"},
		"other state":         {`"ambiguous"`, `"unclear"`, "/outcomes/1/state"},
		"null state":          {`"ambiguous"`, `null`, "/outcomes/1/state"},
		"no replayed":         {`"replayed":false,`, ``, "/replayed"},
		"replayed as text":    {`false`, `"false"`, "/replayed"},
		"null replayed":       {`false`, `null`, "/replayed"},
		"other version":       {`.v1`, `.v3`, "/schema_version"},
		"no key":              {`"idempotency_key":"` + testKey + `",`, ``, "/idempotency_key"},
		"key with urn":        {testKey, "urn:uuid:" + testKey, "/idempotency_key"},
		"nil key":             {testKey, uuid.Nil.String(), "/idempotency_key"},
		"outcomes null":       {`[{"item_id":"a","state":"applied"},`, `null,"x":[`, "/outcomes"},
		"item twice":          {`"item_id":"b"`, `"item_id":"a"`, "/outcomes/1/item_id"},
		"empty id":            {`"item_id":"b"`, `"item_id":""`, "/outcomes/1/item_id"},
		"recovery missing":    {recovery, ``, "/recovery"},
		"recovery null":       {recovery, `,"recovery":null`, "/recovery"},
		"recovery unneeded":   {`"ambiguous"`, `"failed"`, "/recovery"},
		"recovery empty":      {recovery, `,"recovery":{}`, "/recovery/action"},
		"recovery array":      {recovery, `,"recovery":[]`, "/recovery"},
		"other action":        {`reload_to_check`, `retry`, "/recovery/action"},
		"other key":           {`again.","idempotency_key":"0`, `again.","idempotency_key":"1`, "/recovery/idempotency_key"},
		"no message":          {`"message"`, `"text"`, "/recovery/text"},
		"empty message":       {unclearMessage, ``, "/recovery/message"},
		"member of recovery":  {`"action"`, `"action2":1,"action"`, "/recovery/action2"},
		"another instruction": {`"recovery"`, `"recovery":{},"recovery"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, resultJSON, tc.old)
			r := OperationResult{Replayed: true}
			err := r.UnmarshalJSON([]byte(strings.Replace(resultJSON, tc.old, tc.repl, 1)))
			if tc.path == "" {
				require.ErrorIs(t, err, ErrInvalid)
			} else {
				requireInvalid(t, err, tc.path)
			}
			assert.Equal(t, OperationResult{Replayed: true}, r, "a failed decode changes nothing")
		})
	}
}

// S6, S7: no bytes make the decoder panic; what it accepts is a result whose parts agree, and reads back the same.
func FuzzDecodeResult(f *testing.F) {
	f.Add([]byte(resultJSON))
	f.Add([]byte(strings.Replace(resultJSON, `"ambiguous"`, `"failed"`, 1)))
	f.Add([]byte(`{"schema_version":"operation_recovery.v1","idempotency_key":"` + testKey +
		`","outcomes":[],"replayed":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r OperationResult
		if err := r.UnmarshalJSON(data); err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.Equal(t, len(r.Outcomes), r.Tally().Total())
		require.Equal(t, r.Tally().Ambiguous > 0, r.Recovery() != nil)
		out, err := r.MarshalJSON()
		require.NoError(t, err)
		var again OperationResult
		require.NoError(t, again.UnmarshalJSON(out))
		require.Equal(t, r, again)
	})
}
