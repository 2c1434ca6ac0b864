package grpcerr

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// StreamClientInterceptor is [Guard.UnaryClientInterceptor] for streams. Every error of a stream but io.EOF is of type *[CallError],
// and all later ones are the first one again. A stream is never retried. Since its handler begins with the headers, it counts as
// sent when they are, not only when a message is.
//
// The operation of a mutation is remembered where the client sends one message; such a stream is opened by its SendMsg. Which
// messages of a stream with several were executed is not for the transport to say.
func (g *Guard) StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, name string, open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		f := g.flight(g.cfg.Methods.Of(name))
		f.evidence.stream = true
		ctx, cancel := context.WithCancel(ctx)
		s := &clientStream{flight: f, ctx: ctx, cancel: cancel, desc: desc}
		s.open = func() (grpc.ClientStream, error) {
			if err := f.keep(ctx, cc); err != nil {
				return nil, err
			}
			return open(f.observe(ctx), desc, cc, name, g.probed(f.evidence, opts)...)
		}
		if s.single() {
			return s, nil
		}
		if _, err := s.stream(); err != nil {
			return nil, s.fail(err)
		}
		return s, nil
	}
}

type clientStream struct {
	flight *flight
	desc   *grpc.StreamDesc
	ctx    context.Context //nolint:containedctx // it is the stream's
	cancel context.CancelFunc

	opening sync.Mutex
	open    func() (grpc.ClientStream, error) // nil: it was called
	inner   grpc.ClientStream
	failed  error

	mu    sync.Mutex
	ended bool
	first *CallError // how the stream ended
}

// single says whether the stream is a mutation with one message, which may be refused: nothing of it goes out before that.
func (s *clientStream) single() bool { return !s.desc.ClientStreams && !s.flight.method.ReadOnly }

// stream opens the stream, once.
func (s *clientStream) stream() (grpc.ClientStream, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.open != nil {
		s.inner, s.failed = s.open()
		s.open = nil
	}
	return s.inner, s.failed
}

// SendMsg sends a message, or refuses an operation that may not be sent.
func (s *clientStream) SendMsg(m any) error {
	if s.single() {
		if refused := s.admit(m); refused != nil {
			return refused
		}
	}
	inner, err := s.stream()
	if err == nil {
		err = inner.SendMsg(m)
	}
	return s.seen(err)
}

func (s *clientStream) admit(m any) *CallError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return s.first
	}
	if refused := s.flight.admit(s.ctx, m); refused != nil {
		s.ended, s.first = true, refused
		s.cancel()
	}
	return s.first
}

// RecvMsg receives a message.
func (s *clientStream) RecvMsg(m any) error {
	inner, err := s.stream()
	if err == nil {
		err = inner.RecvMsg(m)
	}
	switch {
	case err == nil && s.desc.ServerStreams:
		return nil
	case errors.Is(err, io.EOF): // the end of a stream of replies
		if e := s.end(nil, nil); e != nil {
			return e
		}
		return io.EOF
	}
	return asError(s.end(err, m))
}

// Header returns the headers, or how the stream ended.
func (s *clientStream) Header() (md metadata.MD, err error) {
	inner, err := s.stream()
	if err == nil {
		md, err = inner.Header()
	}
	return md, s.seen(err)
}

// Trailer returns the trailers, when the stream has ended.
func (s *clientStream) Trailer() metadata.MD {
	if inner, err := s.stream(); err == nil {
		return inner.Trailer()
	}
	return nil
}

// Context returns the stream's context.
func (s *clientStream) Context() context.Context {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.inner != nil {
		return s.inner.Context()
	}
	return s.ctx
}

// CloseSend closes the way to the server.
func (s *clientStream) CloseSend() error {
	inner, err := s.stream()
	if err == nil {
		err = inner.CloseSend()
	}
	return s.seen(err)
}

// seen passes what does not end the stream: nothing, and io.EOF, after which RecvMsg tells the error.
func (s *clientStream) seen(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return s.fail(err)
}

func (s *clientStream) fail(err error) error { return asError(s.end(err, nil)) }

// end enters how the stream ended, once.
func (s *clientStream) end(err error, reply any) *CallError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended, s.first = true, s.flight.end(err, reply)
		s.cancel()
	}
	return s.first
}
