package grpcerr_test

import (
	"context"
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// way is one way in which a mutation fails, and what its caller concludes.
type way struct {
	name  string
	setup setup
	fail  func(l *link) error

	code     codes.Code
	delivery contract.Delivery
	action   contract.Action
	failure  contract.FailureCode // of the receiver; empty: none arrived
	runs     int64
}

var ways = []way{
	{
		name: "the server dies before the handler", code: codes.Unavailable,
		delivery: contract.SentUnknown, action: contract.Reconcile, runs: 0,
		fail: func(l *link) error {
			l.warm()
			l.cutter.mute.Store(true)
			go func() { <-l.events.sent; l.cutter.cut() }()
			return l.mutate(l.ctx())
		},
	}, {
		name: "the server dies after the handler, the reply is lost", code: codes.Unavailable,
		delivery: contract.SentUnknown, action: contract.Reconcile, runs: 1,
		fail: func(l *link) error {
			l.warm()
			l.cutter.deaf.Store(true)
			l.handle = func(context.Context, *request) (*answer, error) {
				l.cutter.cut()
				return receipt(contract.ResultApplied), nil
			}
			return l.mutate(l.ctx())
		},
	}, {
		name: "the server dies in the handler, and had said that it began", code: codes.Unavailable,
		delivery: contract.ServerSeen, action: contract.Reconcile, runs: 1,
		fail: func(l *link) error {
			l.warm()
			l.handle = func(context.Context, *request) (*answer, error) {
				<-l.events.headers
				l.cutter.cut()
				return receipt(contract.ResultApplied), nil
			}
			return l.mutate(l.ctx())
		},
	}, {
		name: "nobody listens", code: codes.Unavailable,
		delivery: contract.NeverSent, action: contract.SendOriginal, runs: 0,
		fail: func(l *link) error {
			l.cutter.listener.Close()
			return l.mutate(l.ctx())
		},
	}, {
		name: "the deadline is over in the handler, which goes on", code: codes.DeadlineExceeded,
		delivery: contract.ServerSeen, action: contract.Reconcile, runs: 1,
		fail: func(l *link) error {
			l.warm()
			ctx, expire := l.expiring()
			l.handle = func(ctx context.Context, _ *request) (*answer, error) {
				<-l.events.headers
				expire()
				<-ctx.Done()
				return receipt(contract.ResultApplied), nil
			}
			return l.mutate(ctx)
		},
	}, {
		name: "the reply is lost, and the deadline is over", code: codes.DeadlineExceeded,
		delivery: contract.SentUnknown, action: contract.Reconcile, runs: 1,
		fail: func(l *link) error {
			l.warm()
			ctx, expire := l.expiring()
			l.cutter.deaf.Store(true)
			l.handle = func(context.Context, *request) (*answer, error) {
				expire()
				return receipt(contract.ResultApplied), nil
			}
			return l.mutate(ctx)
		},
	}, {
		name: "the context is cancelled before the call", code: codes.Canceled,
		delivery: contract.NeverSent, action: contract.SendOriginal, runs: 0,
		fail: func(l *link) error {
			ctx, cancel := context.WithCancel(l.ctx())
			cancel()
			return l.mutate(ctx)
		},
	}, {
		name: "the connection is closed during the call", code: codes.Canceled,
		delivery: contract.ServerSeen, action: contract.Reconcile, runs: 1,
		fail: func(l *link) error {
			l.warm()
			l.handle = func(context.Context, *request) (*answer, error) {
				<-l.events.headers
				l.conn.Close()
				return receipt(contract.ResultApplied), nil
			}
			return l.mutate(l.ctx())
		},
	}, {
		name: "the connection is closed before the call", code: codes.Canceled,
		delivery: contract.NeverSent, action: contract.SendOriginal, runs: 0,
		fail: func(l *link) error {
			l.conn.Close()
			return l.mutate(l.ctx())
		},
	}, {
		name: "the deadline is over while the call waits for a connection", code: codes.DeadlineExceeded,
		delivery: contract.NeverSent, action: contract.SendOriginal, runs: 0,
		fail: func(l *link) error {
			l.cutter.listener.Close()
			ctx, expire := l.expiring()
			go func() {
				for s := l.conn.GetState(); s != connectivity.TransientFailure; s = l.conn.GetState() {
					l.conn.WaitForStateChange(l.ctx(), s)
				}
				<-l.events.begun
				expire()
			}()
			return l.mutate(ctx, grpc.WaitForReady(true))
		},
	}, {
		name: "the request is larger than the client may send", code: codes.ResourceExhausted,
		delivery: contract.NeverSent, action: contract.SendOriginal, runs: 0,
		fail: func(l *link) error {
			l.warm()
			return l.mutate(l.ctx(), grpc.MaxCallSendMsgSize(8))
		},
	}, {
		name: "the request is larger than the server receives", code: codes.ResourceExhausted,
		setup:    setup{serverOpts: []grpc.ServerOption{grpc.MaxRecvMsgSize(8)}},
		delivery: contract.SentUnknown, action: contract.Reconcile, runs: 0,
		fail: func(l *link) error { return l.mutate(l.ctx()) },
	}, {
		name: "the reply is larger than the client receives", code: codes.ResourceExhausted,
		delivery: contract.ServerSeen, action: contract.Reconcile, runs: 1,
		fail: func(l *link) error { return l.mutate(l.ctx(), grpc.MaxCallRecvMsgSize(1)) },
	}, {
		name: "the client shows no certificate", code: codes.Unavailable,
		setup:    setup{shown: func(tls.Certificate) []tls.Certificate { return nil }},
		delivery: contract.NeverSent, action: contract.SendOriginal, runs: 0,
		fail: func(l *link) error { return l.mutate(l.ctx()) },
	}, {
		name: "the server does not have the method", code: codes.Unimplemented,
		delivery: contract.SentUnknown, action: contract.Reconcile, runs: 0,
		fail: func(l *link) error {
			_, err := l.call(l.ctx(), absent, operation("op"))
			return err
		},
	}, {
		name: "the server answers that it could not, and did nothing", code: codes.Unavailable, failure: contract.Unavailable,
		delivery: contract.Answered, action: contract.Reconcile, runs: 1,
		fail: func(l *link) error {
			l.handle = func(context.Context, *request) (*answer, error) {
				return nil, &contract.Failure{Code: contract.Unavailable, Effect: contract.EffectNone, Message: "the store is busy"}
			}
			return l.mutate(l.ctx())
		},
	},
}

// R12, R13, R18: every way in which a call fails is concluded from evidence, the handler of a mutation runs once at most, and the
// operation does not go out again by itself.
func TestWays(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			l := newLink(t, w.setup)
			err := w.fail(l)
			e := failed(t, err)
			assert.Equal(t, w.code, status.Code(err))
			assert.Equal(t, w.delivery, e.Delivery)
			assert.Equal(t, w.action, e.Decision.Action)
			assert.Equal(t, w.delivery != contract.NeverSent && w.failure == "", e.Decision.Effect == contract.EffectUnknown)
			if w.failure == "" {
				assert.Nil(t, e.Failure, "R4")
			} else {
				assert.Equal(t, w.failure, e.Failure.Code)
			}
			failure, ok := contract.FailureOf(err)
			require.True(t, ok)
			assert.Equal(t, e.Decision.Effect == contract.EffectNone, failure.KnownNoEffect())
			assert.Equal(t, w.runs, l.runs.Load())
			if w.action != contract.SendOriginal {
				l.refused(e)
			}
		})
	}
}

// refused sends the operation of a failed call again and checks that it does not go out.
func (l *link) refused(e *grpcerr.CallError) {
	l.t.Helper()
	runs := l.runs.Load()
	l.events.drain()
	_, err := l.call(l.ctx(), e.Method, operation("op"))
	again := failed(l.t, err)
	assert.ErrorIs(l.t, err, grpcerr.ErrNotResent)
	assert.Equal(l.t, e.Decision, again.Decision)
	assert.Zero(l.t, again.Attempts)
	assert.Empty(l.t, l.events.begun)
	assert.Equal(l.t, runs, l.runs.Load())
}

// R12: what was never sent is sent as it was, until it is answered.
func TestNeverSentIsSent(t *testing.T) {
	l := newLink(t, setup{})
	for range 3 {
		e := failed(t, l.mutate(l.ctx(), grpc.MaxCallSendMsgSize(8)))
		assert.Equal(t, contract.Decision{Action: contract.SendOriginal, Effect: contract.EffectNone, SameOperation: true}, e.Decision)
		assert.ErrorIs(t, e, grpcerr.ErrNotAnswered)
	}
	require.NoError(t, l.mutate(l.ctx()))
	assert.EqualValues(t, 1, l.runs.Load())
}

// A certificate of another authority never lets a request out, with TLS 1.3 too, where the client learns of it last.
func TestForeignCertificate(t *testing.T) {
	other := newAuthority(t).leaf()
	l := newLink(t, setup{shown: func(tls.Certificate) []tls.Certificate { return []tls.Certificate{other} }})
	e := failed(t, l.mutate(l.ctx()))
	assert.Equal(t, contract.NeverSent, e.Delivery)
	assert.Zero(t, l.runs.Load())
}

// dialPeer is a client of a server that a test has written.
func dialPeer(t *testing.T, p *peer) *link {
	t.Helper()
	e := newEvents()
	opts := append(setup{}.options(e), grpc.WithTransportCredentials(insecure.NewCredentials()))
	return &link{t: t, service: &service{}, events: e, conn: dial(t, p.listener.Addr().String(), opts)}
}

// A refused stream is repeated by gRPC once, on the peer's word that it has not begun, and nothing can switch that off: a receiver
// that says so and has begun gets the request twice, with the same bytes, and its claim has to hold.
func TestRefusedStream(t *testing.T) {
	refuse := func(_ int, s stream) { _ = s.WriteRSTStream(s.id, http2.ErrCodeRefusedStream) }
	p := newPeer(t, refuse)
	l := dialPeer(t, p)
	e := failed(t, l.mutate(l.ctx()))
	assert.Equal(t, codes.Unavailable, status.Code(e))
	assert.Equal(t, contract.SentUnknown, e.Delivery)
	assert.Equal(t, contract.Reconcile, e.Decision.Action)
	assert.Equal(t, []int{2, 1}, []int{e.Attempts, e.Transparent})
	require.Len(t, p.requests(), 2)
	assert.Equal(t, p.requests()[0], p.requests()[1])
	l.refused(e)
	assert.Len(t, p.requests(), 2)
}

// The same, and the second delivery is answered.
func TestRefusedStreamThenAnswered(t *testing.T) {
	p := newPeer(t, func(n int, s stream) {
		if n == 1 {
			_ = s.WriteRSTStream(s.id, http2.ErrCodeRefusedStream)
			return
		}
		s.answer(t, receipt(contract.ResultApplied))
	})
	l := dialPeer(t, p)
	a, err := l.call(l.ctx(), change, operation("op"))
	require.NoError(t, err)
	assert.Equal(t, pb.ResultCode_RESULT_CODE_APPLIED, a.GetResult())
	assert.Len(t, p.requests(), 2)
}

// R12: what the receiver says of the second delivery, that it did nothing, does not tell what the first one did.
func TestRefusedStreamThenNothingDone(t *testing.T) {
	for name, id := range map[string]string{"remembered": "op", "not remembered": ""} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(n int, s stream) {
				if n == 1 {
					_ = s.WriteRSTStream(s.id, http2.ErrCodeRefusedStream)
					return
				}
				s.headers(true, ":status", "200", "content-type", "application/grpc", "grpc-status", "9",
					grpcerr.TrailerCode, "FAILED_PRECONDITION", grpcerr.TrailerEffect, "none")
			})
			l := dialPeer(t, p)
			_, err := l.call(l.ctx(), apply, operation(id))
			e := failed(t, err)
			assert.Equal(t, contract.Answered, e.Delivery)
			assert.Equal(t, contract.FailedPrecondition, e.Failure.Code)
			assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown, SameOperation: true}, e.Decision)
			require.Len(t, p.requests(), 2)
			if id != "" {
				l.refused(e)
			}
			_, err = l.call(grpcerr.WithActionDone(l.ctx(), contract.Reconcile), apply, operation(id))
			assert.ErrorContains(t, err, "FAILED_PRECONDITION")
			assert.Equal(t, id != "", failed(t, err).Decision.Effect == contract.EffectUnknown, "a later answer is not about it")
			assert.Len(t, p.requests(), 3)
		})
	}
}

// A server that goes away says up to which request it has begun. One above that is repeated by gRPC on another connection; one
// below it may have been executed.
func TestGoAway(t *testing.T) {
	t.Run("not begun", func(t *testing.T) {
		p := newPeer(t, func(n int, s stream) {
			if n == 1 {
				_ = s.WriteGoAway(0, http2.ErrCodeNo, nil)
				return
			}
			s.answer(t, receipt(contract.ResultApplied))
		})
		l := dialPeer(t, p)
		require.NoError(t, l.mutate(l.ctx()))
		assert.Len(t, p.requests(), 2)
	})
	t.Run("begun", func(t *testing.T) {
		p := newPeer(t, func(_ int, s stream) {
			_ = s.WriteGoAway(s.id, http2.ErrCodeNo, nil)
			s.conn.Close()
		})
		l := dialPeer(t, p)
		e := failed(t, l.mutate(l.ctx()))
		assert.Equal(t, contract.SentUnknown, e.Delivery)
		assert.Len(t, p.requests(), 1)
		l.refused(e)
	})
}

// R21: a success of the transport is not one of the operation: without a receipt that can stand it is unknown.
func TestOKWithoutReceipt(t *testing.T) {
	for name, message := range map[string]proto.Message{
		"empty":       &pb.Receipt{},
		"unspecified": &pb.Receipt{Digest: make([]byte, 32), Ref: "thing/1"},
		"not known":   &pb.Receipt{Digest: make([]byte, 32), Result: 99},
		"no evidence": &pb.Receipt{Digest: make([]byte, 32), Result: pb.ResultCode_RESULT_CODE_APPLIED},
		"no message":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			l := dialPeer(t, newPeer(t, func(_ int, s stream) { s.answer(t, message) }))
			err := l.mutate(l.ctx())
			e := failed(t, err)
			assert.ErrorIs(t, err, contract.ErrOutcomeUnknown)
			assert.Equal(t, contract.SentUnknown, e.Delivery)
			assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, e.Decision)
			assert.NotEqual(t, codes.OK, status.Code(err))
			l.refused(e)
		})
	}
}

// A gateway that turns a failure into OK and leaves its trailers betrays itself.
func TestOKWithTrailersOfFailure(t *testing.T) {
	p := newPeer(t, func(_ int, s stream) {
		s.headers(false, ":status", "200", "content-type", "application/grpc")
		data, err := proto.Marshal(receipt(contract.ResultApplied))
		require.NoError(t, err)
		_ = s.WriteData(s.id, false, append([]byte{0, 0, 0, 0, byte(len(data))}, data...))
		s.headers(true, "grpc-status", "0", grpcerr.TrailerCode, "ABORTED", grpcerr.TrailerEffect, "none")
	})
	l := dialPeer(t, p)
	err := l.mutate(l.ctx())
	e := failed(t, err)
	assert.ErrorIs(t, err, grpcerr.ErrEnvelopeMismatch)
	assert.Equal(t, contract.EffectUnknown, e.Decision.Effect)
	l.refused(e)
}

// The error tells what it knows in a text that is safe to show: nothing of what a proxy wrote.
func TestCallErrorText(t *testing.T) {
	p := newPeer(t, func(_ int, s stream) {
		s.headers(true, ":status", "200", "content-type", "application/grpc", "grpc-status", "14", "grpc-message", "canary")
	})
	l := dialPeer(t, p)
	err := l.mutate(l.ctx())
	assert.EqualError(t, err, change+": Unavailable: UNAVAILABLE: pramaan.agent_operation.outcome_unknown: the outcome is not known yet; "+
		"query the original operation; do not start another; delivery sent_unknown; next reconcile")
	assert.Contains(t, status.Convert(err).Message(), "canary")
}
