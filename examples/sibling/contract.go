// Package sibling is what a service in another repository may have of its own: an implementation of a part of the contract, with the
// vectors that prove it, and a store (package toy). Nothing imports it, and it is never released.
package sibling

import "github.com/confirmexec/confirmexec/contract"

// Drift is the service's own staleness: one entry per axis that differs. An empty version matches nothing.
func Drift(c contract.OperationConfirmation, now contract.CurrentSurfaceState) (d contract.Drift) {
	for _, a := range []contract.AxisDrift{
		{Axis: "surface_key", Proposed: string(c.SurfaceKey), Current: string(now.SurfaceKey)},
		{Axis: "contract_version", Proposed: c.ContractVersion, Current: now.ContractVersion},
	} {
		if a.Proposed != a.Current || a.Axis == "contract_version" && a.Current == "" {
			d = append(d, a)
		}
	}
	return d
}

// Tally is the service's own count of outcomes. What is not a state counts as ambiguous.
func Tally(r contract.OperationResult) contract.Tally {
	n := map[contract.OutcomeState]int{}
	for _, o := range r.Outcomes {
		n[o.State]++
	}
	t := contract.Tally{Applied: n[contract.Applied], Failed: n[contract.Failed], Skipped: n[contract.Skipped]}
	t.Ambiguous = len(r.Outcomes) - t.Total()
	return t
}
