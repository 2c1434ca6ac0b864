package grpcerr

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/confirmexec/confirmexec/contract"
)

const maxReadBackoff = 2 * time.Second

// read calls a read-only method until it is answered, within the attempts and the time that there are (R107). Every attempt has the
// caller's context, and with it the same outgoing metadata, and the same bytes (R108).
func (g *Guard) read(
	ctx context.Context, m contract.Method, opts []grpc.CallOption, once func(*flight, []grpc.CallOption) *CallError,
) *CallError {
	attempts := g.cfg.ReadAttempts
	if attempts > 1 {
		fixed, ok := sameBytes(opts)
		if !ok {
			attempts = 1
		}
		opts = fixed
	}
	begun, transparent := 0, 0
	for n := 1; ; n++ {
		e := once(g.flight(m), opts)
		if e == nil {
			return nil
		}
		e.Attempts, e.Transparent = e.Attempts+begun, e.Transparent+transparent
		begun, transparent = e.Attempts, e.Transparent
		if n >= attempts || e.why == ErrSetup || e.Decision.Action != contract.RetryRead || !pause(ctx, g.cfg.ReadBackoff, n) {
			return e
		}
	}
}

// pause waits after the nth attempt; false when the context is over, or would be before the pause is.
func pause(ctx context.Context, first time.Duration, n int) bool {
	d := min(first<<min(n-1, 16), maxReadBackoff)
	d = d/2 + rand.N(d/2+1) //nolint:gosec // not a secret
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// sameBytes returns the options with a codec that marshals once: a message with maps has many encodings. It is false where the
// caller has chosen a codec in a way that this cannot keep.
func sameBytes(opts []grpc.CallOption) ([]grpc.CallOption, bool) {
	codec := encoding.GetCodecV2(proto.Name)
	var name string // none: the content type stays what it is without a codec that is chosen
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.ForceCodecV2CallOption:
			codec, name = o.CodecV2, o.CodecV2.Name()
		case grpc.ForceCodecCallOption, grpc.CustomCodecCallOption, grpc.ContentSubtypeCallOption:
			return opts, false
		}
	}
	return append(slices.Clip(opts), grpc.ForceCodecV2(&onceCodec{CodecV2: codec, name: name})), true
}

// onceCodec gives the bytes of the first message for every message: those of one unary request.
type onceCodec struct {
	encoding.CodecV2

	name string
	once sync.Once
	data []byte
	err  error
}

func (c *onceCodec) Name() string { return c.name }

func (c *onceCodec) Marshal(v any) (mem.BufferSlice, error) {
	c.once.Do(func() {
		var data mem.BufferSlice
		if data, c.err = c.CodecV2.Marshal(v); c.err == nil {
			c.data = data.Materialize()
			data.Free()
		}
	})
	return mem.BufferSlice{mem.SliceBuffer(c.data)}, c.err
}
