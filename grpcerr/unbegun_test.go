package grpcerr_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
)

type badCreds struct{ tls bool }

func (badCreds) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, errors.New("no token")
}
func (b badCreds) RequireTransportSecurity() bool { return b.tls }

// R10, R18: nothing is sent of a call that fails before its first attempt, and the caller is told so.
func TestCallsThatNeverBegin(t *testing.T) {
	for _, m := range []string{change, "stream"} {
		do := func(ctx context.Context, l *link, opts ...grpc.CallOption) error {
			if m == "stream" {
				_, err := l.follow(ctx, opts...)
				return err
			}
			return l.mutate(ctx, opts...)
		}
		for name, fail := range map[string]func(t *testing.T) error{
			"the name is not resolved in time": func(t *testing.T) error {
				names := manual.NewBuilderWithScheme("slow")
				conn, err := grpc.NewClient("slow:///x", append(grpcerr.DialOptions(&grpcerr.ClientConfig{Methods: methods()}),
					grpc.WithResolvers(names), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				return do(ctx, &link{t: t, conn: conn})
			},
			"the resolver says an error": func(t *testing.T) error {
				names := manual.NewBuilderWithScheme("slow")
				names.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
					cc.ReportError(errors.New("no such host"))
				}
				conn, err := grpc.NewClient("slow:///x", append(grpcerr.DialOptions(&grpcerr.ClientConfig{Methods: methods()}),
					grpc.WithResolvers(names), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				return do(t.Context(), &link{t: t, conn: conn})
			},
			"bad metadata": func(t *testing.T) error {
				l := newLink(t, setup{})
				return do(metadata.AppendToOutgoingContext(l.ctx(), "x", "line\nfeed"), l)
			},
			"unknown compressor": func(t *testing.T) error {
				l := newLink(t, setup{})
				return do(l.ctx(), l, grpc.UseCompressor("nope"))
			},
			"unknown codec": func(t *testing.T) error {
				l := newLink(t, setup{})
				return do(l.ctx(), l, grpc.CallContentSubtype("nope"))
			},
			"creds fail": func(t *testing.T) error {
				l := newLink(t, setup{})
				return do(l.ctx(), l, grpc.PerRPCCredentials(badCreds{}))
			},
			"conn creds fail before": func(t *testing.T) error {
				l := newLink(t, setup{before: []grpc.DialOption{grpc.WithPerRPCCredentials(badCreds{})}})
				return do(l.ctx(), l)
			},
			"conn creds fail after": func(t *testing.T) error {
				l := newLink(t, setup{dialOpts: []grpc.DialOption{grpc.WithPerRPCCredentials(badCreds{})}})
				return do(l.ctx(), l)
			},
			"insecure, creds need TLS": func(t *testing.T) error {
				l := newLink(t, setup{})
				conn, err := grpc.NewClient("passthrough:///"+l.cutter.address(), append(grpcerr.DialOptions(&grpcerr.ClientConfig{Methods: methods()}),
					grpc.WithTransportCredentials(insecure.NewCredentials()))...)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				return do(l.ctx(), &link{t: t, conn: conn}, grpc.PerRPCCredentials(badCreds{tls: true}))
			},
		} {
			t.Run(m+"/"+name, func(t *testing.T) {
				e := failed(t, fail(t))
				assert.Equal(t, contract.NeverSent, e.Delivery, "%v / %v", e, e.GRPCStatus())
			})
		}
	}
}

// An interceptor that is called without a connection, as tests of interceptors do, says what is missing.
func TestNoConnection(t *testing.T) {
	g := grpcerr.NewGuard(nil)
	err := g.UnaryClientInterceptor()(t.Context(), change, operation("op"), newAnswer(), nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil })
	require.ErrorIs(t, err, grpcerr.ErrSetup)
}
