package grpcerr

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/confirmexec/confirmexec/contract"
)

// ClientConfig changes what a [Guard] does by default. The zero value of every field is its default.
type ClientConfig struct {
	// Methods says which methods are read-only, and which operations may be sent again once an action is done. Default: every
	// method is a mutation that is never sent again.
	Methods contract.Methods

	// Codec reads the receiver's failures. Default the zero [Codec].
	Codec Codec

	// Meta reads the meta data of a service's own requests; false for a request that has none. Default: what
	// GetMeta() *confirmexecv1.RequestMeta returns, for requests that have that method.
	Meta func(req any) (contract.RequestMeta, bool)

	// Receipt reads the receipt of a service's own replies, the zero one if it is missing; false for a reply that has no place for
	// one. Default: what GetReceipt() *confirmexecv1.Receipt returns, for replies that have that method.
	Receipt func(reply any) (contract.Receipt, bool)

	// Content returns a digest of what a request asks for; false if there is none, and then the operation is never sent twice. A
	// request that is sent again in another session is the same request and has the same digest. Default: SHA-256 of the message
	// without the boot id, session generation and dispatcher epoch of its confirmexecv1.RequestMeta.
	Content func(req any) (contract.Digest, bool)

	// Operations is how many operations the book remembers. Default 4096.
	Operations int

	// ReadAttempts is how often a read-only method is called until it is answered; 1: once. Default 3.
	ReadAttempts int

	// ReadBackoff is the pause after the first attempt at a read. It doubles with every attempt, up to two seconds, and its second
	// half is random. Default 100 milliseconds.
	ReadBackoff time.Duration
}

func (c *ClientConfig) withDefaults() ClientConfig {
	var own ClientConfig
	if c != nil {
		own = *c
	}
	if own.Operations <= 0 {
		own.Operations = 4096
	}
	if own.ReadAttempts <= 0 {
		own.ReadAttempts = 3
	}
	if own.ReadBackoff <= 0 {
		own.ReadBackoff = 100 * time.Millisecond
	}
	return own
}

// Guard stands before a client connection: it tells what is known of every call that failed, and does not let an operation out a
// second time against the decision about it. It is made once per connection, or per group of connections to one receiver, and is
// safe for concurrent use.
//
// An operation is known by its method, agent id and operation id. What is remembered of it is in memory and bounded: it keeps a
// process from sending twice, across all its layers that retry. It is gone with the process, and it does not know what other
// processes sent; that nothing is executed twice is the receiver's doing, whose claim is durable. A mutation without an operation
// id is not remembered, nor are the messages of a stream that can carry several.
type Guard struct {
	cfg  ClientConfig
	book *book

	live atomic.Bool // the stats handler is on a connection
	lost atomic.Bool // it has met an attempt whose call it does not know
}

// NewGuard returns a Guard; cfg may be nil.
func NewGuard(cfg *ClientConfig) *Guard {
	own := cfg.withDefaults()
	return &Guard{cfg: own, book: newBook(own.Operations)}
}

// DialOptions returns the options of a Guard of its own; cfg may be nil. See [Guard.DialOptions].
func DialOptions(cfg *ClientConfig) []grpc.DialOption { return NewGuard(cfg).DialOptions() }

// DialOptions returns everything that a client connection needs: the two interceptors, the stats handler without which they refuse
// to call, credentials that add nothing and are asked before every attempt, and no retries by gRPC, neither of a service config that
// the caller gives nor of one that the name resolution brings. Interceptors of the caller's that stand behind them run inside each
// call; one among them that sends a mutation again by itself, later or at once, is stopped before its second attempt goes out, if it
// hands on the context, and even without the call's options.
//
// What cannot be switched off is that gRPC repeats a request by itself when the peer says that it has not begun with it.
func (g *Guard) DialOptions() []grpc.DialOption {
	g.live.Store(true)
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(g.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(g.StreamClientInterceptor()),
		grpc.WithStatsHandler(watcher{g}),
		grpc.WithPerRPCCredentials(gate{g}),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
	}
}

// StatsHandler returns the stats handler that both interceptors need on the same connection. With these parts instead of
// [Guard.DialOptions], an interceptor that retries is stopped only if it hands on the call's options too; where it was not, nothing
// that one attempt is told proves that the others did nothing.
func (g *Guard) StatsHandler() stats.Handler { return watcher{g} }
