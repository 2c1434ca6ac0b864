package fencing

import "github.com/confirmexec/confirmexec/contract"

// Evidence is how an execution ended, and who stands for that: what its reservation is released on (A25). The zero Evidence is
// none.
type Evidence struct {
	ExecutionID string              `json:"execution_id"`
	Result      contract.ResultCode `json:"result"` // of its receipt
	By          string              `json:"by"`     // for example a reconciler
	Detail      string              `json:"detail"` // for a person; may be empty for APPLIED
}

// settles says whether e tells how the execution of r ended: its result is APPLIED, NOT_APPLIED, REFUSED or STOPPED. ACCEPTED and UNKNOWN
// tell nothing, and CONFLICT tells of another request than the one that the execution is of.
func (e Evidence) settles(r Reservation) error {
	if r.ExecutionID == "" && e == (Evidence{}) {
		return nil // no permit was issued: nothing can be running
	}
	if r.ExecutionID == "" || e.ExecutionID != r.ExecutionID || !e.Result.Terminal() || e.Result == contract.ResultConflict {
		return standing(ErrNoEvidence, r.Revision)
	}
	if err := contract.ValidateText("/evidence/by", e.By, contract.MaxBy); err != nil {
		return err
	}
	if e.Result == contract.ResultApplied && e.Detail == "" {
		return nil
	}
	return contract.ValidateText("/evidence/detail", e.Detail, contract.MaxDetail)
}
