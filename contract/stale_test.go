package contract

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// S5: a confirmation is stale exactly when either axis differs; an empty version never matches anything, itself
// included; the drift names each axis with both values.
func TestStaleness(t *testing.T) {
	surfaces := []SurfaceKey{"", "a", "b", "A"}
	versions := []string{"", "1", "2", "1.0", " 1"}
	for _, cs := range surfaces {
		for _, cv := range versions {
			for _, s := range surfaces {
				for _, v := range versions {
					c := OperationConfirmation{SurfaceKey: cs, ContractVersion: cv}
					current := CurrentSurfaceState{s, v}
					var want Drift
					if cs != s {
						want = append(want, AxisDrift{"surface_key", string(cs), string(s)})
					}
					if cv != v || cv == "" || v == "" {
						want = append(want, AxisDrift{"contract_version", cv, v})
					}
					assert.Equal(t, want, DriftOf(c, current))
					assert.Equal(t, want != nil, IsStale(c, current))
				}
			}
		}
	}
	assert.True(t, IsStale(OperationConfirmation{}, CurrentSurfaceState{}))
}

// S5, S13: the error of a stale confirmation names what moved, and its code and reason are found in its chain.
func TestConflictError(t *testing.T) {
	drift := DriftOf(OperationConfirmation{SurfaceKey: "a", ContractVersion: "1"}, CurrentSurfaceState{"b", "2"})
	stale := &ConflictError{*ErrStale, drift}
	assert.ErrorIs(t, stale, ErrStale)
	assert.NotErrorIs(t, stale, ErrKeyReused)
	assert.Contains(t, stale.Error(), `(surface_key was "a", is "b"; contract_version was "1", is "2")`)
	code, ok := CodeOf(stale)
	assert.True(t, ok)
	assert.Equal(t, FailedPrecondition, code)
	reused := &ConflictError{Failure: *ErrKeyReused}
	assert.ErrorIs(t, reused, ErrKeyReused)
	assert.Equal(t, ErrKeyReused.Error(), reused.Error())
}
