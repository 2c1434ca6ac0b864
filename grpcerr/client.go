package grpcerr

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
)

// UnaryClientInterceptor returns the interceptor of unary calls. It needs [Guard.StatsHandler] on the same connection and is best
// used through [Guard.DialOptions]; without the stats handler every call fails with [ErrSetup] before it is sent.
//
// Its errors are of type *[CallError]. A mutation is sent once, a read as often as [ClientConfig].ReadAttempts says.
func (g *Guard) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, name string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		m := g.cfg.Methods.Of(name)
		once := func(c *flight, opts []grpc.CallOption) *CallError {
			err := c.keep(ctx, cc)
			if err == nil {
				err = invoke(c.observe(ctx), name, req, reply, cc, g.probed(c.evidence, opts)...)
			}
			return c.end(err, reply)
		}
		if m.ReadOnly {
			return asError(g.read(ctx, m, opts, once))
		}
		c := g.flight(m)
		if refused := c.admit(ctx, req); refused != nil {
			return refused
		}
		return asError(once(c, opts))
	}
}

// asError keeps a nil *CallError from becoming an error.
func asError(e *CallError) error {
	if e == nil {
		return nil
	}
	return e
}

// flight is one call of a method on its way.
type flight struct {
	guard    *Guard
	method   contract.Method
	evidence *evidence
	op       *operation // nil: the book does not have it
}

func (g *Guard) flight(m contract.Method) *flight {
	return &flight{guard: g, method: m, evidence: &evidence{mutation: !m.ReadOnly}}
}

// observe returns the context under which the stats handler counts for this call.
func (c *flight) observe(ctx context.Context) context.Context {
	return context.WithValue(ctx, evidenceKey{c.guard}, c.evidence)
}

// keep does not hand on a call whose context or connection is over, and says so. gRPC would not begin with it, and there would be no
// attempt to tell that from an interceptor that sent it elsewhere.
func (c *flight) keep(ctx context.Context, cc *grpc.ClientConn) error {
	err := status.FromContextError(ctx.Err()).Err()
	if err == nil && cc != nil && cc.GetState() == connectivity.Shutdown {
		err = status.Error(codes.Canceled, "the client connection is closed")
	}
	c.evidence.kept.Store(err != nil)
	return err
}

// admit enters the operation of a mutation into the book, or refuses to send it.
func (c *flight) admit(ctx context.Context, req any) *CallError {
	g := c.guard
	meta, ok := metaOf(g.cfg.Meta, req)
	if !ok || meta.OperationID == "" {
		return nil
	}
	id := operationID{c.method.Name, meta.AgentID, meta.OperationID}
	op, why := g.book.admit(id, c.method, contentOf(g.cfg.Content, req), doneOf(ctx))
	if why != nil {
		return g.refusal(g.book.view(op), why)
	}
	c.op = op
	return nil
}

// refusal is the error of a send that was refused here: the decision about the operation stands.
func (g *Guard) refusal(op operation, why *contract.Failure) *CallError {
	var cause error
	if op.last != nil {
		cause = op.last
	}
	if !errors.Is(why, ErrNotResent) {
		cause = ErrNotResent.With(cause)
	}
	e := &CallError{Method: op.id.method, Delivery: op.delivery, Decision: op.decision, why: why.With(cause)}
	e.status = statusFor(nil, e.failure())
	return e
}

// end says what became of the call; nil for a success.
func (c *flight) end(err error, reply any) *CallError {
	counted := c.guard.counted()
	end := c.evidence.ending(err)
	if below, ok := errors.AsType[*CallError](end.err); ok && below != nil && c.believes(below, end) {
		e := *below
		c.decide(e.Decision, &e)
		return &e
	}
	switch {
	case c.evidence.unwatched.Load():
		return c.fail(end, ErrSetup, counted)
	case end.err != nil:
		return c.fail(end, nil, counted)
	case c.evidence.begun.Load() == 0 && !counted:
		return c.fail(end, ErrSetup, counted)
	}
	return c.succeed(end, reply, counted)
}

// believes says whether another Guard, nearer to the connection or at another one, knows more of the call. That nothing was done it
// knows of what it has sent itself, and so not where something has gone out here, nor together with another error.
func (c *flight) believes(below *CallError, end ending) bool {
	if below.Method != c.method.Name {
		return false
	}
	_, alone := end.err.(*CallError) //nolint:errorlint // what is wrapped may hide another error
	return c.method.ReadOnly || below.Decision.Effect != contract.EffectNone || alone && !end.sent
}

// fail is the error of a call; why is nil for the receiver's, if it sent one.
func (c *flight) fail(end ending, why *contract.Failure, counted bool) *CallError {
	e := &CallError{
		Method: c.method.Name, Attempts: int(c.evidence.begun.Load()), Transparent: int(c.evidence.transparent.Load()),
		readOnly: c.method.ReadOnly, why: why,
	}
	answered := false
	if why == nil {
		e.Failure, answered = c.guard.cfg.Codec.FromReply(end.err, end.trailer)
	}
	e.Delivery = c.evidence.delivery(answered, counted && !end.foreign)
	told := e.Failure
	if told == nil && e.Delivery != contract.NeverSent {
		told, _ = BareFailure(end.err)
	}
	d := contract.Decide(c.method, told, e.Delivery)
	if end.foreign || c.evidence.outs.Load() > 1 { // what the receiver says is of one attempt
		d = held(c.method, d)
	}
	c.decide(d, e)
	e.status = statusFor(end.err, e.failure())
	return e
}

func (c *flight) decide(d contract.Decision, e *CallError) {
	e.Decision = d
	if c.op != nil {
		c.guard.book.decide(c.op, d, e.Delivery, e)
	}
}

// succeed looks whether a success of the transport is one of the operation.
func (c *flight) succeed(end ending, reply any, counted bool) *CallError {
	if _, told := fromTrailer(end.trailer); told {
		return c.fail(end, mismatch("an OK reply has the trailers of a failure"), counted)
	}
	if c.method.ReadOnly {
		return nil
	}
	r, has := receiptOf(c.guard.cfg.Receipt, reply)
	if err := r.Validate(); has && err != nil {
		return c.fail(end, contract.ErrOutcomeUnknown.With(err), counted)
	}
	if c.op == nil {
		return nil
	}
	if has && !r.Result.Terminal() {
		c.guard.book.decide(c.op, contract.Decide(c.method, nil, contract.SentUnknown), contract.Answered, nil)
		return nil
	}
	c.guard.book.settle(c.op)
	return nil
}
