package grpcerr_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
)

// recorder is a codec that keeps what was received.
type recorder struct {
	encoding.CodecV2

	marshalled atomic.Int64
	mu         sync.Mutex
	received   []string
}

func (r *recorder) Marshal(v any) (mem.BufferSlice, error) {
	r.marshalled.Add(1)
	return r.CodecV2.Marshal(v)
}

func newRecorder() *recorder { return &recorder{CodecV2: encoding.GetCodecV2(proto.Name)} }

func (r *recorder) Unmarshal(data mem.BufferSlice, v any) error {
	r.mu.Lock()
	r.received = append(r.received, string(data.Materialize()))
	r.mu.Unlock()
	return r.CodecV2.Unmarshal(data, v)
}

// manyEncodings is a request whose bytes differ from one marshalling to the next, since its map has no order.
func manyEncodings(t *testing.T) *structpb.Struct {
	t.Helper()
	values := map[string]any{}
	for i := range 100 {
		values[fmt.Sprint("field ", i)] = i
	}
	s, err := structpb.NewStruct(values)
	require.NoError(t, err)
	return s
}

// failing makes reads fail so many times before they are answered.
func failing(times int64, err error) func(context.Context, int64) (*answer, error) {
	return func(_ context.Context, n int64) (*answer, error) {
		if n <= times {
			return nil, err
		}
		return receipt(contract.ResultApplied), nil
	}
}

// R107, R108: a read is repeated until it is answered, with the same bytes, the same metadata and the same trace identity.
func TestReadsAreRepeated(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var mu sync.Mutex
	var seen []metadata.MD
	wire := newRecorder()
	l := newLink(t, setup{serverOpts: []grpc.ServerOption{grpc.ForceServerCodecV2(wire)}})
	l.read = func(ctx context.Context, n int64) (*answer, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		mu.Lock()
		seen = append(seen, md)
		mu.Unlock()
		return failing(2, contract.ErrUnavailable)(ctx, n)
	}
	ctx := metadata.AppendToOutgoingContext(l.ctx(), "traceparent", trace, "x-caller", "test")
	_, err := l.call(ctx, find, manyEncodings(t))
	require.NoError(t, err)
	require.Len(t, wire.received, 3)
	require.Len(t, seen, 3)
	for i := range 3 {
		assert.Equal(t, wire.received[0], wire.received[i])
		assert.Equal(t, l.found[0], l.found[i])
		assert.Equal(t, []string{trace}, seen[i].Get("traceparent"))
		assert.Equal(t, []string{"application/grpc"}, seen[i].Get("content-type"))
		assert.Equal(t, seen[0], seen[i])
	}
}

// The attempts of a read are bounded, and its error tells how many there were.
func TestReadAttempts(t *testing.T) {
	for attempts, want := range map[int]int64{0: 3, 1: 1, 5: 5} {
		l := newLink(t, setup{client: &grpcerr.ClientConfig{Methods: methods(), ReadAttempts: attempts, ReadBackoff: time.Microsecond}})
		l.read = failing(100, contract.ErrUnavailable)
		_, err := l.call(l.ctx(), look, operation("op"))
		e := failed(t, err)
		assert.Equal(t, want, l.reads.Load())
		assert.EqualValues(t, want, e.Attempts)
		assert.Equal(t, contract.Answered, e.Delivery)
		assert.ErrorIs(t, err, contract.ErrUnavailable)
	}
}

// R107: a read is repeated only where that can change its answer, and nothing but a listed read is.
func TestWhatIsNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		err    error
	}{
		"a read that was not found":       {look, contract.ErrNotMinted},
		"a read that was denied":          {look, contract.ErrDenied},
		"a bare refusal of a read":        {look, status.Error(codes.NotFound, "no such thing")},
		"a mutation":                      {apply, contract.ErrUnavailable},
		"a mutation, and nothing is told": {apply, status.Error(codes.Unavailable, "busy")},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, setup{})
			l.read = failing(100, c.err)
			l.answers(c.err)
			_, err := l.call(l.ctx(), c.method, operation("op"))
			assert.Equal(t, 1, failed(t, err).Attempts)
			assert.EqualValues(t, 1, l.reads.Load()+l.runs.Load())
		})
	}
	l := newLink(t, setup{client: &grpcerr.ClientConfig{}})
	l.read = failing(100, contract.ErrUnavailable)
	_, err := l.call(l.ctx(), look, operation("op"))
	assert.Equal(t, contract.Reconcile, failed(t, err).Decision.Action, "a method that is not listed is a mutation")
	assert.EqualValues(t, 1, l.reads.Load())
}

// soon is a context whose deadline is always near and never over.
type soon struct{ context.Context }

func (soon) Deadline() (time.Time, bool) { return time.Now().Add(900 * time.Millisecond), true }

// A read is over with its context, and when the next pause, which is at most two seconds, would outlast the deadline.
func TestReadsEndWithTheContext(t *testing.T) {
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled":             context.WithCancel,
		"the pause is too long": func(ctx context.Context) (context.Context, context.CancelFunc) { return soon{ctx}, func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, setup{client: &grpcerr.ClientConfig{Methods: methods(), ReadBackoff: 1000 * time.Hour}})
			l.warm()
			ctx, cancel := end(t.Context())
			l.read = func(context.Context, int64) (*answer, error) {
				cancel()
				return nil, contract.ErrUnavailable
			}
			_, err := l.call(ctx, look, operation("op"))
			require.Error(t, err)
			assert.EqualValues(t, 2, l.reads.Load(), "one beside the warm-up")
		})
	}
}

// A pause ends with the context too, and the answer is what the attempt before it was told.
func TestPauseEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	after := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		defer cancel()
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	l := newLink(t, setup{
		client:   &grpcerr.ClientConfig{Methods: methods(), ReadBackoff: 1000 * time.Hour},
		dialOpts: []grpc.DialOption{grpc.WithChainUnaryInterceptor(after)},
	})
	l.read = failing(100, contract.ErrUnavailable)
	_, err := l.call(ctx, look, operation("op"))
	assert.ErrorIs(t, err, contract.ErrUnavailable)
	assert.EqualValues(t, 1, l.reads.Load())
}

// Where the caller has chosen a codec, a read is repeated with that codec if that can be, and else not at all.
func TestReadsWithAnotherCodec(t *testing.T) {
	own := newRecorder()
	for name, c := range map[string]struct {
		opt   grpc.CallOption
		reads int64
	}{
		"as CodecV2":   {grpc.ForceCodecV2(own), 3},
		"by its name":  {grpc.CallContentSubtype("proto"), 1},
		"as no matter": {grpc.EmptyCallOption{}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, setup{})
			l.read = failing(100, contract.ErrUnavailable)
			_, err := l.call(l.ctx(), look, operation("op"), c.opt)
			assert.ErrorIs(t, err, contract.ErrUnavailable)
			assert.Equal(t, c.reads, l.reads.Load())
		})
	}
	assert.EqualValues(t, 1, own.marshalled.Load())
}

// A read has no effect, and its error proves nothing about what its caller did before: an executor that returns it leaves its item
// ambiguous.
func TestReadErrorsProveNothing(t *testing.T) {
	l := newLink(t, setup{})
	l.read = failing(100, contract.ErrNotMinted)
	_, err := l.call(l.ctx(), look, operation("op"))
	assert.Equal(t, contract.EffectNone, failed(t, err).Decision.Effect)
	f, ok := contract.FailureOf(err)
	require.True(t, ok)
	assert.False(t, f.KnownNoEffect())
}
