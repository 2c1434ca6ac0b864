package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing/peer"
	"github.com/confirmexec/confirmexec/grpcerr"
	"github.com/confirmexec/confirmexec/grpcerr/identity"
)

const (
	unary     = "/test.v1.WhoService/Who"
	streaming = "/test.v1.WhoService/Talk"
)

// who is a service that tells who called.
type who struct {
	calls atomic.Int32
	began func()                        // before its handler receives; nil: nothing
	wrote func()                        // before its handler answers; nil: nothing
	talk  func(grpc.ServerStream) error // instead of its handler
}

func (w *who) desc() *grpc.ServiceDesc {
	tell := func(ctx context.Context) *wrapperspb.StringValue {
		id, _ := identity.FromContext(ctx)
		return wrapperspb.String(id.URI)
	}
	return &grpc.ServiceDesc{
		ServiceName: "test.v1.WhoService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Who", Handler: func(_ any, ctx context.Context, dec func(any) error,
			in grpc.UnaryServerInterceptor,
		) (any, error) {
			req := new(wrapperspb.StringValue)
			if err := dec(req); err != nil {
				return nil, err
			}
			return in(ctx, req, &grpc.UnaryServerInfo{FullMethod: unary}, func(ctx context.Context, _ any) (any, error) {
				w.calls.Add(1)
				return tell(ctx), nil
			})
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			if w.talk != nil {
				return w.talk(s)
			}
			for {
				if w.began != nil {
					w.began()
				}
				if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
					return nil //nolint:nilerr // a handler that swallows the refusal
				}
				w.calls.Add(1)
				if w.wrote != nil {
					w.wrote()
				}
				if err := s.SendMsg(tell(s.Context())); err != nil {
					return err
				}
			}
		}}},
	}
}

type pki struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{t: t, pool: x509.NewCertPool()}
	p.cert, p.key = p.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	p.pool.AddCert(p.cert)
	return p
}

func (p *pki) sign(c, by *x509.Certificate, with *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(p.t, err)
	if by == nil {
		by, with = c, key
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), with)
	require.NoError(p.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(p.t, err)
	return cert, key
}

func (p *pki) leaf(uris ...string) tls.Certificate {
	p.t.Helper()
	template := &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, text := range uris {
		u, err := url.Parse(text)
		require.NoError(p.t, err)
		template.URIs = append(template.URIs, u)
	}
	cert, key := p.sign(template, p.cert, p.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// serve starts the service and returns how to reach it.
func serve(t *testing.T, w *who, creds credentials.TransportCredentials, cfg *identity.Config) (dial func(credentials.TransportCredentials) *grpc.ClientConn) {
	t.Helper()
	options := append(grpcerr.ServerOptions(nil), identity.ServerOptions(cfg)...)
	s := grpc.NewServer(append(options, grpc.Creds(creds))...)
	s.RegisterService(w.desc(), nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return func(creds credentials.TransportCredentials) *grpc.ClientConn {
		conn, err := grpc.NewClient(l.Addr().String(), append(grpcerr.DialOptions(nil), grpc.WithTransportCredentials(creds))...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

func ask(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	reply := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, unary, wrapperspb.String(""), reply)
	return reply.Value, err
}

func (p *pki) server(auth tls.ClientAuthType) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{p.leaf()}, ClientCAs: p.pool, ClientAuth: auth, MinVersion: tls.VersionTLS13,
	})
}

func (p *pki) client(certs ...tls.Certificate) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{Certificates: certs, RootCAs: p.pool, MinVersion: tls.VersionTLS13})
}

// refusedAs requires that the peer refused as want does, and that no handler ran.
func refusedAs(t *testing.T, w *who, want *contract.Failure, err error) {
	t.Helper()
	f, ok := contract.FailureOf(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, contract.Unauthenticated, f.Code)
	assert.Equal(t, want.Reason, f.Reason)
	assert.True(t, f.KnownNoEffect())
	assert.Zero(t, w.calls.Load())
}

const uri = "spiffe://agents.test/agent-1"

// R114, R115: a caller is who its verified certificate says, and not who it says itself.
func TestCallerIsItsCertificate(t *testing.T) {
	p, w := newPKI(t), new(who)
	dial := serve(t, w, p.server(tls.RequireAndVerifyClientCert), nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-client-cert", "URI=spiffe://agents.test/other", "agent_id", "other")
	got, err := ask(ctx, dial(p.client(p.leaf(uri))))
	require.NoError(t, err)
	assert.Equal(t, uri, got)
	stream, err := dial(p.client(p.leaf(uri))).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streaming)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(wrapperspb.String("")))
	reply := new(wrapperspb.StringValue)
	require.NoError(t, stream.RecvMsg(reply))
	assert.Equal(t, uri, reply.Value)
	_, known := identity.FromContext(t.Context())
	assert.False(t, known)
}

// R114, R115: a caller whose certificate does not do, or that has none, never reaches the handler.
func TestCallersAreRefused(t *testing.T) {
	p := newPKI(t)
	for name, c := range map[string]struct {
		server, client credentials.TransportCredentials
		cfg            *identity.Config
		want           *contract.Failure
	}{
		"no TLS":              {insecure.NewCredentials(), insecure.NewCredentials(), nil, peer.ErrUnverified},
		"no certificate":      {p.server(tls.VerifyClientCertIfGiven), p.client(), nil, peer.ErrUnverified},
		"not verified":        {p.server(tls.RequireAnyClientCert), p.client(p.leaf(uri)), nil, peer.ErrUnverified},
		"no URI":              {p.server(tls.RequireAndVerifyClientCert), p.client(p.leaf()), nil, peer.ErrURICount},
		"two URIs":            {p.server(tls.RequireAndVerifyClientCert), p.client(p.leaf(uri, uri+"2")), nil, peer.ErrURICount},
		"another domain":      {p.server(tls.RequireAndVerifyClientCert), p.client(p.leaf(uri)), &identity.Config{Peer: peer.Config{TrustDomains: []string{"else.test"}}}, peer.ErrTrustDomain},
		"not let in by Admit": {p.server(tls.RequireAndVerifyClientCert), p.client(p.leaf(uri)), &identity.Config{Admit: func(context.Context, string, peer.Identity) error { return peer.ErrFingerprint }}, peer.ErrFingerprint},
	} {
		t.Run(name, func(t *testing.T) {
			w := new(who)
			conn := serve(t, w, c.server, c.cfg)(c.client)
			_, err := ask(t.Context(), conn)
			refusedAs(t, w, c.want, err)
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streaming)
			require.NoError(t, err)
			refusedAs(t, w, c.want, stream.RecvMsg(new(wrapperspb.StringValue)))
		})
	}
}

// R114, R116: a connection outlives its certificate; its calls do not, and neither do the messages of a stream that has begun.
func TestExpiryIsCheckedAgain(t *testing.T) {
	p, w := newPKI(t), new(who)
	var later atomic.Int64
	dial := serve(t, w, p.server(tls.RequireAndVerifyClientCert), &identity.Config{
		Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) },
	})
	conn := dial(p.client(p.leaf(uri)))
	_, err := ask(t.Context(), conn)
	require.NoError(t, err)
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streaming)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(wrapperspb.String("")))
	require.NoError(t, stream.RecvMsg(new(wrapperspb.StringValue)))

	w.calls.Store(0)
	later.Store(int64(2 * time.Hour))
	require.NoError(t, stream.SendMsg(wrapperspb.String("")))
	err = stream.RecvMsg(new(wrapperspb.StringValue))
	assert.ErrorIs(t, err, peer.ErrExpired)
	assert.False(t, contract.KnownNoEffect(err), "the first message was acted on")
	assert.Zero(t, w.calls.Load())
	_, err = ask(t.Context(), conn)
	refusedAs(t, w, peer.ErrExpired, err)
}

// R18, R114, R116: a refusal in the middle of a stream ends it. That nothing was done is said of one whose handler has got no message
// alone: whoever is refused his receipt must not be told that.
func TestRefusedAfterTheEffect(t *testing.T) {
	p := newPKI(t)
	for name, c := range map[string]struct {
		at   func(w *who, refuse func())
		runs int32
		none bool
	}{
		"before the first message":  {func(w *who, refuse func()) { w.began = refuse }, 0, true},
		"before the first receipt":  {func(w *who, refuse func()) { w.wrote = refuse }, 1, false},
		"before the second message": {func(w *who, refuse func()) { w.began = second(refuse) }, 1, false},
		"before the second receipt": {func(w *who, refuse func()) { w.wrote = second(refuse) }, 2, false},
	} {
		for _, why := range []*contract.Failure{peer.ErrExpired, contract.ErrDenied} {
			t.Run(name+"/"+string(why.Code), func(t *testing.T) {
				w := new(who)
				var over atomic.Bool
				c.at(w, func() { over.Store(true) })
				conn := serve(t, w, p.server(tls.RequireAndVerifyClientCert), &identity.Config{
					Admit: func(context.Context, string, peer.Identity) error {
						if over.Load() {
							return fmt.Errorf("admission: %w", why)
						}
						return nil
					},
				})(p.client(p.leaf(uri)))
				stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streaming)
				require.NoError(t, err)
				for err == nil {
					_ = stream.SendMsg(wrapperspb.String(""))
					err = stream.RecvMsg(new(wrapperspb.StringValue))
				}
				assert.ErrorIs(t, err, why)
				assert.Equal(t, c.none, contract.KnownNoEffect(err))
				assert.Equal(t, c.none, strings.Contains(err.Error(), "nothing was done"), err)
				assert.Equal(t, c.runs, w.calls.Load())
			})
		}
	}
}

// second calls what it is given when it is called for the second time.
func second(do func()) func() {
	n := 0
	return func() {
		if n++; n == 2 {
			do()
		}
	}
}

// A handler may receive in one goroutine and send in another, and end before they do: the race detector finds what they share.
func TestStreamIsUsedByTwo(t *testing.T) {
	p, w := newPKI(t), new(who)
	w.talk = func(s grpc.ServerStream) error {
		got := make(chan struct{}, 100)
		var sender sync.WaitGroup
		go func() {
			for s.RecvMsg(new(wrapperspb.StringValue)) == nil {
				got <- struct{}{}
			}
		}()
		sender.Go(func() {
			for range 20 {
				if s.SendMsg(wrapperspb.String("")) != nil {
					return
				}
			}
		})
		<-got
		sender.Wait()
		return nil
	}
	conn := serve(t, w, p.server(tls.RequireAndVerifyClientCert), nil)(p.client(p.leaf(uri)))
	for range 20 {
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streaming)
		require.NoError(t, err)
		for range 20 {
			_ = stream.SendMsg(wrapperspb.String("")) // io.EOF when the handler has ended
		}
		for err == nil {
			err = stream.RecvMsg(new(wrapperspb.StringValue))
		}
		assert.Equal(t, io.EOF, err)
	}
}
