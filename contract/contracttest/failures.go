package contracttest

import (
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
)

// failureTopics are about failure codes, their statuses, and what the caller does next.
var failureTopics = []topic{
	newTopic("retry_table", gotRule, "RetryTable", "Rule"),
	newTopic("grpc_codes", gotCode, "CodeOfGRPC"),
	newTopic("grpc_statuses", gotGRPCStatus, "GRPCStatus"),
	newTopic("http_statuses", gotHTTPStatus, "HTTPStatus"),
	newTopic("decisions", gotDecision, "Decide"),
	newTopic("methods", gotMethod, "MethodOf"),
	newTopic("failure_results", gotFailureResult, "FailureResult"),
}

type ruleIn struct {
	Code  contract.FailureCode `json:"code"`
	Codes bool                 `json:"codes"` // asks for all of them
}

type ruleWant struct {
	Codes   []contract.FailureCode `json:"codes,omitempty"`
	Rule    *rule                  `json:"rule,omitempty"`
	Unknown bool                   `json:"unknown,omitempty"`
}

type rule struct {
	Code   contract.FailureCode `json:"code"`
	GRPC   uint32               `json:"grpc"`
	Action contract.Action      `json:"action"`
	Effect string               `json:"effect"`
}

func gotRule(i Implementation, in ruleIn, _ ruleWant) (got ruleWant) {
	if in.Codes {
		for _, r := range i.RetryTable() {
			got.Codes = append(got.Codes, r.Code)
		}
		return got
	}
	r, ok := i.Rule(in.Code)
	if !ok {
		return ruleWant{Unknown: true}
	}
	for _, row := range i.RetryTable() {
		if row.Code == r.Code && row != r {
			return got // the table says another thing than its row
		}
	}
	return ruleWant{Rule: &rule{r.Code, r.GRPC, r.Action, r.Effect.String()}}
}

type statusIn struct {
	Status uint32 `json:"status"`
}

type codeWant struct {
	Code contract.FailureCode `json:"code,omitempty"`
	None bool                 `json:"none,omitempty"`
}

func gotCode(i Implementation, in statusIn, _ codeWant) codeWant {
	code, ok := i.CodeOfGRPC(in.Status)
	return codeWant{code, !ok}
}

type failureIn struct {
	Code   contract.FailureCode `json:"code"`
	Reason contract.Reason      `json:"reason"`
}

type statusWant struct {
	Status int64 `json:"status"`
}

func gotGRPCStatus(i Implementation, in failureIn, _ statusWant) statusWant {
	return statusWant{int64(i.GRPCStatus(&contract.Failure{Code: in.Code, Reason: in.Reason}))}
}

func gotHTTPStatus(i Implementation, in failureIn, _ statusWant) statusWant {
	return statusWant{int64(i.HTTPStatus(&contract.Failure{Code: in.Code, Reason: in.Reason}))}
}

type failureResultIn struct {
	failureIn
	Effect string `json:"effect"`
}

type resultCodeWant struct {
	Result contract.ResultCode `json:"result"`
}

func gotFailureResult(i Implementation, in failureResultIn, _ resultCodeWant) resultCodeWant {
	return resultCodeWant{i.FailureResult(&contract.Failure{Code: in.Code, Reason: in.Reason, Effect: effectOf(in.Effect)})}
}

type method struct {
	ReadOnly    bool `json:"read_only"`
	Resend      bool `json:"resend"`
	Redelivered bool `json:"redelivered"`
}

type decisionIn struct {
	Method     method         `json:"method"`
	Failure    *decisionFault `json:"failure"`
	Deliveries []string       `json:"deliveries"` // the decision is the same for all of them
}

type decisionFault struct {
	Code   contract.FailureCode `json:"code"`
	Effect string               `json:"effect"`
}

type decisionWant struct {
	Action        contract.Action `json:"action"`
	Effect        string          `json:"effect"`
	SameOperation bool            `json:"same_operation"`
	Other         string          `json:"other,omitempty"`
}

func gotDecision(i Implementation, in decisionIn, want decisionWant) decisionWant {
	var f *contract.Failure
	if in.Failure != nil {
		f = &contract.Failure{Code: in.Failure.Code, Effect: effectOf(in.Failure.Effect)}
	}
	m := contract.Method{ReadOnly: in.Method.ReadOnly, Resend: in.Method.Resend, Redelivered: in.Method.Redelivered}
	for _, name := range in.Deliveries {
		delivery, err := deliveryOf(name)
		if err != nil {
			return decisionWant{Other: err.Error()}
		}
		d := i.Decide(m, f, delivery)
		if got := (decisionWant{Action: d.Action, Effect: d.Effect.String(), SameOperation: d.SameOperation}); got != want {
			return got
		}
	}
	return want
}

func deliveryOf(name string) (contract.Delivery, error) {
	for _, d := range []contract.Delivery{contract.SentUnknown, contract.NeverSent, contract.ServerSeen, contract.Answered} {
		if d.String() == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf("there is no delivery %q", name)
}

// effectOf reads an effect. Empty is by the code, and another name is none of the three.
func effectOf(name string) contract.Effect {
	for _, e := range []contract.Effect{contract.EffectByCode, contract.EffectNone, contract.EffectUnknown} {
		if e.String() == name {
			return e
		}
	}
	return contract.EffectByCode
}

type methodIn struct {
	Service string `json:"service"`
	Method  string `json:"method"`
}

func gotMethod(i Implementation, in methodIn, _ method) method {
	m := i.MethodOf(in.Service, in.Method)
	return method{m.ReadOnly, m.Resend, m.Redelivered}
}
