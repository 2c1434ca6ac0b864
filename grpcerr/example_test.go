package grpcerr_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
)

// A client and a server, each with the options of this package, and three calls that fail.
func Example() {
	methods := contract.Methods{"/desk.v1.Desk/Apply": {Resend: true}, "/desk.v1.Desk/Look": {ReadOnly: true}}
	desk := &service{handle: func(_ context.Context, req *request) (*answer, error) {
		if req.GetMeta().GetOperationId() == "op-1" {
			return nil, fmt.Errorf("checking the surface: %w", contract.ErrStale)
		}
		return receipt(contract.ResultApplied), nil
	}}
	server := grpc.NewServer(grpcerr.ServerOptions(&grpcerr.ServerConfig{Methods: methods})...)
	server.RegisterService(desk.desc(), desk)
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, _ := grpc.NewClient(listener.Addr().String(), append(
		grpcerr.DialOptions(&grpcerr.ClientConfig{Methods: methods}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	defer conn.Close()

	try := func(ctx context.Context, operationID string, opts ...grpc.CallOption) {
		err := conn.Invoke(ctx, "/desk.v1.Desk/Apply", operation(operationID), newAnswer(), opts...)
		if call, ok := errors.AsType[*grpcerr.CallError](err); ok {
			fmt.Println(operationID, call.Delivery, "- next:", call.Decision.Action, "- effect:", call.Decision.Effect)
			return
		}
		fmt.Println(operationID, "applied")
	}
	ctx := context.Background()

	try(ctx, "op-1") // the server refuses it

	try(ctx, "op-2", grpc.MaxCallSendMsgSize(1)) // the request is too large to be sent
	try(ctx, "op-2")

	try(ctx, "op-3", grpc.MaxCallRecvMsgSize(1)) // the reply is too large to be received: it was applied, and nobody here knows
	try(ctx, "op-3")                             // refused by the client: it has not been queried
	try(grpcerr.WithActionDone(ctx, contract.Reconcile), "op-3")
	fmt.Println("the handler ran", desk.runs.Load(), "times") // that of op-3 twice: it is the receiver's claim that makes this one effect
	// Output:
	// op-1 answered - next: refresh_state - effect: none
	// op-2 never_sent - next: send_original - effect: none
	// op-2 applied
	// op-3 server_seen - next: reconcile - effect: unknown
	// op-3 server_seen - next: reconcile - effect: unknown
	// op-3 applied
	// the handler ran 4 times
}

// The list of methods says what may be tried again: a read is, and a mutation is sent once.
func ExampleDialOptions() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	target, creds := listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())

	methods := contract.AgentMethods("agent.v1.AgentService") // without a list every method is a mutation
	server := grpc.NewServer(grpcerr.ServerOptions(&grpcerr.ServerConfig{Methods: methods})...)
	conn, err := grpc.NewClient(target, append(grpcerr.DialOptions(&grpcerr.ClientConfig{Methods: methods}), creds)...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	go func() { _ = server.Serve(listener) }() // without its service: no call is answered as the contract wants it
	defer server.Stop()
	for _, method := range []string{"Execute", "GetAgentStatus"} {
		err := conn.Invoke(context.Background(), "/agent.v1.AgentService/"+method, operation("op-1"), newAnswer())
		if call, ok := errors.AsType[*grpcerr.CallError](err); ok {
			fmt.Println(method, "- attempts:", call.Attempts, "- next:", call.Decision.Action)
		}
	}
	// Output:
	// Execute - attempts: 1 - next: reconcile
	// GetAgentStatus - attempts: 3 - next: retry_read
}

// What an executor of the broker returns of a call decides what becomes of its item: not applied only where that is certain.
func ExampleCallError() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	listener.Close() // nobody is there
	conn, _ := grpc.NewClient(listener.Addr().String(), append(
		grpcerr.DialOptions(nil), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	defer conn.Close()
	err := conn.Invoke(context.Background(), "/desk.v1.Desk/Change", operation("op-1"), newAnswer())
	f, _ := contract.FailureOf(err)
	fmt.Println(errors.Is(err, grpcerr.ErrNotAnswered), f.KnownNoEffect())
	// Output: true true
}
