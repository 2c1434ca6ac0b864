package grpcerr_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// What a server's interceptor does with a handler's error, and what the caller reads of it. The cause stays where it is.
func ExampleToStatus() {
	err := fmt.Errorf("firm-a: %w", contract.ErrStale)
	s := grpcerr.ToStatus(err)
	fmt.Println(s.Code(), "-", s.Message())
	f, ok := grpcerr.FromError(s.Err())
	fmt.Println(ok, f.Code, f.Reason, "- nothing happened:", f.KnownNoEffect())
	// Output:
	// FailedPrecondition - the surface has changed since the proposal; nothing was done; cancel the key, and propose again from the surface as it is now
	// true FAILED_PRECONDITION pramaan.agent_operation.stale - nothing happened: true
}

// A status that some library or proxy made holds no failure, whatever its code is.
func ExampleFromError() {
	_, ok := grpcerr.FromError(status.Error(codes.FailedPrecondition, "from somewhere on the way"))
	fmt.Println(ok)
	f, ok := grpcerr.FromError(grpcerr.ToStatus(contract.ErrInProgress).Err())
	fmt.Println(ok, f.Code)
	// Output:
	// false
	// true ALREADY_EXISTS
}

// A bare code is worth a word to a person, and never proves that nothing happened.
func ExampleBareFailure() {
	f, ok := grpcerr.BareFailure(status.Error(codes.Aborted, "conflict"))
	fmt.Println(ok, f.Code, f.Reason, "- nothing happened:", f.KnownNoEffect())
	_, ok = grpcerr.BareFailure(status.Error(codes.Unavailable, "connection reset")) // any library makes that
	fmt.Println(ok)
	// Output:
	// true ABORTED pramaan.agent_operation.bare_code - nothing happened: false
	// false
}

// A service that puts failures into messages of its own converts them: the cause stays behind.
func ExampleFailureToProto() {
	sent := grpcerr.FailureToProto(contract.ErrStale.With(errors.New("row 17 of firm-a")))
	fmt.Println(sent.GetCode(), sent.GetReason())
	read := grpcerr.FailureFromProto(sent)
	fmt.Println(errors.Is(read, contract.ErrStale), errors.Unwrap(read))
	// Output:
	// FAILURE_CODE_FAILED_PRECONDITION pramaan.agent_operation.stale
	// true <nil>
}

// A code of a later version is none that is known, and so proves nothing.
func ExampleFailureFromProto() {
	f := grpcerr.FailureFromProto(&pb.Failure{Code: 99, Effect: pb.Effect_EFFECT_NONE})
	fmt.Printf("%q nothing happened: %t\n", f.Code, f.KnownNoEffect())
	// Output: "99" nothing happened: false
}

func ExampleReceiptToProto() {
	sent := grpcerr.ReceiptToProto(contract.Receipt{
		Result: contract.ResultApplied, Method: "/desk.v1.Desk/Apply", OperationID: "op-1", Ref: "thing/1",
	})
	fmt.Println(sent.GetResult(), sent.GetOperationId(), sent.GetRef())
	// Output: RESULT_CODE_APPLIED op-1 thing/1
}

// A reply without a receipt is no success, although the transport's status is OK.
func ExampleReceiptFromProto() {
	r, err := grpcerr.ReceiptFromProto(grpcerr.ReceiptToProto(contract.Receipt{
		Result: contract.ResultApplied, Method: "/desk.v1.Desk/Apply", OperationID: "op-1", Ref: "thing/1",
	}))
	fmt.Println(r.Result, r.Ref, err)
	_, err = grpcerr.ReceiptFromProto(nil)
	fmt.Println(errors.Is(err, contract.ErrOutcomeUnknown))
	// Output:
	// APPLIED thing/1 <nil>
	// true
}

// The meta data of a request, there and back. A handler checks it: nothing else does.
func ExampleMetaToProto() {
	sent := grpcerr.MetaToProto(contract.RequestMeta{ProtocolVersion: "1", OperationID: "op-1"})
	m := grpcerr.MetaFromProto(sent)
	fmt.Println(m.OperationID, m.CheckVersion("1"))
	fmt.Println(m.ValidateMutation(contract.Method{Name: "/desk.v1.Desk/Apply"}))
	// Output:
	// op-1 <nil>
	// INVALID_ARGUMENT: /meta/idempotency_key: must not be empty
}

// serving makes a connection to a server, with a client's options.
func serving(server *grpc.Server, opts ...grpc.DialOption) (conn *grpc.ClientConn, end func()) {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() { _ = server.Serve(listener) }()
	conn, _ = grpc.NewClient(listener.Addr().String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	return conn, func() {
		_ = conn.Close()
		server.Stop()
	}
}

// One guard for all connections to a receiver: an operation whose reply was lost on one is not sent again on another.
func ExampleNewGuard() {
	desk := &service{}
	server := grpc.NewServer(grpcerr.ServerOptions(nil)...)
	server.RegisterService(desk.desc(), desk)
	guard := grpcerr.NewGuard(&grpcerr.ClientConfig{Methods: contract.Methods{"/desk.v1.Desk/Change": {}}})
	conn, end := serving(server, guard.DialOptions()...)
	defer end()
	second, _ := grpc.NewClient(conn.Target(), append(guard.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	defer second.Close()

	change := func(conn *grpc.ClientConn, opts ...grpc.CallOption) {
		err := conn.Invoke(context.Background(), "/desk.v1.Desk/Change", operation("op-1"), newAnswer(), opts...)
		if call, ok := errors.AsType[*grpcerr.CallError](err); ok {
			fmt.Println("next:", call.Decision.Action, "- effect:", call.Decision.Effect)
		}
	}
	change(conn, grpc.MaxCallRecvMsgSize(1)) // the reply is too large to be received
	change(second)                           // refused by the guard
	fmt.Println("the handler ran", desk.runs.Load(), "time")
	// Output:
	// next: reconcile - effect: unknown
	// next: reconcile - effect: unknown
	// the handler ran 1 time
}

// A server with interceptors of its own chains these first: they tell the errors of those that come after them too.
func ExampleUnaryServerInterceptor() {
	denied := func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return nil, contract.ErrDenied
	}
	desk := &service{stream: func(grpc.ServerStream) error { return contract.ErrStale }}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcerr.UnaryServerInterceptor(nil), denied),
		grpc.ChainStreamInterceptor(grpcerr.StreamServerInterceptor(nil)))
	server.RegisterService(desk.desc(), desk)
	conn, end := serving(server, grpcerr.DialOptions(nil)...)
	defer end()

	err := conn.Invoke(context.Background(), "/desk.v1.Desk/Change", operation("op-1"), newAnswer())
	f, _ := contract.FailureOf(err)
	fmt.Println(f.Code, f.Reason)
	stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, "/desk.v1.Desk/Follow")
	if err == nil {
		_ = stream.SendMsg(operation("op-2"))
		_ = stream.CloseSend()
		err = stream.RecvMsg(newAnswer())
	}
	f, _ = contract.FailureOf(err)
	fmt.Println(f.Code, f.Reason)
	// Output:
	// PERMISSION_DENIED pramaan.agent_operation.denied
	// FAILED_PRECONDITION pramaan.agent_operation.stale
}
