package grpcerr_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// foreign is a link from a client without this package, which shows what is on the wire.
func foreign(t *testing.T, cfg *grpcerr.ServerConfig) *link {
	t.Helper()
	return newLink(t, setup{plain: true, server: cfg})
}

// wire is what a reply held.
type wire struct{ header, trailer metadata.MD }

func (l *link) raw(method string, req any) (wire, error) {
	var w wire
	_, err := l.call(l.ctx(), method, req, grpc.Header(&w.header), grpc.Trailer(&w.trailer))
	return w, err
}

// R1, R3: every failure of a handler leaves with its code's status, with details that decode to it, and with the same in plain
// trailers; and one of a mutation forbids retries.
func TestHandlersFailures(t *testing.T) {
	for _, rule := range contract.RetryTable() {
		for _, method := range []string{change, look} {
			l := foreign(t, &grpcerr.ServerConfig{Methods: methods()})
			failure := &contract.Failure{Code: rule.Code, Reason: "desk.reason", Message: "no", Current: 7}
			l.answers(fmt.Errorf("wrapped: %w", failure))
			l.read = failing(1, errors.Join(failure))
			w, err := l.raw(method, operation("op"))
			assert.EqualValues(t, rule.GRPC, status.Code(err))
			f, ok := grpcerr.FromError(err)
			require.True(t, ok)
			assert.Equal(t, *failure, *f)
			assert.Equal(t, []string{string(rule.Code)}, w.trailer.Get(grpcerr.TrailerCode))
			assert.Equal(t, []string{"7"}, w.trailer.Get(grpcerr.TrailerCurrent))
			assert.Equal(t, method == change, len(w.header.Get(grpcerr.HeaderSeen)) == 1)
			assert.Equal(t, method == change, len(w.trailer.Get("grpc-retry-pushback-ms")) == 1)
		}
	}
}

// R18: an error that is no failure leaves as a fixed text and without a claim about the effect. A context's error does not become
// an UNKNOWN either, or a code that the server's own transport makes of it (grpc-go#1645).
func TestHandlersOtherErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code codes.Code
	}{
		"of a database":              {fmt.Errorf("canary: %w", sql.ErrConnDone), codes.Internal},
		"of a deadline":              {fmt.Errorf("canary: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		"of a cancelled context":     {fmt.Errorf("canary: %w", context.Canceled), codes.Canceled},
		"of the deadline, unwrapped": {context.DeadlineExceeded, codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			for _, plain := range []bool{true, false} {
				l := newLink(t, setup{plain: plain})
				l.answers(c.err)
				err := l.mutate(l.ctx())
				assert.Equal(t, c.code, status.Code(err))
				assert.NotContains(t, fmt.Sprint(err, status.Convert(err).Proto()), "canary")
				if !plain {
					assert.Equal(t, contract.EffectUnknown, failed(t, err).Decision.Effect)
				}
			}
		})
	}
}

// A panic is contained: the caller learns nothing of it and concludes that the outcome is unknown, and the server goes on.
func TestPanics(t *testing.T) {
	var told []any
	cfg := &grpcerr.ServerConfig{Methods: methods(), Recovered: func(_ context.Context, method string, value any) {
		told = append(told, method, value)
	}}
	l := newLink(t, setup{server: cfg})
	l.handle = func(context.Context, *request) (*answer, error) { panic("canary") }
	err := l.mutate(l.ctx())
	e := failed(t, err)
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.NotContains(t, fmt.Sprint(err, status.Convert(err).Proto()), "canary")
	assert.Equal(t, contract.ServerSeen, e.Delivery)
	assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, e.Decision)
	assert.Equal(t, []any{change, "canary"}, told)
	l.refused(e)
	l.handle = nil
	_, err = l.call(l.ctx(), change, operation("op 2"))
	require.NoError(t, err)

	quiet := foreign(t, nil)
	quiet.handle = func(context.Context, *request) (*answer, error) { panic(errors.New("canary")) }
	assert.Equal(t, codes.Internal, status.Code(quiet.mutate(quiet.ctx())))
}

// broken is an error that panics when somebody looks into it.
type broken struct{ err *error }

func (*broken) Error() string   { return "canary" }
func (b *broken) Unwrap() error { return *b.err }

// R18: an error that panics when it is looked at ends neither the server nor the claim that the outcome is unknown; nor does a nil
// pointer in an error, beside a receipt that the handler has made.
func TestErrorsThatPanic(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		told int
	}{
		"panics":         {&broken{}, 1},
		"nil":            {(*broken)(nil), 1},
		"nil conflict":   {(*contract.ConflictError)(nil), 0},
		"nil invalid":    {(*contract.InvalidError)(nil), 0},
		"nil call error": {(*grpcerr.CallError)(nil), 0},
	} {
		t.Run(name, func(t *testing.T) {
			told := 0
			l := newLink(t, setup{server: &grpcerr.ServerConfig{Methods: methods(), Recovered: func(_ context.Context, method string, _ any) {
				assert.Contains(t, []string{change, follow}, method)
				told++
			}}})
			l.handle = func(context.Context, *request) (*answer, error) { return receipt(contract.ResultApplied), c.err }
			l.stream = func(grpc.ServerStream) error { return c.err }
			_, streamed := l.follow(l.ctx())
			for _, err := range []error{l.mutate(l.ctx()), streamed} {
				assert.Equal(t, codes.Internal, status.Code(err))
				assert.NotContains(t, fmt.Sprint(err, status.Convert(err).Proto()), "canary")
				assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, failed(t, err).Decision)
			}
			assert.Equal(t, 2*c.told, told)
			l.warm()
		})
	}
	assert.NotEmpty(t, (*grpcerr.CallError)(nil).Error())
}

// R2: a reply never says APPLIED and why not, and a receipt that cannot stand does not leave.
func TestReceiptsThatCannotStand(t *testing.T) {
	for name, r := range map[string]*pb.Receipt{
		"applied, and a failure": {Result: pb.ResultCode_RESULT_CODE_APPLIED, Ref: "thing/1", Digest: make([]byte, 32),
			Failure: grpcerr.FailureToProto(errMoved)},
		"applied without evidence": {Result: pb.ResultCode_RESULT_CODE_APPLIED, Digest: make([]byte, 32)},
		"unspecified":              {Digest: make([]byte, 32)},
		"missing":                  nil,
	} {
		t.Run(name, func(t *testing.T) {
			l := foreign(t, &grpcerr.ServerConfig{Methods: methods()})
			l.handle = func(context.Context, *request) (*answer, error) { return &answer{r}, nil }
			err := l.mutate(l.ctx())
			assert.Equal(t, codes.Internal, status.Code(err))
			_, ok := grpcerr.FromError(err)
			assert.False(t, ok)
		})
	}
	l := newLink(t, setup{})
	l.read = func(context.Context, int64) (*answer, error) { return newAnswer(), nil }
	_, err := l.call(l.ctx(), look, operation("op"))
	assert.NoError(t, err, "a read may answer what it likes")
	assert.EqualValues(t, 1, l.reads.Load())
}

// R17: a request in a version that is not spoken is refused before the handler.
func TestProtocolVersions(t *testing.T) {
	for version, ok := range map[string]bool{"1": true, "2": true, "3": false, "": false} {
		for _, method := range []string{change, look} {
			l := newLink(t, setup{server: &grpcerr.ServerConfig{Methods: methods(), ProtocolVersions: []string{"1", "2"}}})
			req := operation("op")
			req.ProtocolVersion = version
			_, err := l.call(l.ctx(), method, req)
			assert.Equal(t, ok, err == nil)
			assert.Equal(t, ok, l.runs.Load()+l.reads.Load() == 1)
			if !ok {
				assert.ErrorIs(t, err, contract.ErrUnsupportedVersion)
				assert.Equal(t, codes.FailedPrecondition, status.Code(err))
			}
		}
	}
}

// R30: a mutation without an operation id or a key is refused before the handler, unless it is processed on every delivery.
func TestRequireKey(t *testing.T) {
	cfg := &grpcerr.ServerConfig{Methods: methods(), RequireKey: true}
	for method, refused := range map[string]bool{change: true, redo: false, look: false} {
		for _, req := range []*request{operation(""), {&pb.RequestMeta{OperationId: "op"}}, {}} {
			l := newLink(t, setup{server: cfg})
			_, err := l.call(l.ctx(), method, req)
			assert.Equal(t, refused, err != nil, "%s %v", method, err)
			if refused {
				assert.Equal(t, codes.InvalidArgument, status.Code(err))
				assert.ErrorIs(t, err, contract.ErrInvalid)
				assert.Equal(t, contract.EffectNone, failed(t, err).Decision.Effect)
				assert.Zero(t, l.runs.Load())
			}
		}
	}
}

// A method that is listed has meta data in its requests, or is refused; others, such as a health check, pass without.
func TestRequestsWithoutMeta(t *testing.T) {
	for listed, code := range map[bool]codes.Code{true: codes.FailedPrecondition, false: codes.OK} {
		cfg := &grpcerr.ServerConfig{ProtocolVersions: []string{"1"}, RequireKey: true}
		if listed {
			cfg.Methods = contract.Methods{find: {}}
		}
		l := foreign(t, cfg)
		_, err := l.call(l.ctx(), find, &structpb.Struct{})
		assert.Equal(t, code, status.Code(err))
	}
	own := &grpcerr.ServerConfig{ProtocolVersions: []string{"1"}, Methods: contract.Methods{find: {}},
		Meta: func(any) (contract.RequestMeta, bool) { return contract.RequestMeta{ProtocolVersion: "1"}, true }}
	l := foreign(t, own)
	_, err := l.call(l.ctx(), find, &structpb.Struct{})
	assert.NoError(t, err)
}

// Errors of interceptors that are chained after this package's are converted like a handler's.
func TestInterceptorsAfter(t *testing.T) {
	denied := grpc.ChainUnaryInterceptor(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return nil, fmt.Errorf("wrapped: %w", contract.ErrDenied)
	})
	opts := append(grpcerr.ServerOptions(nil), denied)
	l := newLink(t, setup{plainServer: true, serverOpts: opts})
	err := l.mutate(l.ctx())
	assert.ErrorIs(t, err, contract.ErrDenied)
	assert.Equal(t, codes.PermissionDenied, status.Code(err))
	assert.Zero(t, l.runs.Load())
}

// An error as large as a peer allows for all headers still tells its failure, where a peer's limit is 8 KiB.
func TestLargeErrors(t *testing.T) {
	l := newLink(t, setup{dialOpts: []grpc.DialOption{grpc.WithMaxHeaderListSize(8 << 10)}})
	l.answers(&contract.Failure{Code: contract.Aborted, Reason: errMoved.Reason, Message: strings.Repeat("\x01é", 20<<10)})
	err := l.mutate(l.ctx())
	assert.ErrorIs(t, err, errMoved)
	assert.Equal(t, contract.Answered, failed(t, err).Delivery)
}

// R18: a server that has written something and calls another one does not tell its own caller that nothing was done because of what
// became of that call, but where it says so itself.
func TestErrorsOfCallsBecomeAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		down   bool
		want   *contract.Failure
		code   codes.Code
	}{
		"refused":    {answer: contract.ErrDenied, want: contract.ErrDenied, code: codes.PermissionDenied},
		"never sent": {down: true, want: grpcerr.ErrNotAnswered, code: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			inner, l := newLink(t, setup{}), newLink(t, setup{})
			inner.answers(c.answer)
			if c.down {
				inner.cutter.listener.Close()
			}
			l.handle = func(ctx context.Context, _ *request) (*answer, error) { return nil, inner.mutate(ctx) }
			err := l.mutate(l.ctx())
			e := failed(t, err)
			assert.Equal(t, contract.Answered, e.Delivery)
			assert.ErrorIs(t, err, c.want)
			assert.Equal(t, c.code, status.Code(err))
			assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, e.Decision)
			assert.NotContains(t, err.Error(), "nothing was done")

			l.handle = func(ctx context.Context, req *request) (*answer, error) {
				_, err := inner.call(ctx, apply, req)
				return nil, contract.ErrGuardNotMet.With(err)
			}
			_, err = l.call(l.ctx(), change, operation("op 2"))
			assert.ErrorIs(t, err, contract.ErrGuardNotMet)
			assert.Equal(t, contract.EffectNone, failed(t, err).Decision.Effect)
		})
	}
}

// R18: what became of a call that is not known to have had no effect is not known to the server's caller either.
func TestUnknownCallsBecomeAnswers(t *testing.T) {
	lost := newLink(t, setup{})
	lost.warm()
	lost.handle = func(context.Context, *request) (*answer, error) {
		<-lost.events.headers
		lost.cutter.cut()
		return receipt(contract.ResultApplied), nil
	}
	l := newLink(t, setup{})
	l.handle = func(ctx context.Context, req *request) (*answer, error) { return lost.call(ctx, change, req) }
	err := l.mutate(l.ctx())
	assert.ErrorIs(t, err, contract.ErrOutcomeUnknown)
	assert.Equal(t, contract.EffectUnknown, failed(t, err).Decision.Effect)
}
