package contract

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sure is an error that says for itself what it proves.
type sure bool

func (sure) Error() string           { return "sure" }
func (s sure) KnownNoEffect() bool   { return bool(s) }
func (sure) Unwrap() error           { return ErrOutcomeUnknown }
func several(errs ...error) error    { return manyErrors(errs) }
func (manyErrors) Error() string     { return "many" }
func (m manyErrors) Unwrap() []error { return m }

type manyErrors []error

// R9, R18: an error proves that nothing happened when all that it joins does, and one that says nothing proves nothing.
func TestErrorsThatProveNoEffect(t *testing.T) {
	other := errors.New("connection reset")
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                         {nil, false},
		"any error":                       {other, false},
		"a refusal":                       {ErrDenied, true},
		"wrapped":                         {fmt.Errorf("a: %w", ErrDenied), true},
		"the cause of one does not count": {ErrDenied.With(errors.Join(other, ErrOutcomeUnknown)), true},
		"an unknown outcome":              {ErrOutcomeUnknown.With(ErrDenied), false},
		"an invalid request":              {&InvalidError{}, true},
		"a conflict":                      {&ConflictError{Failure: *ErrStale}, true},
		"refusals":                        {errors.Join(ErrDenied, nil, ErrStale), true},
		"a refusal and any error":         {errors.Join(ErrDenied, other), false},
		"any error and a refusal":         {fmt.Errorf("%w, %w", other, ErrDenied), false},
		"a refusal and an unknown one":    {errors.Join(ErrDenied, ErrOutcomeUnknown), false},
		"deeper":                          {errors.Join(ErrDenied, fmt.Errorf("a: %w", errors.Join(ErrStale, other))), false},
		"none at all":                     {several(), false},
		"one that is nil":                 {several(ErrDenied, nil), false},
		"its own word":                    {errors.Join(sure(true), ErrDenied), true},
		"its own word against it":         {sure(false), false},
	} {
		assert.Equal(t, c.want, KnownNoEffect(c.err), name)
		f, ok := FailureToTell(c.err)
		first, has := FailureOf(c.err)
		assert.Equal(t, has, ok, name)
		if ok {
			assert.Equal(t, first.Code, f.Code, name)
			assert.Equal(t, first.Reason, f.Reason, name)
			assert.Equal(t, first.KnownNoEffect() && c.want, f.KnownNoEffect(), name)
		}
	}
}

// called is the error of a call to another server.
type called struct{ *ConflictError }

func (called) Relayed() bool { return true }

// R18: what another server says of its effect is not told as this server's, but where this one has a failure of its own around it.
func TestRelayedErrors(t *testing.T) {
	other := called{&ConflictError{Failure: *ErrStale}}
	for _, c := range []struct {
		err  error
		none bool
	}{
		{other, false}, {fmt.Errorf("a: %w", other), false}, {errors.Join(ErrDenied, other), false}, {ErrDenied.With(other), true},
	} {
		assert.True(t, KnownNoEffect(c.err), "it is the caller's own call")
		f, ok := FailureToTell(c.err)
		require.True(t, ok)
		assert.Equal(t, c.none, f.KnownNoEffect(), c.err)
	}
	_, ok := FailureToTell(called{})
	assert.False(t, ok)
}

// R1, S22: what is told of an invalid document is where and what; a failure around it or before it speaks for itself.
func TestInvalidErrorsAreTold(t *testing.T) {
	problem := invalid("/items", "must be there")
	for err, want := range map[error]string{
		problem: "/items: must be there", fmt.Errorf("reading: %w", problem): "/items: must be there", ErrInvalid: ErrInvalid.Message,
		ErrDenied.With(problem): ErrDenied.Message, errors.Join(ErrDenied, problem): ErrDenied.Message,
		errors.Join(problem, errors.New("x")): "/items: must be there; whether anything was done is not known; query the original operation",
	} {
		f, ok := FailureToTell(err)
		require.True(t, ok)
		assert.Equal(t, want, f.Message)
	}
}

// R18: a failure that no longer proves anything says so, and not what it said when it did.
func TestWithUnknownEffect(t *testing.T) {
	const doubt = "whether anything was done is not known; query the original operation"
	cause := errors.New("cause")
	for _, c := range []struct{ have, want Failure }{
		{*ErrDenied.With(cause), Failure{Code: PermissionDenied, Reason: ReasonDenied, Message: "not authorized; " + doubt, Cause: cause}},
		{Failure{Code: NotFound}, Failure{Code: NotFound, Message: doubt}},
		{Failure{Code: Aborted, Effect: EffectNone, Message: "moved", Current: 7}, Failure{Code: Aborted, Message: "moved; " + doubt, Current: 7}},
		{*ErrFenced, *ErrFenced},
		{*ErrOutcomeUnknown, *ErrOutcomeUnknown},
	} {
		before := c.have
		c.want.Effect = EffectUnknown
		assert.Equal(t, c.want, *c.have.WithUnknownEffect())
		assert.Equal(t, c.want, *c.have.WithUnknownEffect().WithUnknownEffect())
		assert.Equal(t, before, c.have, "it copies")
	}
}

// R3, S8: of an error that proves nothing the text does not either, whatever failure it begins with.
func TestTextOfAnUnknownEffect(t *testing.T) {
	assert.Nil(t, (*Failure)(nil).WithUnknownEffect())
	for _, f := range append(refusals, ErrNotConfirmed, ErrPruned, ErrSealed, ErrOperationReused, ErrSecondOperation) {
		told, ok := FailureToTell(errors.Join(f, errors.New("commit: connection lost")))
		require.True(t, ok)
		assert.False(t, told.KnownNoEffect(), f.Reason)
		for _, claim := range []string{"nothing was done", "never executed", "nothing to resolve"} {
			assert.NotContains(t, told.Message, claim, f.Reason)
		}
	}
}
