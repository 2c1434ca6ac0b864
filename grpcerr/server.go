package grpcerr

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr/internal/refusal"
)

// HeaderSeen is the response header with which a receiver says that it has begun with a mutation, before it does anything. gRPC
// never repeats a call by itself whose headers have come.
const HeaderSeen = "x-confirmexec-seen"

// pushback is the trailer with which a server forbids retries.
const pushback = "grpc-retry-pushback-ms"

// ServerConfig changes what the server's interceptors do by default. The zero value of every field is its default.
type ServerConfig struct {
	// Methods says which methods are read-only. Default: every method is a mutation.
	Methods contract.Methods

	// Codec tells the handlers' failures. Default the zero [Codec].
	Codec Codec

	// ProtocolVersions are the versions of the contract that requests may have; others are refused with
	// contract.ErrUnsupportedVersion before the handler runs (R17). Requests of methods that are not in Methods may be without
	// meta data and pass. Default: not checked.
	ProtocolVersions []string

	// RequireKey refuses mutations without an operation id or an idempotency key before the handler runs (R30), as
	// [contract.RequestMeta.ValidateMutation] does. Requests of methods that are not in Methods may be without meta data and pass.
	// Default false.
	RequireKey bool

	// Meta reads the meta data of a service's own requests; false for a request that has none. Default: what
	// GetMeta() *confirmexecv1.RequestMeta returns, for requests that have that method.
	Meta func(req any) (contract.RequestMeta, bool)

	// Receipt reads the receipt of a service's own replies, the zero one if it is missing; false for a reply that has no place for
	// one. Default: what GetReceipt() *confirmexecv1.Receipt returns, for replies that have that method.
	Receipt func(reply any) (contract.Receipt, bool)

	// Recovered is told what a handler panicked with, or an error of its when it was looked at, which no caller is told. Default:
	// nobody is told.
	Recovered func(ctx context.Context, method string, value any)
}

// ServerOptions returns what a server needs: the two interceptors; cfg may be nil. They stand before other interceptors that are
// chained after them, whose errors they convert too.
func ServerOptions(cfg *ServerConfig) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(UnaryServerInterceptor(cfg)),
		grpc.ChainStreamInterceptor(StreamServerInterceptor(cfg)),
	}
}

// UnaryServerInterceptor returns the interceptor of unary calls; cfg may be nil. It should be the first one.
//
// Every error of the handler becomes the status that [Codec.ToStatus] makes of it, a context's included, and the failure is
// repeated in plain trailers. A panic becomes INTERNAL. A mutation's reply with a receipt that is missing or cannot stand, such as
// APPLIED with a failure (R2), becomes INTERNAL as well: nobody could tell what it says.
//
// For a mutation the response headers are sent before the handler runs, with [HeaderSeen], and its errors forbid retries: no
// caller's retry policy repeats it, whoever wrote that. So a mutation's handler cannot set response headers; it has trailers.
func UnaryServerInterceptor(cfg *ServerConfig) grpc.UnaryServerInterceptor {
	s := newServer(cfg)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
		m := s.Methods.Of(info.FullMethod)
		announce := func(md metadata.MD) error { return grpc.SendHeader(ctx, md) }
		err = s.run(ctx, m, announce, func() error {
			if err := s.check(m, req); err != nil {
				return err
			}
			if reply, err = handle(ctx, req); err != nil {
				return err
			}
			return s.checkReply(m, reply)
		})
		if err != nil {
			return nil, s.tell(ctx, m, err, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
		}
		return reply, nil
	}
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams. Each message that is received is checked as a request; replies
// are not looked at. A message that is refused ends a stream; nothing was done only if the handler has got none before it, or only
// reads.
func StreamServerInterceptor(cfg *ServerConfig) grpc.StreamServerInterceptor {
	s := newServer(cfg)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		m := s.Methods.Of(info.FullMethod)
		checked := &serverStream{
			ServerStream: ss, check: func(req any) error { return s.check(m, req) }, ended: refusal.Latch{ReadOnly: m.ReadOnly},
		}
		err := s.run(ss.Context(), m, ss.SendHeader, func() error {
			err := handle(srv, checked)
			if refused := checked.ended.Err(); refused != nil {
				return refused
			}
			return err
		})
		return s.tell(ss.Context(), m, err, ss.SetTrailer)
	}
}

// serverStream checks what it receives.
type serverStream struct {
	grpc.ServerStream

	check func(req any) error
	ended refusal.Latch
}

func (s *serverStream) RecvMsg(m any) error {
	if err := s.ended.Err(); err != nil {
		return err
	}
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.ended.Add(s.check(m), false)
}

type server struct{ ServerConfig }

func newServer(cfg *ServerConfig) server {
	if cfg == nil {
		return server{}
	}
	return server{*cfg}
}

// errEnded is the refusal of a call whose caller was gone before anything was done.
var errEnded = &contract.Failure{Code: contract.Unavailable, Reason: ReasonNotAnswered, Effect: contract.EffectNone,
	Message: "the call was over before it began; nothing was done"}

// run runs a handler in its place: after the marker, and with its panics contained.
func (s server) run(ctx context.Context, m contract.Method, announce func(metadata.MD) error, handle func() error) (err error) {
	if !m.ReadOnly && announce(metadata.Pairs(HeaderSeen, "1")) != nil && ctx.Err() != nil {
		return errEnded
	}
	defer func() {
		if p := recover(); p != nil {
			err = errPanicked
			s.recovered(ctx, m, p)
		}
	}()
	return handle()
}

func (s server) recovered(ctx context.Context, m contract.Method, value any) {
	if s.Recovered != nil {
		s.Recovered(ctx, m.Name, value)
	}
}

// errPanicked and errReceipt become a bare INTERNAL: there is no failure code for them, and the effect is not known (R18).
var (
	errPanicked = errors.New("the handler panicked")
	errReceipt  = errors.New("the handler's receipt is missing or cannot stand")
)

// check refuses requests before the handler sees them.
func (s server) check(m contract.Method, req any) error {
	if len(s.ProtocolVersions) == 0 && !s.RequireKey {
		return nil
	}
	meta, ok := metaOf(s.Meta, req)
	if _, listed := s.Methods[m.Name]; !ok && !listed {
		return nil
	}
	if len(s.ProtocolVersions) > 0 {
		if err := meta.CheckVersion(s.ProtocolVersions...); err != nil {
			return err
		}
	}
	if !s.RequireKey || m.ReadOnly {
		return nil
	}
	return meta.ValidateMutation(m)
}

func (s server) checkReply(m contract.Method, reply any) error {
	if m.ReadOnly {
		return nil
	}
	if r, has := receiptOf(s.Receipt, reply); has && r.Validate() != nil {
		return errReceipt
	}
	return nil
}

// tell turns an error into the reply's status and trailers; nil stays nil.
func (s server) tell(ctx context.Context, m contract.Method, err error, setTrailer func(metadata.MD)) error {
	if err == nil {
		return nil
	}
	st, md := s.told(ctx, m, err)
	if !m.ReadOnly {
		md.Set(pushback, "-1")
	}
	if len(md) > 0 {
		setTrailer(md)
	}
	return st.Err()
}

// told is how an error is told. One that panics when somebody looks into it, as a nil pointer in an error may, or an adapter that
// does, is contained like a panic of the handler: gRPC would let it end the process.
func (s server) told(ctx context.Context, m contract.Method, err error) (st *status.Status, md metadata.MD) {
	defer func() {
		if p := recover(); p != nil {
			st, md = status.New(codes.Internal, messageInternal), metadata.MD{}
			s.recovered(ctx, m, p)
		}
	}()
	st, md = s.Codec.ToStatus(err), metadata.MD{}
	if f, ok := s.Codec.FromError(st.Err()); ok {
		md = trailerOf(f)
	}
	return st, md
}
