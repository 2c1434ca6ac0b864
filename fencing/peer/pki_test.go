package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// secret stands in every certificate, and must stand in no error.
const secret = "acme-secret"

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	up   []*x509.Certificate // its own issuers, but for the root
}

// now is when the tests' certificates are valid: an hour ago until in an hour.
var now = time.Now().Truncate(time.Second)

func serial(t *testing.T) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	return n
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// newRoot makes an authority of its own.
func newRoot(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := caTemplate(t, "root")
	a.cert = sign(t, template, template, a.key, a.key)
	return a
}

func caTemplate(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	return &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: secret + " " + name},
		NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

func sign(t *testing.T, template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert
}

// intermediate makes an authority under a.
func (a *authority) intermediate(t *testing.T, notAfter time.Time) *authority {
	t.Helper()
	template := caTemplate(t, "intermediate")
	template.NotAfter = notAfter
	sub := &authority{key: newKey(t)}
	sub.cert = sign(t, template, a.cert, sub.key, a.key)
	sub.up = append([]*x509.Certificate{sub.cert}, a.up...)
	return sub
}

// leaf issues a client certificate for spiffe://agents.example/cell-3/agent-7, with changes.
func (a *authority) leaf(t *testing.T, changes ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: secret}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, URIs: uris(t, agentURI),
		DNSNames: []string{"localhost"}, BasicConstraintsValid: true,
	}
	for _, change := range changes {
		change(template)
	}
	key := newKey(t)
	cert := tls.Certificate{PrivateKey: key, Leaf: sign(t, template, a.cert, key, a.key)}
	cert.Certificate = [][]byte{cert.Leaf.Raw}
	for _, c := range a.up {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return cert
}

const agentURI = "spiffe://agents.example/cell-3/agent-7"

func uris(t *testing.T, texts ...string) (all []*url.URL) {
	t.Helper()
	for _, text := range texts {
		u, err := url.Parse(text)
		require.NoError(t, err)
		all = append(all, u)
	}
	return all
}

func withURIs(t *testing.T, texts ...string) func(*x509.Certificate) {
	t.Helper()
	all := uris(t, texts...)
	return func(c *x509.Certificate) { c.URIs = all }
}

// withRawURI names a URI as it is written, which a url.URL does not keep.
func withRawURI(t *testing.T, text string) func(*x509.Certificate) {
	t.Helper()
	const uri = 6 // of a GeneralName's choices
	names, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: uri, Bytes: []byte(text)}})
	require.NoError(t, err)
	return func(c *x509.Certificate) {
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: subjectAltName, Value: names})
	}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// dialed is what the two ends of a connection know of each other.
type dialed struct {
	server, client tls.ConnectionState
	clientErr      error
}

// serverOf is a server's configuration with a certificate of the authority.
func (a *authority) serverOf(t *testing.T, auth tls.ClientAuthType) *tls.Config {
	t.Helper()
	serverOnly := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
	own := []tls.Certificate{a.leaf(t, serverOnly)}
	return &tls.Config{Certificates: own, ClientCAs: a.pool(), ClientAuth: auth, MinVersion: tls.VersionTLS13}
}

// clientOf is a client's configuration, with a certificate or with none.
func (a *authority) clientOf(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: certs, RootCAs: a.pool(), ServerName: "localhost", MinVersion: tls.VersionTLS13}
}

// dial makes a real connection on the loopback interface, and carries a byte each way over it.
func dial(t *testing.T, server, client *tls.Config) dialed {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	require.NoError(t, err)
	defer l.Close()
	states := make(chan tls.ConnectionState, 1)
	go func() {
		defer close(states)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn, states)
	}()
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", l.Addr().String(), client)
	require.NoError(t, err, "a TLS 1.3 client learns later that it is refused")
	defer conn.Close()
	d := dialed{client: conn.ConnectionState()}
	_, _ = conn.Write([]byte{1})
	_, d.clientErr = conn.Read(make([]byte, 1))
	d.server = <-states
	return d
}

func serve(conn net.Conn, states chan<- tls.ConnectionState) {
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return
	}
	states <- conn.(*tls.Conn).ConnectionState()
	_, _ = conn.Write([]byte{1})
}
