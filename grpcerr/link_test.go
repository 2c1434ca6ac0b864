package grpcerr_test

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"

	"github.com/confirmexec/confirmexec/grpcerr"
)

// patience ends a test that hangs; no test waits for it.
const patience = 30 * time.Second

// link is a client and a server with a cutter between them, over TLS with certificates on both sides.
type link struct {
	t *testing.T
	*service

	cutter *cutter
	events *events
	conn   *grpc.ClientConn
}

// setup says how a link differs from one with the options of this package on both sides.
type setup struct {
	server      *grpcerr.ServerConfig
	plainServer bool // without this package
	serverOpts  []grpc.ServerOption

	client   *grpcerr.ClientConfig
	dialOpts []grpc.DialOption // instead of this package's, if plainClient
	plain    bool              // a client without this package
	before   []grpc.DialOption
	shown    func(right tls.Certificate) []tls.Certificate // the client's certificates
	address  string                                        // instead of the cutter's
}

func newLink(t *testing.T, s setup) *link {
	t.Helper()
	l := &link{t: t, service: &service{}, events: newEvents()}
	ca := newAuthority(t)
	l.cutter = newCutter(t, serve(t, l.service, ca, s))
	if s.address == "" {
		s.address = l.cutter.address()
	}
	certs := []tls.Certificate{ca.leaf()}
	if s.shown != nil {
		certs = s.shown(certs[0])
	}
	l.conn = dial(t, s.address, append(s.options(l.events), grpc.WithTransportCredentials(credentials.NewTLS(ca.clientTLS(certs...)))))
	return l
}

func (s setup) options(e *events) []grpc.DialOption {
	opts := append([]grpc.DialOption{grpc.WithStatsHandler(e)}, s.before...)
	if !s.plain {
		client := grpcerr.ClientConfig{Methods: methods(), ReadBackoff: time.Microsecond}
		if s.client != nil {
			client = *s.client
		}
		opts = append(opts, grpcerr.DialOptions(&client)...)
	}
	return append(opts, s.dialOpts...)
}

func serve(t *testing.T, s *service, ca *authority, with setup) string {
	t.Helper()
	opts := append([]grpc.ServerOption{grpc.Creds(credentials.NewTLS(ca.serverTLS())), grpc.WaitForHandlers(true)}, with.serverOpts...)
	if !with.plainServer {
		cfg := grpcerr.ServerConfig{Methods: methods()}
		if with.server != nil {
			cfg = *with.server
		}
		opts = append(opts, grpcerr.ServerOptions(&cfg)...)
	}
	server, listener := grpc.NewServer(opts...), listen(t)
	server.RegisterService(s.desc(), s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; !errors.Is(err, grpc.ErrServerStopped) {
			require.NoError(t, err)
		}
	})
	return listener.Addr().String()
}

func dial(t *testing.T, address string, opts []grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// warm makes the connection, so that what happens to a call happens to the call.
func (l *link) warm() {
	l.t.Helper()
	_, err := l.call(l.ctx(), look, operation("warm"))
	require.NoError(l.t, err)
	l.events.drain()
}

func (l *link) ctx() context.Context {
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	l.t.Cleanup(cancel)
	return ctx
}

func (l *link) call(ctx context.Context, method string, req any, opts ...grpc.CallOption) (*answer, error) {
	a := newAnswer()
	err := l.conn.Invoke(ctx, method, req, a, opts...)
	return a, err
}

// mutate sends the operation of the test.
func (l *link) mutate(ctx context.Context, opts ...grpc.CallOption) error {
	_, err := l.call(ctx, change, operation("op"), opts...)
	return err
}

// failed returns the call's error as what it has to be.
func failed(t *testing.T, err error) *grpcerr.CallError {
	t.Helper()
	require.Error(t, err)
	e, ok := errors.AsType[*grpcerr.CallError](err)
	require.True(t, ok, "%T: %v", err, err)
	return e
}

// events tells a test what gRPC does at the client.
type events struct{ begun, sent, headers chan struct{} }

func newEvents() *events {
	return &events{make(chan struct{}, 100), make(chan struct{}, 100), make(chan struct{}, 100)}
}

func (e *events) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (e *events) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (e *events) HandleConn(context.Context, stats.ConnStats)                       {}

func (e *events) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s.(type) {
	case *stats.Begin:
		e.begun <- struct{}{}
	case *stats.OutPayload:
		e.sent <- struct{}{}
	case *stats.InHeader:
		e.headers <- struct{}{}
	}
}

func (e *events) drain() {
	for _, c := range []chan struct{}{e.begun, e.sent, e.headers} {
		for len(c) > 0 {
			<-c
		}
	}
}

// expiring is a context whose deadline is over when the test says so.
type expiring struct {
	context.Context

	over chan struct{}
}

func (l *link) expiring() (ctx context.Context, expire func()) {
	over := make(chan struct{})
	return expiring{l.ctx(), over}, func() { close(over) }
}

func (e expiring) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (e expiring) Done() <-chan struct{}       { return e.over }

func (e expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
