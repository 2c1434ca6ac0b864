package contract

import (
	"strconv"

	"github.com/go-json-experiment/json"
)

// outcomesDoc is how outcomes are stored.
type outcomesDoc struct {
	SchemaVersion string                 `json:"schema_version"`
	Outcomes      []OperationItemOutcome `json:"outcomes"`
}

type wireOutcomes struct {
	SchemaVersion *string       `json:"schema_version"`
	Outcomes      []wireOutcome `json:"outcomes"`
}

// wireOutcome is an outcome as it is read. A nil member is one that the document lacks.
type wireOutcome struct {
	ItemID *string       `json:"item_id"`
	State  *OutcomeState `json:"state"`
	Ref    string        `json:"ref"`
	Reason Reason        `json:"reason"`
	Detail string        `json:"detail"`
	By     string        `json:"by"`

	Provisional bool `json:"provisional"`
}

// EncodeOutcomes returns the bytes that a store keeps: the outcomes, each as [OperationItemOutcome.Clean] leaves it. It
// cannot fail, and the same outcomes make the same bytes.
func EncodeOutcomes(outcomes []OperationItemOutcome) []byte {
	data, _ := json.Marshal(outcomesDoc{SchemaVersion, cleanAll(outcomes)}) // clean texts and states always encode
	return data
}

// DecodeOutcomes reads what [EncodeOutcomes] wrote, strictly: unknown, missing, repeated and null members, other
// states, and texts that are not clean are refused. The error is an *[InvalidError].
func DecodeOutcomes(data []byte) ([]OperationItemOutcome, error) {
	var w wireOutcomes
	if err := decode(data, &w); err != nil {
		return nil, err
	}
	if err := checkVersion(w.SchemaVersion); err != nil {
		return nil, err
	}
	if err := checkPresent("", member{"outcomes", w.Outcomes != nil}); err != nil {
		return nil, err
	}
	return readOutcomes(w.Outcomes)
}

// UnmarshalJSON reads one outcome as strictly as [DecodeOutcomes] (S6).
func (o *OperationItemOutcome) UnmarshalJSON(data []byte) error {
	var w wireOutcome
	if err := decode(data, &w); err != nil {
		return err
	}
	read, err := w.read("")
	if err == nil {
		*o = read
	}
	return err
}

func (w wireOutcome) read(path string) (OperationItemOutcome, error) {
	err := checkPresent(path, member{"item_id", w.ItemID != nil}, member{"state", w.State != nil})
	if err != nil {
		return OperationItemOutcome{}, err
	}
	o := OperationItemOutcome{*w.ItemID, *w.State, w.Ref, w.Reason, w.Detail, w.By, w.Provisional}
	if o.Clean() != o {
		return OperationItemOutcome{}, invalid(path, "holds a text that is too long or not plain")
	}
	return o, nil
}

func readOutcomes(wire []wireOutcome) ([]OperationItemOutcome, error) {
	outcomes := make([]OperationItemOutcome, len(wire))
	for i, w := range wire {
		var err error
		if outcomes[i], err = w.read("/outcomes/" + strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func cleanAll(outcomes []OperationItemOutcome) []OperationItemOutcome {
	cleaned := make([]OperationItemOutcome, len(outcomes))
	for i, o := range outcomes {
		cleaned[i] = o.Clean()
	}
	return cleaned
}
