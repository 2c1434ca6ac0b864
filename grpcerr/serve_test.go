package grpcerr

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
)

// codecService is a gRPC server behind TCP and TLS whose one method answers as the test says.
type codecService struct {
	answer func(ctx context.Context) error
	runs   int
}

const codecMethod = "/codec.v1.Codec/Do"

func (s *codecService) handle(ctx context.Context, decode func(any) error) (any, error) {
	if err := decode(&emptypb.Empty{}); err != nil {
		return nil, err
	}
	s.runs++
	return &emptypb.Empty{}, s.answer(ctx)
}

// serveCodec starts the server and returns a client of it.
func serveCodec(t *testing.T, s *codecService, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cert, pool := certificate(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "codec.v1.Codec", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Do",
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return s.handle(ctx, decode)
			},
		}},
	}, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	opts = append(opts, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13})))
	conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
	return conn
}

// call makes one call and returns its error and trailers.
func call(t *testing.T, conn *grpc.ClientConn) (error, metadata.MD) { //nolint:staticcheck // as the codec takes them
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var trailer metadata.MD
	err := conn.Invoke(ctx, codecMethod, &emptypb.Empty{}, &emptypb.Empty{}, grpc.Trailer(&trailer))
	return err, trailer
}

// certificate is one for 127.0.0.1 that signs itself.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: parsed}, pool
}
