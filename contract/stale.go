package contract

import (
	"fmt"
	"strings"
)

// CurrentSurfaceState is the surface as it is at the moment of the confirm: the caller's own re-read, not what the
// client echoed.
type CurrentSurfaceState struct {
	SurfaceKey      SurfaceKey
	ContractVersion string
}

// Drift is what moved between a proposal and the moment of its confirm: one entry per axis that differs, none when the
// confirmation is fresh.
type Drift []AxisDrift

// AxisDrift is one axis that differs, with both values.
type AxisDrift struct {
	Axis     string // "surface_key" or "contract_version"
	Proposed string
	Current  string
}

// String names each axis with both values.
func (d Drift) String() string {
	parts := make([]string, len(d))
	for i, a := range d {
		parts[i] = fmt.Sprintf("%s was %q, is %q", a.Axis, a.Proposed, a.Current)
	}
	return strings.Join(parts, "; ")
}

// DriftOf compares a confirmation with the surface as it is. An empty version never matches anything, itself included:
// a surface that could not be read is never fresh by default (S5).
func DriftOf(c OperationConfirmation, current CurrentSurfaceState) Drift {
	var d Drift
	if c.SurfaceKey != current.SurfaceKey {
		d = append(d, AxisDrift{"surface_key", string(c.SurfaceKey), string(current.SurfaceKey)})
	}
	if c.ContractVersion != current.ContractVersion || c.ContractVersion == "" {
		d = append(d, AxisDrift{"contract_version", c.ContractVersion, current.ContractVersion})
	}
	return d
}

// IsStale says whether either axis differs. It is pure and total (S5).
func IsStale(c OperationConfirmation, current CurrentSurfaceState) bool {
	return len(DriftOf(c, current)) > 0
}
