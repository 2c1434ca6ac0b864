package contract

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// R5, R7, R27, A2: a failure says by code, reason and effect which result code it stands for.
func TestFailureResult(t *testing.T) {
	told := func(f Failure, effect Effect) *Failure {
		f.Effect = effect
		return &f
	}
	for name, tc := range map[string]struct {
		f    *Failure
		want ResultCode
	}{
		"R27 other content under the key":        {ErrKeyReused, ResultConflict},
		"R32 R62 a second operation":             {ErrSecondOperation, ResultConflict},
		"R5 the request is wrong":                {ErrInvalid, ResultRefused},
		"R7 a new authorization is needed":       {ErrDenied, ResultStopped},
		"R7 without a reason":                    {&Failure{Code: PermissionDenied}, ResultStopped},
		"R6 no session":                          {&Failure{Code: Unauthenticated}, ResultNotApplied},
		"R8 the state does not allow it":         {ErrStale, ResultNotApplied},
		"R10 a resource is used up":              {&Failure{Code: ResourceExhausted}, ResultNotApplied},
		"R14 it is not there":                    {ErrNotMinted, ResultNotApplied},
		"R45 a revision that does not stand":     {ErrGuardNotMet, ResultNotApplied},
		"sealed before it arrived":               {ErrSealed, ResultNotApplied},
		"R9 aborted, and no more is known":       {&Failure{Code: Aborted}, ResultUnknown},
		"an attempt that was fenced off":         {ErrFenced, ResultUnknown},
		"R12 the store could not be used":        {ErrUnavailable, ResultUnknown},
		"R12 it is known that nothing was done":  {told(*ErrUnavailable, EffectNone), ResultNotApplied},
		"R13 the time was over":                  {&Failure{Code: DeadlineExceeded}, ResultUnknown},
		"R15 A27 it is running":                  {ErrInProgress, ResultUnknown},
		"A23 another one, and nothing was done":  {told(*ErrInProgress, EffectNone), ResultNotApplied},
		"a conflict that another server relays":  {told(*ErrKeyReused, EffectUnknown), ResultUnknown},
		"a denial after an effect":               {told(*ErrDenied, EffectUnknown), ResultUnknown},
		"a wrong request after an effect":        {told(*ErrInvalid, EffectUnknown), ResultUnknown},
		"R18 no code":                            {&Failure{}, ResultUnknown},
		"R18 no code, and no effect":             {&Failure{Effect: EffectNone}, ResultUnknown},
		"R18 no code of the ten":                 {&Failure{Code: "INTERNAL"}, ResultUnknown},
		"R4 no failure":                          {nil, ResultUnknown},
		"a conflict's reason with another code":  {&Failure{Code: FailedPrecondition, Reason: ReasonKeyReused}, ResultNotApplied},
		"a service's own reason of a conflict":   {&Failure{Code: Aborted, Reason: "own.conflict", Effect: EffectNone}, ResultNotApplied},
		"R20 the receipt's failure of NOT_APPLY": {ErrNotApplied, ResultNotApplied},
	} {
		assert.Equal(t, tc.want, tc.f.Result(), name)
	}
}

// R20, R23: whatever a failure is, the receipt that it stands for can stand, says that nothing is applied, and is terminal only where
// the failure is proof.
func TestFailureResultMakesAReceipt(t *testing.T) {
	reasons := []Reason{"", ReasonKeyReused, ReasonSecondOperation, ReasonDenied, "own"}
	for _, rule := range RetryTable() {
		for _, reason := range reasons {
			for _, effect := range []Effect{EffectByCode, EffectNone, EffectUnknown, 9} {
				f := &Failure{Code: rule.Code, Reason: reason, Effect: effect}
				r := Receipt{Result: f.Result(), Failure: f}
				assert.NoError(t, r.Validate(), f)
				assert.False(t, r.Applied(), f)
				assert.Equal(t, f.KnownNoEffect(), r.Result.Terminal(), f)
				assert.NotEqual(t, ResultAccepted, r.Result, f)
			}
		}
	}
}
