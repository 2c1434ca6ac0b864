package grpcerr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
)

// failover is an interceptor that asks another connection when the first one cannot say. It has a context of its own for that.
type failover struct {
	to     *grpc.ClientConn
	opts   bool // they are handed on
	bypass bool // the first one is not even asked
}

func (f failover) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if !f.bypass {
		if err := invoke(ctx, method, req, reply, cc, opts...); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
			return err
		}
	}
	if !f.opts {
		opts = nil
	}
	return f.to.Invoke(context.WithoutCancel(ctx), method, req, reply, opts...)
}

// below is a link with an interceptor below its Guard.
func below(t *testing.T, i grpc.UnaryClientInterceptor) *link {
	t.Helper()
	return newLink(t, setup{dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(i)}})
}

// unreachable lets nobody listen at a link that has no connection yet.
func (l *link) unreachable() *link {
	l.cutter.listener.Close()
	return l
}

// executes makes the handler run, and its reply be lost.
func (l *link) executes() *link {
	l.warm()
	l.cutter.deaf.Store(true)
	l.handle = func(context.Context, *request) (*answer, error) {
		l.cutter.cut()
		return receipt(contract.ResultApplied), nil
	}
	return l
}

// refuses makes the handler answer that nothing was done.
func (l *link) refuses() *link {
	l.handle = func(context.Context, *request) (*answer, error) {
		return nil, &contract.Failure{Code: contract.Unavailable, Effect: contract.EffectNone, Message: "the store is busy"}
	}
	return l
}

// R12, R13, R18: what an interceptor tried on another connection does not make "nothing was done" of a call that was executed.
func TestFailoverBelow(t *testing.T) {
	standby := func(t *testing.T, guarded bool) *link {
		t.Helper()
		return newLink(t, setup{plain: !guarded})
	}
	for name, c := range map[string]struct {
		first, second func(*link) *link
		guarded       bool // the second
		opts, bypass  bool
		delivery      contract.Delivery
		runs          int64 // of both
	}{
		"executed, then a guarded one that is unreachable": {(*link).executes, (*link).unreachable, true, false, false, contract.SentUnknown, 1},
		"the same, and the options are handed on":          {(*link).executes, (*link).unreachable, true, true, false, contract.SentUnknown, 1},
		"executed, then a guarded one that did nothing":    {(*link).executes, (*link).refuses, true, false, false, contract.SentUnknown, 2},
		"executed, then one that did nothing":              {(*link).executes, (*link).refuses, false, false, false, contract.SentUnknown, 2},
		"nothing done, then executed":                      {(*link).refuses, (*link).executes, false, false, false, contract.Answered, 2},
		"unreachable, then executed":                       {(*link).unreachable, (*link).executes, false, false, false, contract.SentUnknown, 1},
		"unreachable, then executed at a guarded one":      {(*link).unreachable, (*link).executes, true, false, false, contract.SentUnknown, 1},
		"unreachable, then the options stop it":            {(*link).unreachable, (*link).executes, false, true, false, contract.SentUnknown, 0},
		"not asked, then executed":                         {(*link).refuses, (*link).executes, false, false, true, contract.SentUnknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			second := c.second(standby(t, c.guarded))
			l := c.first(below(t, failover{second.conn, c.opts, c.bypass}.intercept))
			e := failed(t, l.mutate(l.ctx()))
			assert.Equal(t, c.delivery, e.Delivery)
			assert.Equal(t, contract.EffectUnknown, e.Decision.Effect)
			assert.NotEqual(t, contract.SendOriginal, e.Decision.Action)
			assert.False(t, e.Decision.SameOperation)
			failure, ok := contract.FailureOf(e)
			require.True(t, ok)
			assert.False(t, failure.KnownNoEffect())
			assert.Equal(t, c.runs, l.runs.Load()+second.runs.Load())
			l.refused(e)
		})
	}
}

// Where every connection has its Guard and nothing went out on this one, the other one's word stands.
func TestFailoverToGuardedConnection(t *testing.T) {
	second := newLink(t, setup{}).refuses()
	l := below(t, failover{to: second.conn}.intercept).unreachable()
	e := failed(t, l.mutate(l.ctx()))
	assert.Equal(t, contract.Answered, e.Delivery)
	assert.Equal(t, contract.EffectNone, e.Decision.Effect)
	assert.EqualValues(t, 1, second.runs.Load())
}

// R12: a call that is over before it begins is not handed on, to an interceptor that would send it elsewhere.
func TestCallThatIsOverIsKept(t *testing.T) {
	for name, over := range map[string]func(l *link) context.Context{
		"the context": func(l *link) context.Context {
			ctx, cancel := context.WithCancel(l.ctx())
			cancel()
			return ctx
		},
		"the connection": func(l *link) context.Context {
			l.conn.Close()
			return l.ctx()
		},
	} {
		t.Run(name, func(t *testing.T) {
			second := newLink(t, setup{plain: true})
			l := below(t, failover{to: second.conn, bypass: true}.intercept)
			e := failed(t, l.mutate(over(l)))
			assert.Equal(t, codes.Canceled, status.Code(e))
			assert.Equal(t, contract.NeverSent, e.Delivery)
			assert.Zero(t, second.runs.Load())
		})
	}
}

// R12: connections that are closed end calls with an error that they share: it does not tell which of them was closed.
func TestClosedWhileExecuted(t *testing.T) {
	var l *link
	second := newLink(t, setup{plain: true})
	second.handle = func(context.Context, *request) (*answer, error) {
		second.conn.Close()
		return receipt(contract.ResultApplied), nil
	}
	closing := func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if method == change {
			go func() { <-l.events.begun; cc.Close() }()
			opts = append(opts, grpc.WaitForReady(true))
		}
		return failover{to: second.conn}.intercept(ctx, method, req, reply, cc, invoke, opts...)
	}
	l = below(t, closing).unreachable()
	e := failed(t, l.mutate(l.ctx()))
	assert.Equal(t, codes.Canceled, status.Code(e))
	assert.EqualValues(t, 1, second.runs.Load())
	assert.Equal(t, contract.SentUnknown, e.Delivery)
	assert.Equal(t, contract.EffectUnknown, e.Decision.Effect)
}
