package contract

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grpcNames are all 17 status codes of gRPC; the empty ones have no FailureCode.
var grpcNames = [17]FailureCode{
	3: InvalidArgument, 4: DeadlineExceeded, 5: NotFound, 6: AlreadyExists, 7: PermissionDenied, 8: ResourceExhausted,
	9: FailedPrecondition, 10: Aborted, 14: Unavailable, 16: Unauthenticated,
}

// R1, R16: the table has exactly ten codes and maps them one to one to gRPC's codes of the same name.
func TestRetryTable(t *testing.T) {
	assert.Len(t, RetryTable(), 10)
	found := 0
	for number, want := range grpcNames {
		code, ok := FailureCodeOfGRPC(uint32(number))
		assert.Equal(t, want, code)
		assert.Equal(t, want != "", ok)
		if ok {
			found++
			rule, known := code.Rule()
			assert.True(t, known)
			assert.Equal(t, uint32(number), rule.GRPC)
			assert.Equal(t, code, rule.Code)
		}
	}
	assert.Equal(t, 10, found)
	for _, number := range []uint32{17, 99, 1 << 31} {
		_, ok := FailureCodeOfGRPC(number)
		assert.False(t, ok)
	}
	for _, not := range []FailureCode{"", "OK", "CANCELLED", "INTERNAL", "aborted", " ABORTED"} {
		rule, ok := not.Rule()
		assert.False(t, ok)
		assert.Zero(t, rule)
	}
}

// R5, R6, R7, R16: every row says what to do next, and no action is to send the same again.
func TestRetryActions(t *testing.T) {
	want := map[FailureCode]Rule{
		InvalidArgument:    {InvalidArgument, 3, "fix_request", EffectNone},
		Unauthenticated:    {Unauthenticated, 16, "reauthenticate", EffectNone},
		PermissionDenied:   {PermissionDenied, 7, "stop_and_authorize", EffectNone},
		FailedPrecondition: {FailedPrecondition, 9, "refresh_state", EffectNone},
		Aborted:            {Aborted, 10, "reread_revision", EffectUnknown},
		ResourceExhausted:  {ResourceExhausted, 8, "await_release", EffectNone},
		Unavailable:        {Unavailable, 14, "reconcile", EffectUnknown},
		DeadlineExceeded:   {DeadlineExceeded, 4, "treat_as_unknown", EffectUnknown},
		NotFound:           {NotFound, 5, "do_not_substitute", EffectNone},
		AlreadyExists:      {AlreadyExists, 6, "read_existing", EffectUnknown},
	}
	actions := map[Action]bool{}
	for _, rule := range RetryTable() {
		assert.Equal(t, want[rule.Code], rule)
		assert.NotContains(t, []Action{"", "retry", "resend"}, rule.Action)
		actions[rule.Action] = true
	}
	assert.Len(t, actions, 10)
	RetryTable()[0].Code = "changed"
	assert.Equal(t, InvalidArgument, RetryTable()[0].Code, "the table is the caller's copy")
}

var refusals = []*Failure{
	ErrInvalid, ErrStale, ErrKeyReused, ErrNotMinted, ErrExpired, ErrInProgress, ErrFenced, ErrDenied, ErrTenantMismatch,
	ErrRetryTx, ErrTxEnded, ErrUnavailable, ErrUnsettled, ErrGuardNotMet,
}

// R1, S22: a refusal is found through every kind of wrapping, matches itself only, and shows nothing of its cause.
func TestFailureMatching(t *testing.T) {
	cause := errors.New("s3cret")
	for i, f := range refusals {
		_, known := f.Code.Rule()
		assert.True(t, known, f.Code)
		assert.NotEmpty(t, f.Reason)
		for _, err := range []error{
			f, f.With(cause), fmt.Errorf("context: %w", f), errors.Join(cause, f.With(cause)),
			fmt.Errorf("two: %w, %w", cause, errors.Join(f)),
		} {
			for j, other := range refusals {
				assert.Equal(t, i == j, errors.Is(err, other), "%v is %v", err, other)
			}
			code, ok := CodeOf(err)
			assert.True(t, ok)
			assert.Equal(t, f.Code, code)
		}
		assert.ErrorIs(t, f.With(cause), cause)
		assert.NotContains(t, f.With(cause).Error(), "s3cret")
		assert.NoError(t, f.Cause, "With copies")
	}
}

// R27, R32: whoever sent a mutation is told of its operation; it is the same refusal as that of a confirm, whose caller is told of
// proposals.
func TestKeyReusedByAMutation(t *testing.T) {
	assert.ErrorIs(t, ErrOperationReused, ErrKeyReused)
	assert.ErrorIs(t, &ConflictError{Failure: *ErrOperationReused}, ErrKeyReused)
	told := *ErrOperationReused
	told.Message = ErrKeyReused.Message
	assert.Equal(t, *ErrKeyReused, told)
	assert.NotContains(t, ErrOperationReused.Message, "propos")
	assert.Contains(t, ErrOperationReused.Message, "operation")
	assert.Contains(t, ErrKeyReused.Message, "propose")
}

// R1, S22: a receipt without a failure is printed as one, and not as if it had a failure that nobody described.
func TestNoFailureIsPrinted(t *testing.T) {
	var none *Failure
	assert.Equal(t, "no failure", none.Error())
	assert.Contains(t, fmt.Sprintf("%+v", Receipt{Result: ResultApplied, Ref: "r"}), "Failure:no failure")
}

// R1: failures without a reason match by code; with one, by reason alone.
func TestFailureIs(t *testing.T) {
	for _, tc := range []struct {
		a, b *Failure
		want bool
	}{
		{&Failure{Code: Aborted}, &Failure{Code: Aborted, Message: "m"}, true},
		{&Failure{Code: Aborted}, &Failure{Code: NotFound}, false},
		{&Failure{Code: Aborted, Reason: "r"}, &Failure{Code: NotFound, Reason: "r"}, true},
		{&Failure{Code: Aborted, Reason: "r"}, &Failure{Code: Aborted}, false},
		{&Failure{Code: Aborted, Reason: "r"}, &Failure{Code: Aborted, Reason: "q"}, false},
		{&Failure{Code: Aborted}, nil, false},
		{nil, &Failure{Code: Aborted}, false},
	} {
		assert.Equal(t, tc.want, errors.Is(tc.a, tc.b))
	}
	assert.False(t, ErrStale.Is(errors.New("x")))
	assert.Equal(t, "ABORTED: m", (&Failure{Code: Aborted, Message: "m"}).Error())
	assert.Equal(t, "ABORTED: r: m", (&Failure{Code: Aborted, Reason: "r", Message: "m"}).Error())
}

// R1: CodeOf is total.
func TestCodeOf(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), (*Failure)(nil), errors.Join()} {
		code, ok := CodeOf(err)
		assert.False(t, ok)
		assert.Empty(t, code)
	}
	code, ok := CodeOf(&InvalidError{})
	assert.True(t, ok)
	assert.Equal(t, InvalidArgument, code)
}

// R1, R18: a nil pointer in an error, as a careless return makes it, has a text and holds no failure.
func TestNilPointersInErrors(t *testing.T) {
	for _, err := range []error{(*Failure)(nil), (*ConflictError)(nil), (*InvalidError)(nil)} {
		for _, form := range []error{err, fmt.Errorf("wrapped: %w", err), errors.Join(err)} {
			assert.NotEmpty(t, form.Error())
			f, ok := FailureOf(form)
			assert.False(t, ok, "%T %v", err, f)
			assert.NotErrorIs(t, form, ErrInvalid)
		}
	}
	assert.Equal(t, ErrUnsettled.Error(), (*UnsettledError)(nil).Error())
}

// S15, R9: a failure proves that nothing happened when its code or its maker says so, and never otherwise.
func TestKnownNoEffect(t *testing.T) {
	for _, rule := range RetryTable() {
		assert.Equal(t, rule.Effect == EffectNone, (&Failure{Code: rule.Code}).KnownNoEffect(), rule.Code)
		assert.True(t, (&Failure{Code: rule.Code, Effect: EffectNone}).KnownNoEffect())
		assert.False(t, (&Failure{Code: rule.Code, Effect: EffectUnknown}).KnownNoEffect())
	}
	assert.False(t, (&Failure{}).KnownNoEffect())
	var none *Failure
	assert.False(t, none.KnownNoEffect())
	assert.NotEmpty(t, none.Error())
	assert.False(t, (&Failure{Code: "INTERNAL"}).KnownNoEffect())
}

// S1: an error tells where and what; the whole document has no path.
func TestInvalidError(t *testing.T) {
	assert.EqualError(t, &InvalidError{Path: "/a/0", Problem: "p"}, "INVALID_ARGUMENT: /a/0: p")
	assert.EqualError(t, &InvalidError{Problem: "p"}, "INVALID_ARGUMENT: document: p")
	assert.EqualError(t, invalidAt("/items/3/params", "/x/items/0", "p"), "INVALID_ARGUMENT: /items/3/params/…: p")
	assert.EqualError(t, invalidAt("", "/items/3/params/op", "p"), "INVALID_ARGUMENT: /items/3/params/…: p")
	assert.EqualError(t, invalidAt("", "/items/3/op", "p"), "INVALID_ARGUMENT: /items/3/op: p")
	require.ErrorIs(t, &InvalidError{}, ErrInvalid)
}
