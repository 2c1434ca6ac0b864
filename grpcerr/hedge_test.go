package grpcerr_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/confirmexec/confirmexec/contract"
)

// hedge is an interceptor that sends a mutation twice at once.
type hedge struct {
	hasty bool // it does not wait for the second answer
	token *slowToken
	done  sync.WaitGroup
}

func (h *hedge) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	errs := make(chan error, 2)
	for range cap(errs) {
		h.done.Go(func() {
			own := newAnswer()
			err := invoke(ctx, method, req, own, cc, opts...)
			if err == nil && !h.hasty {
				reply.(*answer).Receipt = own.Receipt
			}
			errs <- err
		})
	}
	err := <-errs
	if !h.hasty {
		h.token.arrive()
		err = <-errs
	}
	return err
}

// slowToken is the credentials of a caller that are there when both sends ask for them, or one of them has ended.
type slowToken struct {
	arrived atomic.Int32
	ready   chan struct{}
}

func newSlowToken() *slowToken { return &slowToken{ready: make(chan struct{})} }

func (s *slowToken) arrive() {
	if s.arrived.Add(1) == 2 {
		close(s.ready)
	}
}

func (s *slowToken) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	s.arrive()
	select {
	case <-s.ready:
	case <-ctx.Done():
	}
	return map[string]string{}, ctx.Err()
}

func (*slowToken) RequireTransportSecurity() bool { return true }

func newHedged(t *testing.T, hasty, ownParts bool) (*link, *hedge) {
	t.Helper()
	h := &hedge{hasty: hasty, token: newSlowToken()}
	s := setup{dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(h.intercept)}}
	if ownParts {
		s = setupOfOwnParts(h.intercept)
	}
	return newLink(t, s), h
}

// R12: of two sends of a mutation at once one goes out, also where both wait for the caller's credentials before it.
func TestHedge(t *testing.T) {
	for name, ownParts := range map[string]bool{"the options": false, "parts put together": true} {
		t.Run(name, func(t *testing.T) {
			l, h := newHedged(t, false, ownParts)
			require.NoError(t, l.mutate(l.ctx(), grpc.PerRPCCredentials(h.token)))
			assert.EqualValues(t, 1, l.runs.Load())
		})
	}
}

// R12: a call that ended while one of its sends was under way is not known to be never sent.
func TestHedgeThatDoesNotWait(t *testing.T) {
	l, h := newHedged(t, true, false)
	e := failed(t, l.mutate(l.ctx(), grpc.PerRPCCredentials(h.token)))
	assert.Equal(t, contract.SentUnknown, e.Delivery)
	assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, e.Decision)
	h.token.arrive()
	h.done.Wait()
	assert.EqualValues(t, 1, l.runs.Load())
	l.refused(e)
}

// R12: nothing of a call goes out after it has ended.
func TestSendAfterTheEnd(t *testing.T) {
	ended := make(chan struct{})
	var later sync.WaitGroup
	var late error
	l := newLink(t, setup{dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		later.Go(func() {
			<-ended
			late = invoke(ctx, method, req, newAnswer(), cc, opts...)
		})
		return invoke(ctx, method, req, reply, cc, append(opts, grpc.MaxCallSendMsgSize(8))...)
	})}})
	e := failed(t, l.mutate(l.ctx()))
	assert.Equal(t, contract.NeverSent, e.Delivery)
	close(ended)
	later.Wait()
	require.Error(t, late)
	assert.Zero(t, l.runs.Load())
}
