package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	health "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing/peer"
	"github.com/confirmexec/confirmexec/grpcerr"
	"github.com/confirmexec/confirmexec/grpcerr/identity"
)

// whoami is a service that tells who calls.
type whoami struct {
	health.UnimplementedHealthServer
}

func (whoami) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	who, ok := identity.FromContext(ctx)
	fmt.Println("the handler knows:", who.URI, ok)
	return &health.HealthCheckResponse{}, nil
}

// A handler knows who calls by the certificate of the connection. A caller of another trust domain never reaches it, although the same
// authority vouches for it.
func Example() {
	root, issue := authority()
	mutualTLS := grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{issue("spiffe://agents.example/server")},
		ClientCAs:    root, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}))
	server := grpc.NewServer(slices.Concat([]grpc.ServerOption{mutualTLS}, grpcerr.ServerOptions(nil), identity.ServerOptions(
		&identity.Config{Peer: peer.Config{TrustDomains: []string{"agents.example"}}}))...)
	health.RegisterHealthServer(server, whoami{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	for _, uri := range []string{"spiffe://agents.example/agent-7", "spiffe://other.example/agent-7"} {
		conn, err := grpc.NewClient(listener.Addr().String(), append(grpcerr.DialOptions(nil),
			grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
				Certificates: []tls.Certificate{issue(uri)}, RootCAs: root, MinVersion: tls.VersionTLS13,
			})))...)
		if err != nil {
			fmt.Println(err)
			return
		}
		_, err = health.NewHealthClient(conn).Check(context.Background(), &health.HealthCheckRequest{})
		if f, refused := contract.FailureOf(err); refused {
			fmt.Println("refused:", f.Code, f.Reason)
		}
		_ = conn.Close()
	}
	// Output:
	// the handler knows: spiffe://agents.example/agent-7 true
	// refused: UNAUTHENTICATED pramaan.agent_peer.trust_domain
}

// authority makes an authority, and returns its certificate and how it issues others.
func authority() (roots *x509.CertPool, issue func(uri string) tls.Certificate) {
	rootKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, _ := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	root, _ = x509.ParseCertificate(der)
	roots = x509.NewCertPool()
	roots.AddCert(root)
	return roots, func(uri string) tls.Certificate {
		name, _ := url.Parse(uri)
		key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2), NotBefore: root.NotBefore, NotAfter: root.NotAfter,
			URIs: []*url.URL{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		}
		der, _ := x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), rootKey)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
}
