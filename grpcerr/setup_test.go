package grpcerr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
)

// forgetful is an interceptor that hands on a context without what is in the caller's.
func forgetful(_ context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(context.Background(), method, req, reply, cc, opts...)
}

// careless is one that hands on no options either.
func careless(_ context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, _ ...grpc.CallOption) error {
	return invoke(context.Background(), method, req, reply, cc)
}

// Interceptors that cannot see their calls say so on the first one, before anything is sent.
func TestSetupIsIncomplete(t *testing.T) {
	guard, live := grpcerr.NewGuard(&grpcerr.ClientConfig{Methods: methods()}), grpcerr.NewGuard(&grpcerr.ClientConfig{Methods: methods()})
	require.NotEmpty(t, live.DialOptions())
	for name, s := range map[string]setup{
		"no stats handler": {plain: true, dialOpts: []grpc.DialOption{
			grpc.WithUnaryInterceptor(guard.UnaryClientInterceptor()), grpc.WithStreamInterceptor(guard.StreamClientInterceptor()),
		}},
		"another guard's stats handler": {plain: true, dialOpts: []grpc.DialOption{
			grpc.WithUnaryInterceptor(guard.UnaryClientInterceptor()), grpc.WithStreamInterceptor(guard.StreamClientInterceptor()),
			grpc.WithStatsHandler(grpcerr.NewGuard(nil).StatsHandler()),
		}},
		"a stats handler on another connection only": {plain: true, dialOpts: []grpc.DialOption{
			grpc.WithUnaryInterceptor(live.UnaryClientInterceptor()), grpc.WithStreamInterceptor(live.StreamClientInterceptor()),
		}},
		"an interceptor changes the context": {dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(forgetful)}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, s)
			for _, method := range []string{change, look} {
				_, err := l.call(l.ctx(), method, operation("op"))
				assert.ErrorIs(t, err, grpcerr.ErrSetup)
				assert.NotEqual(t, contract.NeverSent, failed(t, err).Delivery)
			}
			assert.Zero(t, l.runs.Load()+l.reads.Load())
			if s.plain {
				_, err := l.follow(l.ctx())
				assert.ErrorIs(t, err, grpcerr.ErrSetup)
			}
			assert.Zero(t, l.runs.Load())
		})
	}
}

// Where even the last place to stop a call is taken away, nothing is concluded from what was not counted.
func TestSetupThatCannotBeSeen(t *testing.T) {
	l := newLink(t, setup{dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(careless)}})
	_, err := l.call(l.ctx(), look, operation("op"))
	assert.ErrorIs(t, err, grpcerr.ErrSetup, "also of a success")
	assert.EqualValues(t, 1, l.reads.Load())
	l.answers(contract.ErrUnavailable)
	e := failed(t, l.mutate(l.ctx()))
	assert.Zero(t, e.Attempts)
	assert.NotEqual(t, contract.NeverSent, e.Delivery)
	assert.EqualValues(t, 1, l.runs.Load())
	l.refused(e)

	guard := grpcerr.NewGuard(&grpcerr.ClientConfig{Methods: methods()})
	l = newLink(t, setup{plain: true, dialOpts: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(guard.UnaryClientInterceptor(), careless),
	}})
	err = l.mutate(l.ctx())
	assert.ErrorIs(t, err, grpcerr.ErrSetup, "also of a success")
	assert.Equal(t, contract.Reconcile, failed(t, err).Decision.Action)
}

// A Guard whose parts a team has put together by itself works like the bundle, and two Guards on one connection do not disturb
// each other.
func TestSetupOfOnesOwn(t *testing.T) {
	own, outer := grpcerr.NewGuard(&grpcerr.ClientConfig{Methods: methods()}), grpcerr.NewGuard(&grpcerr.ClientConfig{Methods: methods()})
	for name, s := range map[string]setup{
		"one guard": {plain: true, dialOpts: []grpc.DialOption{
			grpc.WithUnaryInterceptor(own.UnaryClientInterceptor()), grpc.WithStatsHandler(own.StatsHandler()),
		}},
		"two guards": {before: outer.DialOptions()},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, s)
			l.answers(contract.ErrUnavailable)
			e := failed(t, l.mutate(l.ctx(), grpc.MaxCallSendMsgSize(8)))
			assert.Equal(t, contract.NeverSent, e.Delivery)
			e = failed(t, l.mutate(l.ctx()))
			assert.Equal(t, contract.Answered, e.Delivery)
			assert.Equal(t, 1, e.Attempts)
			assert.ErrorIs(t, e, contract.ErrUnavailable)
			l.refused(e)
		})
	}
}

// What one Guard refuses, because it remembers an unknown outcome, is not "never sent, nothing happened" for another one above it.
func TestTwoGuardsAgree(t *testing.T) {
	below := grpcerr.NewGuard(&grpcerr.ClientConfig{Methods: methods()})
	l := newLink(t, setup{plain: true, dialOpts: below.DialOptions()})
	l.answers(contract.ErrUnavailable)
	e := failed(t, l.mutate(l.ctx()))
	above := newLink(t, setup{dialOpts: below.DialOptions()})
	again := failed(t, above.mutate(above.ctx()))
	assert.ErrorIs(t, again, grpcerr.ErrNotResent)
	assert.Equal(t, e.Decision, again.Decision)
	assert.Zero(t, above.runs.Load())
}

// token is the credentials of a caller.
type token string

func (c token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(c)}, nil
}

func (token) RequireTransportSecurity() bool { return true }

// The caller's own credentials go out as they are.
func TestOwnCredentials(t *testing.T) {
	l := newLink(t, setup{dialOpts: []grpc.DialOption{grpc.WithPerRPCCredentials(token("of the connection"))}})
	l.handle = func(ctx context.Context, _ *request) (*answer, error) {
		assert.Equal(t, []string{"of the connection", "of the call"}, metadata.ValueFromIncomingContext(ctx, "authorization"))
		return receipt(contract.ResultApplied), nil
	}
	require.NoError(t, l.mutate(l.ctx(), grpc.PerRPCCredentials(token("of the call"))))
}
