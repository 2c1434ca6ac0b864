package dispatch

import (
	"context"
	"path"

	"github.com/confirmexec/confirmexec/fencing/peer"
	"github.com/confirmexec/confirmexec/grpcerr/identity"
)

// identities are those that there can be.
var identities = &peer.Config{TrustDomains: []string{trustDomain}}

// authenticated tells handlers who calls, by the certificate, anew with each call (R114, R115).
var authenticated = identity.UnaryServerInterceptor(&identity.Config{Peer: *identities})

// caller is who called, as the certificate says; the zero Identity, which nobody approved, outside of a call.
func caller(ctx context.Context) peer.Identity {
	id, _ := identity.FromContext(ctx)
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
