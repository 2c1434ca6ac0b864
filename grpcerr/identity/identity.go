// Package identity tells a gRPC handler who is calling, by the certificate that the connection's handshake verified (R114, R115):
//
//	grpc.NewServer(append(grpcerr.ServerOptions(cfg), identity.ServerOptions(nil)...)...)
//	...
//	who, _ := identity.FromContext(ctx)
//	fence, err := space.Hold(ctx, st.Values(tx), fencing.SessionIs(fencing.CallerOf(who.URI, meta)))
//
// It asks again for every call, and for every message of a stream: a connection outlives the certificate that it was made with.
// Nothing that a request or its metadata says is looked at. Its refusals are failures, which package grpcerr's interceptors before
// it tell the caller.
//
// That somebody is who he is says nothing about what he may do, nor whether his session is the current one: only a check in the
// transaction that writes does (package fencing).
package identity

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/confirmexec/confirmexec/fencing/peer"
	"github.com/confirmexec/confirmexec/grpcerr/internal/refusal"
)

// Config changes what the interceptors do by default. The zero value of every field is its default.
type Config struct {
	// Peer is what a certificate must be like. Default the zero peer.Config.
	Peer peer.Config

	// Admit may refuse a caller early, for example one that nobody approved, before the handler runs and for every message of a
	// stream. It must not be the only check: what it saw may have changed when the handler writes. Default: nobody is refused.
	Admit func(ctx context.Context, method string, who peer.Identity) error

	// Now is the clock that certificates are judged by. Default time.Now.
	Now func() time.Time
}

type contextKey struct{}

// FromContext returns who calls; false for a call that did not come through the interceptors.
func FromContext(ctx context.Context) (peer.Identity, bool) {
	who, ok := ctx.Value(contextKey{}).(peer.Identity)
	return who, ok
}

// ServerOptions returns both interceptors; cfg may be nil. They come after those of package grpcerr.
func ServerOptions(cfg *Config) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(UnaryServerInterceptor(cfg)), grpc.ChainStreamInterceptor(StreamServerInterceptor(cfg)),
	}
}

// UnaryServerInterceptor returns the interceptor of unary calls; cfg may be nil. A call over a connection without a verified client
// certificate, or with one that does not do, never reaches its handler: the error is one of package peer's, UNAUTHENTICATED.
func UnaryServerInterceptor(cfg *Config) grpc.UnaryServerInterceptor {
	c := newConfig(cfg)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		ctx, err := c.identify(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		return handle(ctx, req)
	}
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams: it asks when the stream begins and for every message that is
// received or sent. A refusal that comes when the handler has got a message, or sends one, does not say that nothing was done: its
// effect is unknown. What the caller of a read does next does not depend on that.
func StreamServerInterceptor(cfg *Config) grpc.StreamServerInterceptor {
	c := newConfig(cfg)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, err := c.identify(ss.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		s := &stream{ServerStream: ss, ctx: ctx, check: func() error {
			_, err := c.identify(ctx, info.FullMethod)
			return err
		}}
		err = handle(srv, s)
		if refused := s.ended.Err(); refused != nil {
			return refused
		}
		return err
	}
}

// stream asks who calls for each of its messages.
type stream struct {
	grpc.ServerStream

	ctx   context.Context //nolint:containedctx // the stream's own, which is how its handler gets one
	check func() error
	ended refusal.Latch
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.ask(false)
}

func (s *stream) SendMsg(m any) error {
	if err := s.ask(true); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *stream) ask(sending bool) error {
	refused := s.ended.Err()
	if refused == nil {
		refused = s.check()
	}
	return s.ended.Add(refused, sending)
}

type config struct{ Config }

func newConfig(cfg *Config) config {
	var c config
	if cfg != nil {
		c.Config = *cfg
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// identify returns ctx with who calls in it.
func (c config) identify(ctx context.Context, method string) (context.Context, error) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil, peer.ErrUnverified
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return nil, peer.ErrUnverified
	}
	who, err := peer.IdentityOf(info.State, c.Now(), &c.Peer)
	if err != nil {
		return nil, err
	}
	if c.Admit != nil {
		if err := c.Admit(ctx, method, who); err != nil {
			return nil, err
		}
	}
	return context.WithValue(ctx, contextKey{}, who), nil
}
