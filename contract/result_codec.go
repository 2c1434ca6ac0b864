package contract

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// resultDoc is a result as it is written.
type resultDoc struct {
	SchemaVersion  string                 `json:"schema_version"`
	IdempotencyKey uuid.UUID              `json:"idempotency_key"`
	Outcomes       []OperationItemOutcome `json:"outcomes"`
	Replayed       bool                   `json:"replayed"`
	Recovery       *RecoveryInstruction   `json:"recovery,omitzero"`
}

// wireResult is a result as it is read. A nil member is one that the document lacks.
type wireResult struct {
	SchemaVersion  *string       `json:"schema_version"`
	IdempotencyKey *string       `json:"idempotency_key"`
	Outcomes       []wireOutcome `json:"outcomes"`
	Replayed       *bool         `json:"replayed"`
	Recovery       *wireRecovery `json:"recovery"`
}

type wireRecovery struct {
	Action         *string `json:"action"`
	Message        *string `json:"message"`
	IdempotencyKey *string `json:"idempotency_key"`
}

// MarshalJSON writes the wire form: the outcomes, each as [OperationItemOutcome.Clean] leaves it, no count, and the
// recovery instruction if there is one. It does not fail.
func (r OperationResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(resultDoc{SchemaVersion, r.IdempotencyKey, cleanAll(r.Outcomes), r.Replayed, r.Recovery()})
}

// UnmarshalJSON reads the wire form as strictly as [DecodeOutcomes]. It also refuses a result that names an item twice,
// and a recovery instruction that the outcomes do not call for, or the lack of one that they do. The error is an
// *[InvalidError].
func (r *OperationResult) UnmarshalJSON(data []byte) error {
	var w wireResult
	if err := decode(data, &w); err != nil {
		return err
	}
	read, err := w.read()
	if err != nil {
		return err
	}
	if err := w.Recovery.check(read); err != nil {
		return err
	}
	*r = read
	return nil
}

func (w wireResult) read() (r OperationResult, err error) {
	if err := checkVersion(w.SchemaVersion); err != nil {
		return r, err
	}
	if err := checkPresent("",
		member{"idempotency_key", w.IdempotencyKey != nil},
		member{"outcomes", w.Outcomes != nil},
		member{"replayed", w.Replayed != nil}); err != nil {
		return r, err
	}
	r.Replayed = *w.Replayed
	if r.IdempotencyKey, err = parseKey("/idempotency_key", *w.IdempotencyKey); err != nil {
		return r, err
	}
	if r.Outcomes, err = readOutcomes(w.Outcomes); err != nil {
		return r, err
	}
	return r, checkIDs(r.Outcomes)
}

func checkIDs(outcomes []OperationItemOutcome) error {
	seen := make(map[string]bool, len(outcomes))
	for i, o := range outcomes {
		path := fmt.Sprintf("/outcomes/%d/item_id", i)
		if err := checkText(path, o.ItemID, maxItemID); err != nil {
			return err
		}
		if seen[o.ItemID] {
			return invalid(path, "repeats the id of an earlier item")
		}
		seen[o.ItemID] = true
	}
	return nil
}

// check compares the instruction that a document holds with the one that its outcomes call for. The message's wording
// is free.
func (w *wireRecovery) check(r OperationResult) error {
	const path = "/recovery"
	want := r.Recovery()
	if (w == nil) != (want == nil) {
		return invalid(path, "must be there exactly when an outcome is ambiguous")
	}
	if w == nil {
		return nil
	}
	if err := checkPresent(path,
		member{"action", w.Action != nil},
		member{"message", w.Message != nil},
		member{"idempotency_key", w.IdempotencyKey != nil}); err != nil {
		return err
	}
	if *w.Action != want.Action {
		return invalid(path+"/action", `must be "`+ReloadToCheck+`"`)
	}
	if key, err := parseKey(path+"/idempotency_key", *w.IdempotencyKey); err != nil || key != want.IdempotencyKey {
		return invalid(path+"/idempotency_key", "must be the result's idempotency_key")
	}
	return checkText(path+"/message", *w.Message, MaxDetail)
}
