package grpcerr_test

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// The service of the tests: a desk where things are changed and looked at.
const (
	desk   = "/desk.v1.Desk/"
	change = desk + "Change" // a mutation that is never sent again
	apply  = desk + "Apply"  // a mutation that may be sent again once an action is done
	redo   = desk + "Redo"   // one that is processed on every delivery
	look   = desk + "Look"   // a read
	find   = desk + "Find"   // a read whose request has many encodings
	follow = desk + "Follow" // a mutation that is answered by a stream
	feed   = desk + "Feed"   // a mutation of many messages in both directions
	absent = desk + "Absent" // the server does not have it
)

func methods() contract.Methods {
	return contract.Methods{
		change: {}, apply: {Resend: true}, redo: {Resend: true, Redelivered: true}, look: {ReadOnly: true}, find: {ReadOnly: true},
		follow: {}, feed: {}, absent: {},
	}
}

// request and answer have the bytes of a RequestMeta and of a Receipt, and the methods of messages that contain one.
type request struct{ *pb.RequestMeta }

func (r *request) GetMeta() *pb.RequestMeta { return r.RequestMeta }

type answer struct{ *pb.Receipt }

func (a *answer) GetReceipt() *pb.Receipt { return a.Receipt }

func newAnswer() *answer { return &answer{&pb.Receipt{}} }

// operation is a request that asks for the same change every time.
func operation(id string) *request {
	return &request{grpcerr.MetaToProto(contract.RequestMeta{
		ProtocolVersion: "1", OperationID: id, IdempotencyKey: "key of " + id, AgentID: "agent 7", CellID: "cell 1",
		BootID: "boot 1", SessionGeneration: 4, DispatcherEpoch: "epoch 1",
	})}
}

// receipt is the answer of a result, with what it needs to stand.
func receipt(result contract.ResultCode) *answer {
	return &answer{grpcerr.ReceiptToProto(contract.Receipt{Result: result, Method: change, OperationID: "op", Ref: "thing/1"})}
}

// service answers as a test says, and counts.
type service struct {
	runs  atomic.Int64 // mutations whose handler ran
	reads atomic.Int64

	handle func(ctx context.Context, req *request) (*answer, error) // of mutations; nil: APPLIED
	read   func(ctx context.Context, n int64) (*answer, error)      // of reads; nil: APPLIED
	stream func(ss grpc.ServerStream) error

	mu    sync.Mutex
	found []map[string]any
}

func (s *service) mutate(ctx context.Context, req *request) (any, error) {
	s.runs.Add(1)
	if s.handle == nil {
		return receipt(contract.ResultApplied), nil
	}
	a, err := s.handle(ctx, req)
	if a == nil {
		return nil, err
	}
	return a, err
}

func (s *service) query(ctx context.Context, req any) (any, error) {
	if values, ok := req.(*structpb.Struct); ok {
		s.mu.Lock()
		s.found = append(s.found, values.AsMap())
		s.mu.Unlock()
	}
	n := s.reads.Add(1)
	if s.read == nil {
		return receipt(contract.ResultApplied), nil
	}
	a, err := s.read(ctx, n)
	if a == nil {
		return nil, err
	}
	return a, err
}

func (s *service) follow(_ any, ss grpc.ServerStream) error {
	s.runs.Add(1)
	return s.stream(ss)
}

func (s *service) desc() *grpc.ServiceDesc {
	mutation := func(name string) grpc.MethodDesc {
		return unary(name, func() any { return &request{&pb.RequestMeta{}} }, func(ctx context.Context, req any) (any, error) {
			return s.mutate(ctx, req.(*request))
		})
	}
	return &grpc.ServiceDesc{
		ServiceName: "desk.v1.Desk", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			mutation("Change"), mutation("Apply"), mutation("Redo"),
			unary("Look", func() any { return &request{&pb.RequestMeta{}} }, s.query),
			unary("Find", func() any { return &structpb.Struct{} }, s.query),
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "Follow", Handler: s.follow, ServerStreams: true},
			{StreamName: "Feed", Handler: s.follow, ServerStreams: true, ClientStreams: true},
		},
	}
}

// unary is what the code generator writes.
func unary(name string, empty func() any, handle func(context.Context, any) (any, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(
		srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (any, error) {
		req := empty()
		if err := decode(req); err != nil {
			return nil, err
		}
		if interceptor == nil {
			return handle(ctx, req)
		}
		return interceptor(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: desk + name}, handle)
	}}
}
