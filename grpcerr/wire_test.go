package grpcerr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/confirmexec/confirmexec/contract"
)

// carrier is an error that has its failure in a field, as a service's own error types do.
type carrier struct {
	secret string
	inner  error
}

func (c *carrier) Error() string { return c.secret + ": " + c.inner.Error() }
func (c *carrier) Unwrap() error { return c.inner }

// forms are the ways in which a handler returns a failure.
var forms = map[string]func(error) error{
	"plain":     func(err error) error { return err },
	"wrapped":   func(err error) error { return fmt.Errorf("a: %w", fmt.Errorf("b: %w", fmt.Errorf("c: %w", err))) },
	"joined":    func(err error) error { return errors.Join(errors.New("other"), err) },
	"in struct": func(err error) error { return &carrier{secret: "canary-text", inner: err} },
}

// R1, R3: each of the ten codes, in each form that a handler returns it in, arrives over TCP and TLS as the table's gRPC code with
// the same failure; nothing of the errors around it does.
func TestRoundTripOverTLS(t *testing.T) {
	var answer error
	conn := serveCodec(t, &codecService{answer: func(context.Context) error { return ToStatus(answer).Err() }})
	for _, rule := range contract.RetryTable() {
		for name, form := range forms {
			for _, effect := range []contract.Effect{contract.EffectByCode, contract.EffectNone, contract.EffectUnknown} {
				sent := contract.Failure{Code: rule.Code, Reason: "service.reason", Effect: effect, Message: "100% of it: नमस्ते", Current: -42}
				answer = form(sent.With(errors.New("canary-cause")))
				err, _ := call(t, conn)
				assert.Equal(t, codes.Code(rule.GRPC), status.Code(err))
				if name == "joined" && sent.KnownNoEffect() { // with an error that proves nothing
					sent = *sent.WithUnknownEffect()
				}
				assert.Equal(t, sent.Message, status.Convert(err).Message(), name)
				assert.NotContains(t, status.Convert(err).Proto().String(), "canary")
				got, ok := FromError(err)
				require.True(t, ok, "%s %s", rule.Code, name)
				assert.Equal(t, &sent, got, name)
			}
		}
	}
}

// R27, A2: a conflict arrives as ABORTED, and the client finds its result code, CONFLICT, by what the failure says; so of the others.
func TestResultCodeOverTLS(t *testing.T) {
	var answer error
	conn := serveCodec(t, &codecService{answer: func(context.Context) error { return ToStatus(answer).Err() }})
	for sent, want := range map[*contract.Failure]contract.ResultCode{
		contract.ErrKeyReused: contract.ResultConflict, contract.ErrSecondOperation: contract.ResultConflict,
		contract.ErrSealed: contract.ResultNotApplied, contract.ErrInvalid: contract.ResultRefused, contract.ErrDenied: contract.ResultStopped,
		contract.ErrInProgress: contract.ResultUnknown, contract.ErrUnavailable: contract.ResultUnknown,
	} {
		answer = sent
		err, _ := call(t, conn)
		got, ok := FromError(err)
		require.True(t, ok, sent)
		assert.Equal(t, want, got.Result(), sent)
	}
}

// R4, R18: what has no failure code arrives without one, and without the error's own text.
func TestOtherErrorsOverTLS(t *testing.T) {
	var answer error
	conn := serveCodec(t, &codecService{answer: func(context.Context) error { return ToStatus(answer).Err() }})
	for name, c := range map[string]struct {
		err  error
		want codes.Code
	}{
		"any error":           {errors.New("canary"), codes.Internal},
		"text of a failure":   {fmt.Errorf("canary: %v", contract.ErrStale), codes.Internal},
		"canceled":            {context.Canceled, codes.Canceled},
		"canceled in wraps":   {fmt.Errorf("canary: %w", context.Canceled), codes.Canceled},
		"no code":             {&contract.Failure{Message: "canary"}, codes.Internal},
		"no code of ours":     {&contract.Failure{Code: "OUT_OF_RANGE", Message: "canary"}, codes.Internal},
		"nil failure":         {(*contract.Failure)(nil), codes.Internal},
		"nil conflict":        {(*contract.ConflictError)(nil), codes.Internal},
		"nil invalid":         {(*contract.InvalidError)(nil), codes.Internal},
		"nil call error":      {(*CallError)(nil), codes.Internal},
		"status of a success": {okStatus{}, codes.Internal},
		"no status":           {nilStatus{}, codes.Internal},
	} {
		answer = c.err
		err, _ := call(t, conn)
		assert.Equal(t, c.want, status.Code(err), name)
		assert.NotContains(t, err.Error(), "canary", name)
		_, ok := FromError(err)
		assert.False(t, ok, name)
	}
}

type okStatus struct{}

func (okStatus) Error() string              { return "canary" }
func (okStatus) GRPCStatus() *status.Status { return status.New(codes.OK, "canary") }

type nilStatus struct{}

func (nilStatus) Error() string              { return "canary" }
func (nilStatus) GRPCStatus() *status.Status { return nil }

// R13: a deadline inside the handler, raw or wrapped, never leaves as UNKNOWN: it may have happened.
func TestDeadlineOverTLS(t *testing.T) {
	var answer error
	conn := serveCodec(t, &codecService{answer: func(context.Context) error { return ToStatus(answer).Err() }})
	for _, answer = range []error{
		context.DeadlineExceeded, fmt.Errorf("canary: %w", context.DeadlineExceeded), errors.Join(context.Canceled, context.DeadlineExceeded),
	} {
		err, _ := call(t, conn)
		assert.Equal(t, codes.DeadlineExceeded, status.Code(err))
		assert.NotContains(t, err.Error(), "canary")
		f, ok := FromError(err)
		require.True(t, ok)
		assert.Equal(t, contract.DeadlineExceeded, f.Code)
		assert.False(t, f.KnownNoEffect())
	}
}

// R1, R3: a client that takes 8 KiB of header fields gets the code and the failure, however much the server has to say. Without
// the cap the same client gets INTERNAL, although the handler ran: so the test would see a missing cap.
func TestSmallHeaderLimit(t *testing.T) {
	const limit = 8 << 10
	var answer error
	service := &codecService{answer: func(context.Context) error { return answer }}
	conn := serveCodec(t, service, grpc.WithMaxHeaderListSize(limit))
	large, err := status.New(codes.Aborted, "large").WithDetails(wrapperspb.String(strings.Repeat("x", limit)))
	require.NoError(t, err)
	answer = large.Err()
	err, _ = call(t, conn)
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.Equal(t, 1, service.runs)

	answer = ToStatus(large.Err()).Err()
	err, _ = call(t, conn)
	assert.Equal(t, codes.Aborted, status.Code(err))

	worst := contract.ErrFenced.With(nil)
	worst.Message, worst.Reason, worst.Current = strings.Repeat("界", 1<<20), contract.Reason(strings.Repeat("r", 1<<20)), -1<<63
	for name, codec := range map[string]Codec{"own": {}, "padded": {Adapter: padded{}}} {
		answer = codec.ToStatus(worst).Err()
		err, _ = call(t, conn)
		assert.Equal(t, codes.Aborted, status.Code(err), name)
		f, ok := codec.FromError(err)
		require.True(t, ok, name)
		assert.Equal(t, contract.Aborted, f.Code)
		assert.True(t, strings.HasPrefix(f.Message, "界界"), name)
	}
}

// R3: where a proxy drops the details, the trailers still hold the failure; where it drops those too, there is none.
func TestStrippedDetails(t *testing.T) {
	sent := contract.ErrKeyReused.With(nil)
	sent.Current = 7
	strip := false
	conn := serveCodec(t, &codecService{answer: func(ctx context.Context) error {
		if !strip {
			if err := grpc.SetTrailer(ctx, trailerOf(sent)); err != nil {
				return err
			}
		}
		return status.Error(codes.Aborted, sent.Message)
	}})
	err, trailer := call(t, conn)
	_, ok := FromError(err)
	assert.False(t, ok)
	f, ok := Codec{}.FromReply(err, trailer)
	require.True(t, ok)
	assert.Equal(t, sent, f)
	f, ok = fromTrailer(trailer)
	require.True(t, ok)
	assert.Equal(t, contract.Aborted, f.Code)
	assert.True(t, f.KnownNoEffect())

	strip = true
	err, trailer = call(t, conn)
	_, ok = Codec{}.FromReply(err, trailer)
	assert.False(t, ok)
	f, ok = BareFailure(err)
	require.True(t, ok)
	assert.Equal(t, contract.Aborted, f.Code)
	assert.False(t, f.KnownNoEffect())
}
