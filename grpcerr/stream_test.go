package grpcerr_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

var (
	following = &grpc.StreamDesc{StreamName: "Follow", ServerStreams: true}
	feeding   = &grpc.StreamDesc{StreamName: "Feed", ServerStreams: true, ClientStreams: true}
)

// follow asks for the operation of the test, and receives until the stream is over.
func (l *link) follow(ctx context.Context, opts ...grpc.CallOption) (replies int, err error) {
	s, err := l.conn.NewStream(ctx, following, follow, opts...)
	if err != nil {
		return 0, err
	}
	if err := s.SendMsg(operation("op")); err != nil {
		return 0, err
	}
	if err := s.CloseSend(); err != nil {
		return 0, err
	}
	for {
		if err := s.RecvMsg(newAnswer()); err != nil {
			return replies, err
		}
		replies++
	}
}

func receiveOne(ss grpc.ServerStream) error { return ss.RecvMsg(&request{&pb.RequestMeta{}}) }

// A stream's errors tell what a unary call's do, whenever they come.
func TestStreamErrors(t *testing.T) {
	for name, c := range map[string]struct {
		stream   func(l *link) func(grpc.ServerStream) error
		delivery contract.Delivery
		action   contract.Action
		code     codes.Code
		replies  int
	}{
		"a failure": {func(*link) func(grpc.ServerStream) error {
			return func(ss grpc.ServerStream) error { return errors.Join(receiveOne(ss), contract.ErrStale) }
		}, contract.Answered, contract.RefreshState, codes.FailedPrecondition, 0},
		"a failure after replies": {func(*link) func(grpc.ServerStream) error {
			return func(ss grpc.ServerStream) error {
				return errors.Join(receiveOne(ss), ss.SendMsg(receipt(contract.ResultAccepted)), contract.ErrStale)
			}
		}, contract.Answered, contract.RefreshState, codes.FailedPrecondition, 1},
		"a context's error": {func(*link) func(grpc.ServerStream) error {
			return func(ss grpc.ServerStream) error { return errors.Join(receiveOne(ss), context.DeadlineExceeded) }
		}, contract.Answered, contract.TreatAsUnknown, codes.DeadlineExceeded, 0},
		"a panic": {func(*link) func(grpc.ServerStream) error {
			return func(grpc.ServerStream) error { panic("canary") }
		}, contract.ServerSeen, contract.Reconcile, codes.Internal, 0},
		"a lost connection": {func(l *link) func(grpc.ServerStream) error {
			return func(ss grpc.ServerStream) error {
				<-l.events.headers
				l.cutter.cut()
				return receiveOne(ss)
			}
		}, contract.ServerSeen, contract.Reconcile, codes.Unavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, setup{})
			l.warm()
			l.stream = c.stream(l)
			replies, err := l.follow(l.ctx())
			e := failed(t, err)
			assert.Equal(t, c.replies, replies)
			assert.Equal(t, c.delivery, e.Delivery)
			assert.Equal(t, c.action, e.Decision.Action)
			assert.Equal(t, c.code, status.Code(err))
			assert.NotContains(t, status.Convert(err).Message(), "canary")
			assert.EqualValues(t, 1, l.runs.Load())

			_, err = l.follow(l.ctx())
			again := failed(t, err)
			assert.ErrorIs(t, err, grpcerr.ErrNotResent)
			assert.Equal(t, e.Decision, again.Decision)
			assert.EqualValues(t, 1, l.runs.Load())
		})
	}
}

// A stream that ends well is not remembered, and its end stays io.EOF.
func TestStreamEnds(t *testing.T) {
	l := newLink(t, setup{})
	l.stream = func(ss grpc.ServerStream) error {
		return errors.Join(receiveOne(ss), ss.SendMsg(receipt(contract.ResultAccepted)))
	}
	for range 2 {
		replies, err := l.follow(l.ctx())
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, 1, replies)
	}
}

// A stream that has no connection was never sent. One whose headers went out was, without any message: its handler has begun.
func TestStreamDelivery(t *testing.T) {
	l := newLink(t, setup{})
	l.cutter.listener.Close()
	_, err := l.follow(l.ctx())
	assert.Equal(t, contract.NeverSent, failed(t, err).Delivery)

	l = newLink(t, setup{plainServer: true})
	l.warm()
	l.stream = func(ss grpc.ServerStream) error {
		l.cutter.cut()
		return nil
	}
	s, err := l.conn.NewStream(l.ctx(), feeding, feed)
	require.NoError(t, err)
	e := failed(t, s.RecvMsg(newAnswer()))
	assert.Equal(t, contract.SentUnknown, e.Delivery)
	assert.Equal(t, contract.Reconcile, e.Decision.Action)
	assert.Equal(t, e, failed(t, s.RecvMsg(newAnswer())), "the first error stays")
	assert.EqualValues(t, 1, l.runs.Load())
}

// A client stream that cannot send is over, with the same error from then on.
func TestStreamSendFails(t *testing.T) {
	l := newLink(t, setup{plainServer: true})
	l.stream = receiveOne
	s, err := l.conn.NewStream(l.ctx(), feeding, feed, grpc.MaxCallSendMsgSize(8))
	require.NoError(t, err)
	e := failed(t, s.SendMsg(operation("op")))
	assert.Equal(t, codes.ResourceExhausted, status.Code(e))
	assert.Equal(t, contract.SentUnknown, e.Delivery)
	assert.Equal(t, e, failed(t, s.RecvMsg(newAnswer())))
}

// R17, R30: each message of a stream is checked before the handler sees it, and the refusal is the stream's end.
func TestStreamChecks(t *testing.T) {
	l := newLink(t, setup{server: &grpcerr.ServerConfig{Methods: methods(), ProtocolVersions: []string{"1"}, RequireKey: true}})
	received := make(chan int, 1)
	l.stream = func(ss grpc.ServerStream) error {
		n := 0
		for receiveOne(ss) == nil {
			n++
		}
		received <- n
		assert.Error(t, receiveOne(ss))
		return nil
	}
	s, err := l.conn.NewStream(l.ctx(), feeding, feed)
	require.NoError(t, err)
	require.NoError(t, s.SendMsg(operation("op 1")))
	require.NoError(t, s.SendMsg(operation("op 2")))
	require.NoError(t, s.SendMsg(operation("")))
	err = s.RecvMsg(newAnswer())
	assert.ErrorIs(t, err, contract.ErrInvalid)
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.Equal(t, 2, <-received)
}

// R18: a message that is refused ends a stream whose handler has acted on an earlier one. That nothing was done is said of the first
// message alone, and of a read.
func TestStreamRefusedOnItsWay(t *testing.T) {
	for name, c := range map[string]struct {
		before   int // messages that pass
		readOnly bool
		want     contract.Decision
	}{
		"the first":           {0, false, contract.Decision{Action: contract.RefreshState, Effect: contract.EffectNone}},
		"the second":          {1, false, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}},
		"the third":           {2, false, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}},
		"the third of a read": {2, true, contract.Decision{Action: contract.RefreshState, Effect: contract.EffectNone}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, setup{server: &grpcerr.ServerConfig{
				Methods: contract.Methods{feed: {ReadOnly: c.readOnly}}, ProtocolVersions: []string{"1"},
			}})
			executed := 0
			l.stream = func(ss grpc.ServerStream) error {
				for receiveOne(ss) == nil {
					executed++
					if err := ss.SendMsg(receipt(contract.ResultApplied)); err != nil {
						return err
					}
				}
				return contract.ErrStale
			}
			s, err := l.conn.NewStream(l.ctx(), feeding, feed)
			require.NoError(t, err)
			for range c.before {
				require.NoError(t, s.SendMsg(operation("op")))
				require.NoError(t, s.RecvMsg(newAnswer()))
			}
			bad := operation("op")
			bad.ProtocolVersion = "2"
			require.NoError(t, s.SendMsg(bad))
			err = s.RecvMsg(newAnswer())
			assert.ErrorIs(t, err, contract.ErrUnsupportedVersion)
			assert.Equal(t, codes.FailedPrecondition, status.Code(err))
			assert.Equal(t, c.want, failed(t, err).Decision)
			assert.Equal(t, c.want.Effect == contract.EffectNone, strings.Contains(err.Error(), "nothing was done"))
			assert.Equal(t, c.before, executed)
		})
	}
}

// A handler may end while its goroutine that receives has not: the race detector finds what they share.
func TestStreamOutlivesItsHandler(t *testing.T) {
	l := newLink(t, setup{server: &grpcerr.ServerConfig{Methods: methods(), ProtocolVersions: []string{"1"}}})
	l.stream = func(ss grpc.ServerStream) error {
		got := make(chan struct{}, 5)
		go func() {
			for receiveOne(ss) == nil {
				got <- struct{}{}
			}
		}()
		<-got
		return nil
	}
	for range 50 {
		l.events.drain()
		s, err := l.conn.NewStream(l.ctx(), feeding, feed)
		require.NoError(t, err)
		for range 5 {
			_ = s.SendMsg(operation("op")) // io.EOF when the handler has ended
		}
		assert.Equal(t, io.EOF, s.RecvMsg(newAnswer()))
	}
}

// A stream of one message is opened by that message, and what is asked of it before does not open it.
func TestStreamOfOneMessage(t *testing.T) {
	l := newLink(t, setup{})
	l.stream = func(ss grpc.ServerStream) error {
		return errors.Join(receiveOne(ss), ss.SendMsg(receipt(contract.ResultAccepted)))
	}
	s, err := l.conn.NewStream(l.ctx(), following, follow)
	require.NoError(t, err)
	require.NoError(t, s.Context().Err())
	assert.Empty(t, l.events.begun)
	require.NoError(t, s.SendMsg(operation("op")))
	md, err := s.Header()
	require.NoError(t, err)
	assert.Equal(t, []string{"1"}, md.Get(grpcerr.HeaderSeen))
	require.NoError(t, s.RecvMsg(newAnswer()))
	assert.Equal(t, io.EOF, s.RecvMsg(newAnswer()))
	assert.Empty(t, s.Trailer().Get(grpcerr.TrailerCode))
	assert.Error(t, s.Context().Err())

	l.stream = func(ss grpc.ServerStream) error { return errors.Join(receiveOne(ss), contract.ErrStale) }
	_, err = l.follow(l.ctx())
	require.ErrorIs(t, err, contract.ErrStale)
	s, err = l.conn.NewStream(l.ctx(), following, follow)
	require.NoError(t, err)
	refused := s.SendMsg(operation("op"))
	assert.ErrorIs(t, refused, grpcerr.ErrNotResent)
	assert.Equal(t, refused, s.SendMsg(operation("op")))
	assert.Equal(t, refused, s.CloseSend())
	assert.Equal(t, refused, s.RecvMsg(newAnswer()))
	_, err = s.Header()
	assert.Equal(t, refused, err)
	assert.Nil(t, s.Trailer())
	assert.EqualValues(t, 2, l.runs.Load())
}

// An end of a stream that has a failure's trailers is no good end.
func TestStreamEndsWithTrailersOfFailure(t *testing.T) {
	p := newPeer(t, func(_ int, s stream) {
		s.headers(false, ":status", "200", "content-type", "application/grpc")
		s.headers(true, "grpc-status", "0", grpcerr.TrailerCode, "ABORTED")
	})
	l := dialPeer(t, p)
	_, err := l.follow(l.ctx())
	assert.ErrorIs(t, err, grpcerr.ErrEnvelopeMismatch)
}
