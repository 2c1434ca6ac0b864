package dispatch

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/confirmexec/confirmexec/fencing/peer"
)

// identities are those that there can be.
var identities = &peer.Config{TrustDomains: []string{trustDomain}}

type identityKey struct{}

// authenticated puts the identity of the caller's certificate into the context of every call, anew with each. What a request or its
// metadata say of the caller is not looked at (R114, R115).
func authenticated(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	id, err := identityOf(ctx)
	if err != nil {
		return nil, err
	}
	return handle(context.WithValue(ctx, identityKey{}, id), req)
}

func identityOf(ctx context.Context) (peer.Identity, error) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return peer.Identity{}, peer.ErrUnverified
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return peer.Identity{}, peer.ErrUnverified
	}
	return peer.IdentityOf(info.State, time.Now(), identities)
}

// caller is who called, as the certificate says; the zero Identity, which nobody approved, outside of a call.
func caller(ctx context.Context) peer.Identity {
	id, _ := ctx.Value(identityKey{}).(peer.Identity)
	return id
}

// nameOf is what an identity is called in a trace.
func nameOf(uri string) string {
	switch uri {
	case dispatcherURI:
		return roleDispatcher
	case agentURI:
		return roleAgent
	}
	return "stranger"
}

// agentOf is the agent that an identity is of. It is approved or it is not; its name alone authorizes nothing.
func agentOf(id peer.Identity) string { return path.Base(id.URI) }
