package properties

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/confirmexec/confirmexec/contract"
)

var reasons = []contract.Reason{
	"", "quota", contract.ReasonCancelled, contract.ReasonNotStarted, contract.ReasonPanic, contract.ReasonTimeout,
}

var outcomeStates = []contract.OutcomeState{
	contract.Applied, contract.Failed, contract.Skipped, contract.Ambiguous, contract.Skipped, "", "done",
}

// outcome is any outcome, with any texts.
func outcome() *rapid.Generator[contract.OperationItemOutcome] {
	anything := rapid.OneOf(text(), bytesAsText(), rapid.Map(rapid.IntRange(0, 3000), func(n int) string { return strings.Repeat("é", n) }))
	return rapid.Custom(func(t *rapid.T) contract.OperationItemOutcome {
		return contract.OperationItemOutcome{
			ItemID: anything.Draw(t, "id"), State: contract.OutcomeState(anything.Draw(t, "state")), Ref: anything.Draw(t, "ref"),
			Reason: contract.Reason(anything.Draw(t, "reason")), Detail: anything.Draw(t, "detail"),
		}
	})
}

// result is a result as the broker makes them: the ids are a confirmation's, every text is an executor's.
func result() *rapid.Generator[contract.OperationResult] {
	return rapid.Custom(func(t *rapid.T) contract.OperationResult {
		r := contract.OperationResult{IdempotencyKey: key().Draw(t, "key"), Replayed: rapid.Bool().Draw(t, "replayed")}
		r.IdempotencyKey[0] |= 1 // never nil
		for i := range rapid.IntRange(0, 12).Draw(t, "items") {
			o := outcome().Draw(t, "outcome")
			o.ItemID = fmt.Sprint("item-", i)
			o.State = rapid.SampledFrom(outcomeStates).Draw(t, "state")
			o.Reason = rapid.SampledFrom(reasons).Draw(t, "reason")
			r.Outcomes = append(r.Outcomes, o)
		}
		return r
	})
}

// S6, S17: any outcomes at all can be stored; they read back clean, and clean ones are stored as the same bytes again.
func TestOutcomesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		outcomes := rapid.SliceOfN(outcome(), 0, 5).Draw(t, "outcomes")
		data := contract.EncodeOutcomes(outcomes)
		require.True(t, utf8.Valid(data))
		back, err := contract.DecodeOutcomes(data)
		require.NoError(t, err)
		require.Len(t, back, len(outcomes))
		for i, o := range outcomes {
			require.Equal(t, o.Clean(), back[i])
			require.Equal(t, o.Clean(), back[i].Clean())
			require.True(t, back[i].State.Valid())
			require.LessOrEqual(t, len(back[i].Ref), contract.MaxRef)
			require.LessOrEqual(t, len(back[i].Reason), contract.MaxReason)
			require.LessOrEqual(t, len(back[i].Detail), contract.MaxDetail)
			if o.State != contract.Applied {
				require.NotEqual(t, contract.Applied, back[i].State, "nothing becomes applied by being stored")
			}
		}
		require.Equal(t, string(data), string(contract.EncodeOutcomes(back)))
	})
}

// S7, S17: a result is always written and reads back as it was, clean; a replay differs in replayed alone.
func TestResultsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := result().Draw(t, "result")
		data, err := json.Marshal(r)
		require.NoError(t, err)
		var back contract.OperationResult
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, r.Tally(), back.Tally())
		require.Equal(t, r.Summary(), back.Summary())
		again, err := json.Marshal(back)
		require.NoError(t, err)
		require.Equal(t, string(data), string(again))

		stored, err := contract.DecodeOutcomes(contract.EncodeOutcomes(r.Outcomes))
		require.NoError(t, err)
		replay, err := json.Marshal(contract.OperationResult{IdempotencyKey: r.IdempotencyKey, Outcomes: stored, Replayed: !r.Replayed})
		require.NoError(t, err)
		was, is := fmt.Sprintf(`"replayed":%t`, r.Replayed), fmt.Sprintf(`"replayed":%t`, !r.Replayed)
		require.Equal(t, strings.Replace(string(data), was, is, 1), string(replay))
	})
}

var tallied = regexp.MustCompile(`^(\d+) of (\d+) items? applied`)

// S7, S8: the tally is the outcomes counted one by one, its sum is the number of items, and Summary, Err and Recovery say
// what it says.
func TestTallyAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := result().Draw(t, "result")
		var want contract.Tally
		attention, cancelled := len(r.Outcomes) == 0, len(r.Outcomes) > 0
		for _, o := range r.Outcomes {
			left := o.State == contract.Skipped && o.Reason != contract.ReasonCancelled && o.Reason != contract.ReasonNotStarted
			attention = attention || o.State != contract.Applied && !left
			cancelled = cancelled && o.State == contract.Skipped && o.Reason == contract.ReasonCancelled
			switch o.State {
			case contract.Applied:
				want.Applied++
			case contract.Failed:
				want.Failed++
			case contract.Skipped:
				want.Skipped++
			default:
				want.Ambiguous++
			}
		}
		require.Equal(t, want, r.Tally())
		require.Equal(t, len(r.Outcomes), r.Tally().Total())
		require.Equal(t, attention, r.Err() != nil)
		require.Equal(t, want.Ambiguous > 0, r.Recovery() != nil)
		require.Equal(t, cancelled, r.Cancelled())

		s := r.Summary()
		require.Equal(t, want.Ambiguous > 0, strings.Contains(s, "do not confirm again"))
		if len(r.Outcomes) == 0 || cancelled {
			return
		}
		m := tallied.FindStringSubmatch(s)
		require.NotNil(t, m, s)
		require.Equal(t, strconv.Itoa(want.Applied), m[1])
		require.Equal(t, strconv.Itoa(len(r.Outcomes)), m[2])
		for word, n := range map[string]int{"failed": want.Failed, "skipped": want.Skipped, "unclear": want.Ambiguous} {
			require.Equal(t, n > 0, strings.Contains(s, fmt.Sprintf(", %d %s", n, word)), s)
		}
	})
}
