package peer_test

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
	"time"

	"github.com/confirmexec/confirmexec/fencing/peer"
)

// A server asks who is at the other end of a connection: whoever the verified certificate names, if its trust domain is known.
func ExampleIdentityOf() {
	agent, roots, err := certificate("spiffe://agents.example/agent-7")
	if err != nil {
		fmt.Println(err)
		return
	}
	state, err := handshake(agent, roots)
	if err != nil {
		fmt.Println(err)
		return
	}

	who, err := peer.IdentityOf(state, time.Now(), &peer.Config{TrustDomains: []string{"agents.example"}})
	fmt.Println(who.URI, err)
	_, err = peer.IdentityOf(state, time.Now(), &peer.Config{TrustDomains: []string{"desk.example"}})
	fmt.Println(err)
	_, err = peer.IdentityOf(state, who.NotAfter.Add(time.Second), nil) // the connection outlives its certificate
	fmt.Println(err)
	// Output:
	// spiffe://agents.example/agent-7 <nil>
	// UNAUTHENTICATED: pramaan.agent_peer.trust_domain: the client certificate is of another trust domain; nothing was done; connect with another certificate
	// UNAUTHENTICATED: pramaan.agent_peer.expired: the client certificate has expired; nothing was done; connect with another certificate
}

// certificate makes an authority and a certificate of it for the URI, for both ends of a connection.
func certificate(uri string) (cert tls.Certificate, roots *x509.CertPool, err error) {
	name, err := url.Parse(uri)
	if err != nil {
		return cert, nil, err
	}
	rootKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		URIs: []*url.URL{name}, DNSNames: []string{"localhost"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, rootKey.Public(), rootKey)
	if err != nil {
		return cert, nil, err
	}
	if root, err = x509.ParseCertificate(rootDER); err != nil {
		return cert, nil, err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), rootKey)
	if err != nil {
		return cert, nil, err
	}
	roots = x509.NewCertPool()
	roots.AddCert(root)
	return tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key}, roots, nil
}

// handshake makes a connection with the certificate at both ends, and returns what the server knows of it.
func handshake(cert tls.Certificate, roots *x509.CertPool) (tls.ConnectionState, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	serverEnd, clientEnd := net.Pipe()
	defer serverEnd.Close()
	defer clientEnd.Close()
	client := tls.Client(clientEnd, &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13,
	})
	go func() { _ = client.HandshakeContext(ctx) }()
	server := tls.Server(serverEnd, &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})
	err := server.HandshakeContext(ctx)
	return server.ConnectionState(), err
}
