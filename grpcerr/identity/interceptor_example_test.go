package identity_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
	"github.com/confirmexec/confirmexec/grpcerr/identity"
)

// A service with interceptors of its own chains them itself: grpcerr's first, which tell every refusal, and identity's next. This server
// was set up without TLS, and so lets nobody in.
func ExampleUnaryServerInterceptor() {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpcerr.UnaryServerInterceptor(nil), identity.UnaryServerInterceptor(nil)),
		grpc.ChainStreamInterceptor(grpcerr.StreamServerInterceptor(nil), identity.StreamServerInterceptor(nil)))
	health.RegisterHealthServer(server, &health.UnimplementedHealthServer{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(),
		append(grpcerr.DialOptions(nil), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()

	client := health.NewHealthClient(conn)
	_, err = client.Check(context.Background(), &health.HealthCheckRequest{})
	f, _ := contract.FailureOf(err)
	fmt.Println(f)
	stream, err := client.Watch(context.Background(), &health.HealthCheckRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	f, _ = contract.FailureOf(err)
	fmt.Println(f)
	// Output:
	// UNAUTHENTICATED: pramaan.agent_peer.unverified: the connection has no verified client certificate; nothing was done; connect with another certificate
	// UNAUTHENTICATED: pramaan.agent_peer.unverified: the connection has no verified client certificate; nothing was done; connect with another certificate
}
