package grpcerr

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
)

// evidence is what gRPC has shown of one call, over all of its attempts. It is counted by the stats handler and not read from a
// status code, which a library or a proxy can make by itself.
type evidence struct {
	mutation, stream bool

	begun, transparent, headers, payloads atomic.Int32

	outs atomic.Int32 // attempts of which something went out

	seen      atomic.Bool // the receiver's marker came: it has begun with the call
	unwatched atomic.Bool // an attempt was stopped that the stats handler did not count
	kept      atomic.Bool // the call was not even handed on

	mu      sync.Mutex
	trailer metadata.MD // of the latest attempt
	last    *ending     // of the latest attempt that has ended
	unbegun *ending     // of a call that gRPC ended before its first attempt
	told    *ending     // of the latest one that has put anything on a connection
	going   *attempt    // it may go out, and has not ended
	over    bool        // the call has ended
}

// ending is how a call ended, or one attempt at it.
type ending struct {
	err     error
	trailer metadata.MD
	foreign bool // the call's error is not that of an attempt that was counted, or not the last word: nobody knows what it is about
	sent    bool // something went out, or may still
}

// is says whether a call's error is that with which the attempt ended. The same text is not enough, since another connection's may
// be the same, nor is the error that all closed connections share.
func (e *ending) is(err error) bool {
	return e != nil && e.err != nil && status.Convert(err) == status.Convert(e.err) &&
		!errors.Is(err, grpc.ErrClientConnClosing) //nolint:staticcheck // gRPC ends calls with this very error
}

// attempt is one attempt at a call.
type attempt struct {
	*evidence
	transparent atomic.Bool // gRPC repeats it by itself, since the peer said that it had not begun with the one before
	out         atomic.Bool // something of it went out
}

// sent says whether an attempt has put what starts a handler on a connection: a unary call's message, a stream's headers. A unary
// handler needs the whole message; gRPC reports it after it was queued and before the call returns.
func (e *evidence) sent() bool {
	return e.payloads.Load() > 0 || e.stream && e.headers.Load() > 0
}

// delivery climbs the ladder. Only a call whose attempts were all counted, and that ended as the last of them did, is known not to
// have been sent: an interceptor that makes an error of its own may have sent it on a way that is not counted.
func (e *evidence) delivery(answered, known bool) contract.Delivery {
	switch {
	case answered:
		return contract.Answered
	case e.seen.Load():
		return contract.ServerSeen
	case known && !e.sent() && !e.unwatched.Load():
		return contract.NeverSent
	}
	return contract.SentUnknown
}

// ending returns how the call ended. Of a mutation that went out, this is how its attempt ended, whatever an interceptor has tried
// after it and was told elsewhere.
func (e *evidence) ending(err error) ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	end := ending{err: err, trailer: e.trailer}
	if err == nil {
		return end
	}
	end.sent = e.sent() || e.going != nil
	own := e.kept.Load() || e.last.is(err) || e.told.is(err) || e.begun.Load() == 0 && e.unbegun.is(err)
	end.foreign = e.going != nil || !own
	if e.mutation && e.told != nil {
		end.trailer = e.told.trailer
		if e.told.err != nil && !e.told.is(err) {
			end.err = e.told.err
		}
	}
	return end
}

// finished is told by gRPC how a call ended, also one that ended before its first attempt.
func (e *evidence) finished(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && e.begun.Load() == 0 {
		e.unbegun = &ending{err: err}
	}
}

// mayGo decides about an attempt before its headers are written. One that is not counted never goes: without its evidence nobody
// could say afterwards whether it was sent. Of a mutation one attempt goes at a time, which from here on has it until it has ended:
// what goes out is only counted later. One that went out goes again only where gRPC repeats it by itself, and after the call has
// ended nothing does.
func (e *evidence) mayGo(a *attempt) error {
	if a == nil {
		e.unwatched.Store(true)
		return ErrSetup
	}
	if !e.mutation {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.going != nil && e.going != a || e.sent() && !a.transparent.Load() {
		return ErrNotResent
	}
	e.going = a
	return nil
}

func (a *attempt) handle(s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.Begin:
		a.begin(s)
	case *stats.OutHeader:
		a.headers.Add(1)
		if a.stream {
			a.went()
		}
	case *stats.OutPayload:
		a.payloads.Add(1)
		a.went()
	case *stats.InHeader:
		if len(s.Header.Get(HeaderSeen)) > 0 {
			a.seen.Store(true)
		}
	case *stats.InTrailer:
		a.mu.Lock()
		a.trailer = s.Trailer
		a.mu.Unlock()
	case *stats.End:
		a.end(s)
	}
}

func (a *attempt) begin(s *stats.Begin) {
	a.begun.Add(1)
	if s.IsTransparentRetryAttempt {
		a.evidence.transparent.Add(1)
		a.transparent.Store(true)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trailer = nil
}

func (a *attempt) went() {
	if a.out.CompareAndSwap(false, true) {
		a.outs.Add(1)
	}
}

func (a *attempt) end(s *stats.End) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.going == a {
		a.going = nil
	}
	a.last = &ending{err: s.Error, trailer: a.trailer}
	if a.out.Load() {
		a.told = a.last
	}
}

// evidenceKey and attemptKey are the context keys of one Guard: two Guards on one connection count for themselves.
type (
	evidenceKey struct{ *Guard }
	attemptKey  struct{ *Guard }
)

// watcher is a Guard's stats handler.
type watcher struct{ *Guard }

func (w watcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	w.live.Store(true)
	e, ok := ctx.Value(evidenceKey(w)).(*evidence)
	if !ok {
		w.lost.Store(true)
		return ctx
	}
	return context.WithValue(ctx, attemptKey(w), &attempt{evidence: e})
}

func (w watcher) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if a := w.attempt(ctx); a != nil {
		a.handle(s)
	}
}

func (w watcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	w.live.Store(true)
	return ctx
}

func (watcher) HandleConn(context.Context, stats.ConnStats) {}

func (g *Guard) attempt(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{g}).(*attempt)
	return a
}

// counted says whether every attempt of every call has been counted: the stats handler is on the connection, and has never met an
// attempt whose call it does not know, as an interceptor that changes the context makes it.
func (g *Guard) counted() bool { return g.live.Load() && !g.lost.Load() }
