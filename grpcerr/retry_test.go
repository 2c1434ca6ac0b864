package grpcerr_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
)

// retryPolicy is what a deployment may set for every method.
const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]
}}]}`

func withRetries() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithDefaultServiceConfig(retryPolicy)}
}

var errMoved = &contract.Failure{Code: contract.Aborted, Reason: "desk.moved", Effect: contract.EffectNone, Message: "it has moved"}

func moved(context.Context, *request) (*answer, error) { return nil, errMoved }

// A retry policy that repeats mutations runs the handler four times where neither side has this package, and once where either has.
func TestRetryPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		setup setup
		runs  int64
	}{
		"neither side": {setup{plain: true, plainServer: true, dialOpts: withRetries()}, 4},
		"the client":   {setup{plainServer: true, dialOpts: withRetries()}, 1},
		"the server":   {setup{plain: true, dialOpts: withRetries()}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, c.setup)
			l.handle = func(ctx context.Context, req *request) (*answer, error) {
				if c.setup.plainServer {
					return nil, status.Error(codes.Aborted, "moved")
				}
				return moved(ctx, req)
			}
			err := l.mutate(l.ctx())
			assert.Equal(t, codes.Aborted, status.Code(err))
			assert.Equal(t, c.runs, l.runs.Load())
			if !c.setup.plain {
				assert.Equal(t, 1, failed(t, err).Attempts, "it is not even tried")
			}
		})
	}
}

// The same where the connection is lost in the handler: the marker has come, so that a foreign client's policy is at its end.
func TestRetryPolicyAndLostConnection(t *testing.T) {
	for name, s := range map[string]setup{
		"the client": {dialOpts: withRetries()},
		"the server": {plain: true, dialOpts: withRetries()},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, s)
			l.warm()
			l.handle = func(context.Context, *request) (*answer, error) {
				<-l.events.headers
				l.cutter.cut()
				return receipt(contract.ResultApplied), nil
			}
			assert.Equal(t, codes.Unavailable, status.Code(l.mutate(l.ctx())))
			assert.EqualValues(t, 1, l.runs.Load())
		})
	}
}

// A policy can come from the name resolution, which in gRPC is on by default for DNS.
func TestRetryPolicyOfResolver(t *testing.T) {
	for name, c := range map[string]struct {
		plain bool
		runs  int64
	}{"without this package": {true, 4}, "with it": {false, 1}} {
		t.Run(name, func(t *testing.T) {
			s, ca := &service{handle: func(context.Context, *request) (*answer, error) {
				return nil, status.Error(codes.Unavailable, "busy")
			}}, newAuthority(t)
			names := manual.NewBuilderWithScheme("names")
			names.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
				parsed := cc.ParseServiceConfig(retryPolicy)
				require.NoError(t, parsed.Err)
				address := serve(t, s, ca, setup{plainServer: true})
				names.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: address, ServerName: "127.0.0.1"}}, ServiceConfig: parsed})
			}
			opts := append(setup{plain: c.plain}.options(newEvents()),
				grpc.WithResolvers(names), grpc.WithTransportCredentials(credentials.NewTLS(ca.clientTLS(ca.leaf()))))
			conn, err := grpc.NewClient("names:///desk", opts...)
			require.NoError(t, err)
			defer conn.Close()
			err = conn.Invoke(t.Context(), change, operation("op"), newAnswer())
			assert.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
			assert.Equal(t, c.runs, s.runs.Load())
		})
	}
}

// Nothing else of such a config is heeded either.
func TestConfigOfResolver(t *testing.T) {
	s, ca := &service{}, newAuthority(t)
	address := serve(t, s, ca, setup{})
	names := manual.NewBuilderWithScheme("names")
	names.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
		parsed := cc.ParseServiceConfig(`{"methodConfig": [{"name": [{}], "timeout": "0s"}]}`)
		require.NoError(t, parsed.Err)
		names.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: address, ServerName: "127.0.0.1"}}, ServiceConfig: parsed})
	}
	opts := append(setup{}.options(newEvents()),
		grpc.WithResolvers(names), grpc.WithTransportCredentials(credentials.NewTLS(ca.clientTLS(ca.leaf()))))
	conn, err := grpc.NewClient("names:///desk", opts...)
	require.NoError(t, err)
	defer conn.Close()
	assert.NoError(t, conn.Invoke(t.Context(), change, operation("op"), newAnswer()))
}

// stubborn is an interceptor that calls again whatever comes back.
func stubborn(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) (err error) {
	for range 4 {
		if err = invoke(ctx, method, req, reply, cc, opts...); err == nil {
			return nil
		}
	}
	return err
}

// careful is stubborn and puts options of its own in the place of the call's.
func careful(own ...grpc.CallOption) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		return stubborn(ctx, method, req, reply, cc, invoke, own...)
	}
}

// R12: a layer of the client's own that retries does not get a mutation out twice, wherever it stands, and the caller still gets to
// know what the receiver said.
func TestStubbornLayers(t *testing.T) {
	stubbornly := []grpc.DialOption{grpc.WithChainUnaryInterceptor(stubborn)}
	guard := grpcerr.NewGuard(&grpcerr.ClientConfig{Methods: methods()})
	for name, c := range map[string]struct {
		setup   setup
		refused bool
	}{
		"outside":                            {setup{before: stubbornly}, true},
		"inside":                             {setup{dialOpts: stubbornly}, false},
		"inside, without the call's options": {setup{dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(careful())}}, false},
		"inside, with credentials of its own": {setup{dialOpts: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(careful(grpc.PerRPCCredentials(token("own")))),
		}}, false},
		"a policy, with options that a team has put together by itself": {setup{plain: true, dialOpts: append(withRetries(),
			grpc.WithUnaryInterceptor(guard.UnaryClientInterceptor()), grpc.WithStatsHandler(guard.StatsHandler()))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.setup.plainServer = true
			l := newLink(t, c.setup)
			l.handle = func(context.Context, *request) (*answer, error) { return nil, grpcerr.ToStatus(errMoved).Err() }
			err := l.mutate(l.ctx())
			assert.EqualValues(t, 1, l.runs.Load())
			e := failed(t, err)
			assert.Equal(t, contract.Answered, e.Delivery)
			assert.Equal(t, contract.RereadRevision, e.Decision.Action)
			assert.ErrorIs(t, err, errMoved)
			if c.refused {
				assert.ErrorIs(t, err, grpcerr.ErrNotResent)
			}
		})
	}
}

// R12: where a second attempt would succeed, it does not go out either, and its reply does not become the operation's.
func TestRetryWithoutOptions(t *testing.T) {
	l := newLink(t, setup{dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(careful())}})
	l.answers(errMoved)
	err := l.mutate(l.ctx())
	assert.ErrorIs(t, err, errMoved)
	assert.EqualValues(t, 1, l.runs.Load())
	l.refused(failed(t, err))
}

// setupOfOwnParts is a Guard without its options, with an interceptor below it.
func setupOfOwnParts(below grpc.UnaryClientInterceptor) setup {
	guard := grpcerr.NewGuard(&grpcerr.ClientConfig{Methods: methods()})
	return setup{plain: true, dialOpts: []grpc.DialOption{
		grpc.WithStatsHandler(guard.StatsHandler()), grpc.WithChainUnaryInterceptor(guard.UnaryClientInterceptor(), below),
	}}
}

// R12: with parts that a team has put together by itself, a layer that forgets the options is not stopped. Then nothing that its last
// attempt was told proves that the others did nothing.
func TestRetryThatIsNotStopped(t *testing.T) {
	l := newLink(t, setupOfOwnParts(careful()))
	l.handle = moved
	e := failed(t, l.mutate(l.ctx()))
	assert.EqualValues(t, 4, l.runs.Load())
	assert.Equal(t, contract.Answered, e.Delivery)
	assert.ErrorIs(t, e, errMoved)
	assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, e.Decision)
	l.refused(e)
}

// A read may be repeated by other layers as well. What its last attempt was told is what it was told.
func TestStubbornReads(t *testing.T) {
	l := newLink(t, setup{
		client: &grpcerr.ClientConfig{Methods: methods(), ReadAttempts: 1}, dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(stubborn)},
	})
	l.warm()
	l.read = func(_ context.Context, n int64) (*answer, error) {
		if n == 5 {
			l.cutter.cut()
		}
		return nil, contract.ErrUnavailable
	}
	l.cutter.listener.Close()
	_, err := l.call(l.ctx(), look, operation("op"))
	e := failed(t, err)
	assert.EqualValues(t, 5, l.reads.Load())
	assert.Nil(t, e.Failure)
	assert.Equal(t, contract.SentUnknown, e.Delivery)
}

// okError is an error that says that it is none.
type okError struct{ error }

func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// An error never has a status that says OK. One that an interceptor has made by itself does not tell what it has done (R12).
func TestErrorThatSaysOK(t *testing.T) {
	l := newLink(t, setup{dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
			return okError{io.ErrUnexpectedEOF}
		})}})
	err := l.mutate(l.ctx())
	assert.Equal(t, contract.SentUnknown, failed(t, err).Delivery)
	assert.Equal(t, codes.Unavailable, status.Code(err))
}
