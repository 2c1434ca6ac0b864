package grpcerr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
)

// behind returns a link to a server through a gateway that passes on what forward says of an error: what it returns, and the
// trailers that it sets.
func behind(t *testing.T, forward func(err error, trailer metadata.MD) (*answer, metadata.MD, error)) (l *link, server *service) {
	t.Helper()
	ca := newAuthority(t)
	server = &service{}
	creds := grpc.WithTransportCredentials(credentials.NewTLS(ca.clientTLS(ca.leaf())))
	upstream := dial(t, serve(t, server, ca, setup{}), []grpc.DialOption{creds})
	l = newLink(t, setup{plainServer: true})
	l.handle = func(ctx context.Context, req *request) (*answer, error) {
		var trailer metadata.MD
		a := newAnswer()
		err := upstream.Invoke(ctx, change, req, a, grpc.Trailer(&trailer))
		delete(trailer, "grpc-status-details-bin")
		a, told, err := forward(err, trailer)
		_ = grpc.SetTrailer(ctx, told)
		return a, err
	}
	return l, server
}

// R3, R4: what a gateway drops is found in another copy, and where nothing is left the code alone proves nothing about the effect.
func TestGatewayStripsDetails(t *testing.T) {
	bare := func(err error) error { return status.Error(status.Code(err), "upstream failed") }
	for name, c := range map[string]struct {
		keep     bool
		failure  *contract.Failure
		answered bool
		decision contract.Decision
	}{
		"the trailers are left": {true, contract.ErrStale, true, contract.Decision{Action: contract.RefreshState, Effect: contract.EffectNone}},
		"nothing is left":       {false, contract.ErrStale, false, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}},
		"a code that only a server makes": {false, contract.ErrKeyReused, false,
			contract.Decision{Action: contract.RereadRevision, Effect: contract.EffectUnknown}},
		"a code that everybody makes": {false, contract.ErrDenied, false, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			l, server := behind(t, func(err error, trailer metadata.MD) (*answer, metadata.MD, error) {
				if !c.keep {
					trailer = nil
				}
				return nil, trailer, bare(err)
			})
			server.handle = func(context.Context, *request) (*answer, error) { return nil, c.failure }
			err := l.mutate(l.ctx())
			e := failed(t, err)
			assert.Equal(t, c.decision, e.Decision)
			if c.answered {
				assert.ErrorIs(t, err, c.failure)
				assert.Equal(t, contract.Answered, e.Delivery)
			} else {
				assert.Nil(t, e.Failure)
				assert.Equal(t, contract.SentUnknown, e.Delivery)
			}
			assert.EqualValues(t, 1, server.runs.Load())
			l.refused(e)
		})
	}
}

// R21: a gateway that forces OK turns no failure into a success.
func TestGatewayForcesOK(t *testing.T) {
	for name, keep := range map[string]bool{"and drops the trailers": false, "and keeps them": true} {
		t.Run(name, func(t *testing.T) {
			l, server := behind(t, func(_ error, trailer metadata.MD) (*answer, metadata.MD, error) {
				if !keep {
					trailer = nil
				}
				return newAnswer(), trailer, nil
			})
			server.handle = moved
			err := l.mutate(l.ctx())
			e := failed(t, err)
			assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, e.Decision)
			assert.NotEqual(t, codes.OK, status.Code(err))
			l.refused(e)
		})
	}
}

// R3: a gateway that changes the code contradicts the envelope that it passes on, and nothing in it is believed.
func TestGatewayChangesCode(t *testing.T) {
	l, server := behind(t, func(err error, trailer metadata.MD) (*answer, metadata.MD, error) {
		p := status.Convert(err).Proto()
		p.Code = int32(codes.PermissionDenied)
		return nil, trailer, status.FromProto(p).Err()
	})
	server.handle = moved
	err := l.mutate(l.ctx())
	assert.ErrorIs(t, err, grpcerr.ErrEnvelopeMismatch)
	assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, failed(t, err).Decision)
}
