package contracttest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
)

type outcomes = []contract.OperationItemOutcome

// forgivingOutcomes lets the problems through of which this is part; a state that is none becomes the other.
func forgivingOutcomes(problem string, other contract.OutcomeState) impl {
	return impl{DecodeOutcomes: func(document []byte) (outcomes, error) {
		all, err := contract.DecodeOutcomes(document)
		if err == nil || !strings.Contains(err.Error(), problem) {
			return all, err
		}
		var doc struct {
			Outcomes []struct {
				ItemID string `json:"item_id"`
				State  string `json:"state"`
				Detail string `json:"detail"`
			} `json:"outcomes"`
		}
		_ = json.Unmarshal(document, &doc)
		for _, o := range doc.Outcomes {
			state := contract.OutcomeState(o.State)
			if !state.Valid() {
				state = other
			}
			all = append(all, contract.OperationItemOutcome{ItemID: o.ItemID, State: state, Detail: o.Detail})
		}
		return all, nil
	}}
}

func encodingOutcomes(change func(o *contract.OperationItemOutcome)) impl {
	return impl{EncodeOutcomes: func(all outcomes) []byte {
		changed := make(outcomes, len(all))
		for i, o := range all {
			change(&o)
			changed[i] = o
		}
		return contract.EncodeOutcomes(changed)
	}}
}

func tallying(change func(contract.OperationResult, contract.Tally) contract.Tally) impl {
	return impl{Tally: func(r contract.OperationResult) contract.Tally { return change(r, r.Tally()) }}
}

func wrongOutcomes() []wrong {
	return append([]wrong{
		{"a decoder that takes another state for ambiguous", forgivingOutcomes("must be applied", contract.Ambiguous), "outcomes/state: done"},
		{"a decoder that takes a state in any case", forgivingOutcomes("must be applied", contract.Applied), "outcomes/state: APPLIED"},
		{"a decoder that takes texts that are not clean", forgivingOutcomes("not plain", ""), "outcomes/detail: a zero character"},

		{"an encoder that loses who gave a verdict", encodingOutcomes(func(o *contract.OperationItemOutcome) { o.By = "" }),
			"outcomes_encoding/every member, in this order"},
		{"an encoder that takes another state for failed", encodingOutcomes(func(o *contract.OperationItemOutcome) {
			if !o.State.Valid() {
				o.State = contract.Failed
			}
		}), "outcomes_encoding/what is not a state becomes ambiguous"},
		{"an encoder that cuts without a mark", encodingOutcomes(func(o *contract.OperationItemOutcome) {
			o.Detail = strings.ToValidUTF8(o.Detail[:min(len(o.Detail), 1024)], "")
		}), "outcomes_encoding/a text is cut between two characters"},
		{"an encoder that drops what does not show", encodingOutcomes(func(o *contract.OperationItemOutcome) {
			o.Detail = strings.ReplaceAll(o.Detail, "\x00", "")
		}), "outcomes_encoding/what does not show becomes a replacement character"},

		{"a result that needs no instruction", forgivingResult("exactly when an outcome is ambiguous"), "results/unclear without an instruction"},
		{"a result with a stored count", forgivingResult("is not a member"), "results/a stored tally"},
		{"a result with an item twice", forgivingResult("repeats the id"), "results/an item twice"},

		{"a replay that does not say so", impl{EncodeResult: func(r contract.OperationResult) ([]byte, error) {
			r.Replayed = false
			return r.MarshalJSON()
		}}, "results_encoding/its replay is the same but for replayed"},
		{"a replay that keeps the instruction to itself", impl{EncodeResult: func(r contract.OperationResult) ([]byte, error) {
			data, err := r.MarshalJSON()
			before, _, found := bytes.Cut(data, []byte(`,"recovery"`))
			if found && r.Replayed {
				data = append(before, '}')
			}
			return data, err
		}}, "results_encoding/its replay repeats the instruction"},
		{"an instruction that names another key", impl{EncodeResult: func(r contract.OperationResult) ([]byte, error) {
			data, err := r.MarshalJSON()
			if i := bytes.LastIndex(data, []byte(r.IdempotencyKey.String())); i > 200 {
				copy(data[i:], uuid.Nil.String())
			}
			return data, err
		}}, "results_encoding/one unclear item calls for the one instruction"},

		{"a tally that counts ambiguous as failed", tallying(func(_ contract.OperationResult, t contract.Tally) contract.Tally {
			return contract.Tally{Applied: t.Applied, Failed: t.Failed + t.Ambiguous, Skipped: t.Skipped}
		}), "tallies/one ambiguous"},
		{"a tally that counts skipped as applied", tallying(func(_ contract.OperationResult, t contract.Tally) contract.Tally {
			return contract.Tally{Applied: t.Applied + t.Skipped, Failed: t.Failed, Ambiguous: t.Ambiguous}
		}), "tallies/one skipped"},
		{"a tally that passes over what is not a state", tallying(func(r contract.OperationResult, t contract.Tally) contract.Tally {
			for _, o := range r.Outcomes {
				if !o.State.Valid() {
					t.Ambiguous--
				}
			}
			return t
		}), "tallies/what is not a state is ambiguous"},
	}, wrongTexts()...)
}

func forgivingResult(problem string) impl {
	return impl{DecodeResult: func(document []byte) (r contract.OperationResult, err error) {
		if err = r.UnmarshalJSON(document); err != nil && strings.Contains(err.Error(), problem) {
			return contract.OperationResult{}, nil
		}
		return r, err
	}}
}

func summing(change func(contract.OperationResult, string) string) impl {
	return impl{Summary: func(r contract.OperationResult) string { return change(r, r.Summary()) }}
}

func attending(change func(r contract.OperationResult, attention bool) bool) impl {
	return impl{Attention: func(r contract.OperationResult) (attention, cancelled, pruned bool) {
		return change(r, r.Err() != nil), r.Cancelled(), r.Pruned()
	}}
}

func wrongTexts() []wrong {
	return []wrong{
		{"prose that says done", summing(func(r contract.OperationResult, s string) string {
			if r.Tally().Applied > 0 {
				return fmt.Sprintf("%d of %d items applied.", len(r.Outcomes), len(r.Outcomes))
			}
			return s
		}), "summaries/one failed of three"},
		{"prose that does not count", summing(func(_ contract.OperationResult, s string) string {
			return strings.ReplaceAll(s, "1 item ", "1 items ")
		}),
			"summaries/one applied"},
		{"prose that asks to confirm again", summing(func(_ contract.OperationResult, s string) string {
			return strings.ReplaceAll(s, "do not confirm again", "confirm again")
		}), "summaries/one unclear"},
		{"prose that takes what is pruned for nothing", summing(func(r contract.OperationResult, s string) string {
			if r.Pruned() {
				return "No outcome is known of any item."
			}
			return s
		}), "summaries/settled, and the details are gone"},

		{"an error for failures only", attending(func(r contract.OperationResult, _ bool) bool { return r.Tally().Failed > 0 }),
			"attention/one ambiguous"},
		{"an error for everything skipped", attending(func(r contract.OperationResult, a bool) bool { return a || r.Tally().Skipped > 0 }),
			"attention/skipped by choice"},
		{"no error where nothing is known", attending(func(r contract.OperationResult, a bool) bool { return a && len(r.Outcomes) > 0 }),
			"attention/nothing is known"},
		{"cancelled in part is cancelled", impl{Attention: func(r contract.OperationResult) (attention, cancelled, pruned bool) {
			for _, o := range r.Outcomes {
				cancelled = cancelled || o.State == contract.Skipped && o.Reason == contract.ReasonCancelled
			}
			return r.Err() != nil, cancelled, r.Pruned()
		}}, "attention/cancelled in part"},
	}
}
