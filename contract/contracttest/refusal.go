package contracttest

import (
	"errors"

	"github.com/confirmexec/confirmexec/contract"
)

// refusal is how a vector tells that something is refused. It is empty when it is not.
type refusal struct {
	// Invalid is the path of what is wrong, as a JSON pointer.
	Invalid *string `json:"invalid,omitempty"`
	// Malformed documents are not one JSON value in valid Unicode; where they are wrong is left open.
	Malformed bool `json:"malformed,omitempty"`

	Code    contract.FailureCode `json:"code,omitempty"`
	Reason  contract.Reason      `json:"reason,omitempty"`
	Current int64                `json:"current,omitempty"`

	Other string `json:"other,omitempty"` // an error of another kind, which no vector wants
}

// refusalOf tells an error in a vector's terms. An invalid document has the code and the reason that the contract gives it.
func refusalOf(err error, want refusal) refusal {
	f, ok := contract.FailureOf(err)
	invalid, isInvalid := errors.AsType[*contract.InvalidError](err)
	switch {
	case err == nil:
		return refusal{}
	case !ok:
		return refusal{Other: err.Error()}
	case !isInvalid:
		return refusal{Code: f.Code, Reason: f.Reason, Current: f.Current}
	case f.Code != contract.InvalidArgument || f.Reason != contract.ReasonInvalid:
		return refusal{Other: "an InvalidError that is not contract.ErrInvalid: " + err.Error()}
	case want.Malformed:
		return refusal{Malformed: true}
	}
	return refusal{Invalid: &invalid.Path}
}
