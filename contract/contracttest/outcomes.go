package contracttest

import (
	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
)

// outcomeTopics are about what is known of items, and the one result that it makes.
var outcomeTopics = []topic{
	newTopic("outcomes", gotOutcomes, "DecodeOutcomes"),
	newTopic("outcomes_encoding", gotOutcomesEncoding, "EncodeOutcomes"),
	newTopic("results", gotResult, "DecodeResult"),
	newTopic("results_encoding", gotResultEncoding, "EncodeResult"),
	newTopic("tallies", gotTally, "Tally"),
	newTopic("summaries", gotSummary, "Summary"),
	newTopic("attention", gotAttention, "Attention"),
}

type outcome struct {
	ItemID      raw      `json:"item_id"`
	State       anyState `json:"state"`
	Ref         raw      `json:"ref,omitempty"`
	Reason      raw      `json:"reason,omitempty"`
	Detail      raw      `json:"detail,omitempty"`
	By          raw      `json:"by,omitempty"`
	Provisional bool     `json:"provisional,omitempty"`
}

// anyState is a state, or what an executor may take for one.
type anyState string

func fromOutcomes(outcomes []outcome) []contract.OperationItemOutcome {
	all := make([]contract.OperationItemOutcome, len(outcomes))
	for i, o := range outcomes {
		all[i] = contract.OperationItemOutcome{
			ItemID: string(o.ItemID), State: contract.OutcomeState(o.State), Ref: string(o.Ref), Reason: contract.Reason(o.Reason),
			Detail: string(o.Detail), By: string(o.By), Provisional: o.Provisional,
		}
	}
	return all
}

func toOutcomes(outcomes []contract.OperationItemOutcome) []outcome {
	all := make([]outcome, len(outcomes))
	for i, o := range outcomes {
		all[i] = outcome{
			raw(o.ItemID), anyState(o.State), raw(o.Ref), raw(o.Reason), raw(o.Detail), raw(o.By), o.Provisional,
		}
	}
	return all
}

type outcomesWant struct {
	refusal
	Outcomes []outcome `json:"outcomes"`
}

func gotOutcomes(i Implementation, in documentIn, want outcomesWant) outcomesWant {
	outcomes, err := i.DecodeOutcomes(in.Document)
	if err != nil {
		return outcomesWant{refusal: refusalOf(err, want.refusal)}
	}
	return outcomesWant{Outcomes: toOutcomes(outcomes)}
}

type outcomesIn struct {
	Outcomes []outcome `json:"outcomes"`
}

func gotOutcomesEncoding(i Implementation, in outcomesIn, _ documentWant) documentWant {
	return documentOf(i.EncodeOutcomes(fromOutcomes(in.Outcomes)), nil)
}

type result struct {
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
	Outcomes       []outcome `json:"outcomes"`
	Replayed       bool      `json:"replayed"`
}

func (r result) read() contract.OperationResult {
	return contract.OperationResult{
		IdempotencyKey: uuid.MustParse(r.IdempotencyKey), Outcomes: fromOutcomes(r.Outcomes), Replayed: r.Replayed,
	}
}

type resultWant struct {
	refusal
	result
}

func gotResult(i Implementation, in documentIn, want resultWant) resultWant {
	r, err := i.DecodeResult(in.Document)
	if err != nil {
		return resultWant{refusal: refusalOf(err, want.refusal)}
	}
	return resultWant{result: result{r.IdempotencyKey.String(), toOutcomes(r.Outcomes), r.Replayed}}
}

func gotResultEncoding(i Implementation, in result, _ documentWant) documentWant {
	return documentOf(i.EncodeResult(in.read()))
}

type tallyIn struct {
	States []anyState `json:"states"`
}

type tallyWant struct {
	Applied   int `json:"applied"`
	Failed    int `json:"failed"`
	Skipped   int `json:"skipped"`
	Ambiguous int `json:"ambiguous"`
	Total     int `json:"total"`
}

func gotTally(i Implementation, in tallyIn, _ tallyWant) tallyWant {
	var r contract.OperationResult
	for _, s := range in.States {
		r.Outcomes = append(r.Outcomes, contract.OperationItemOutcome{State: contract.OutcomeState(s)})
	}
	t := i.Tally(r)
	return tallyWant{t.Applied, t.Failed, t.Skipped, t.Ambiguous, t.Total()}
}

// told is a result without its key, which no text may show.
func (r result) told() contract.OperationResult {
	return contract.OperationResult{Outcomes: fromOutcomes(r.Outcomes), Replayed: r.Replayed}
}

type summaryWant struct {
	Summary string `json:"summary"`
}

func gotSummary(i Implementation, in result, _ summaryWant) summaryWant {
	return summaryWant{i.Summary(in.told())}
}

type attentionWant struct {
	Attention bool `json:"attention"`
	Cancelled bool `json:"cancelled"`
	Pruned    bool `json:"pruned"`
}

func gotAttention(i Implementation, in result, _ attentionWant) attentionWant {
	attention, cancelled, pruned := i.Attention(in.told())
	return attentionWant{attention, cancelled, pruned}
}
