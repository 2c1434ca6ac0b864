package grpcerr

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// gate is asked for an attempt's credentials as one of the connection's. An interceptor that forgets a call's options does not get
// around it. It has none of its own.
type gate struct{ *Guard }

func (g gate) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	a := g.attempt(ctx)
	if a == nil { // not for the stats handler to see, as gRPC's own health checks
		return map[string]string{}, nil
	}
	if err := a.mayGo(a); err != nil {
		return nil, status.Error(codes.Internal, err.Error()) // what the probe's error becomes
	}
	return map[string]string{}, nil
}

func (gate) RequireTransportSecurity() bool { return false }

// probe is asked by gRPC for an attempt's credentials, which is right before the attempt's headers are written, and so is the
// last place where an attempt can be stopped. The credentials themselves are those of the caller.
type probe struct {
	guard    *Guard
	evidence *evidence
	own      credentials.PerRPCCredentials // nil: none
}

// probed returns the options with a probe as their last credentials.
func (g *Guard) probed(e *evidence, opts []grpc.CallOption) []grpc.CallOption {
	p := probe{guard: g, evidence: e}
	for _, o := range opts {
		if c, ok := o.(grpc.PerRPCCredsCallOption); ok {
			p.own = c.Creds
		}
	}
	return append(slices.Clip(opts), grpc.PerRPCCredentials(p), grpc.OnFinish(e.finished))
}

func (p probe) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	if err := p.evidence.mayGo(p.guard.attempt(ctx)); err != nil || p.own == nil {
		return nil, err
	}
	return p.own.GetRequestMetadata(ctx, uri...)
}

func (p probe) RequireTransportSecurity() bool {
	return p.own != nil && p.own.RequireTransportSecurity()
}
