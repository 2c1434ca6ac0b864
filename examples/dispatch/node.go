package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
	"github.com/confirmexec/confirmexec/store"
)

// node is what a dispatcher and an agent have in common: a database, a broker over it, the fences in it, and a way to the other.
type node[TTx any] struct {
	agentv1.UnimplementedAgentServiceServer

	cfg    config
	store  store.Store[TTx]
	broker *broker.Broker[TTx]
	space  fencing.Space
	files  credentialFiles
	other  string // the identity of the other side
	line   *line
	killer *killer

	mu     sync.Mutex
	client *grpc.ClientConn
	at     string // the address that it is connected to
}

func newNode[TTx any](cfg config, st store.Store[TTx], other string) (*node[TTx], error) {
	files, err := readCredentials(cfg.Authority, cfg.Certificate)
	if err != nil {
		return nil, err
	}
	k := &killer{}
	if cfg.Killable {
		st = killable[TTx]{st, k}
	}
	b, err := broker.New(st, &broker.Config{Lease: cfg.Lease})
	if err != nil {
		return nil, err
	}
	return &node[TTx]{
		cfg: cfg, store: st, broker: b, space: fencing.Space{Tenant: cfg.Tenant}, files: files, other: other,
		line: &line{role: cfg.Role, trace: cfg.Trace}, killer: k,
	}, nil
}

// serve serves the contract on a port of the loopback interface, and returns the address.
func (n *node[TTx]) serve(ctx context.Context, s agentv1.AgentServiceServer) (string, func(), error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	n.line.Listener = l
	options := grpcerr.ServerOptions(&grpcerr.ServerConfig{Methods: methods, ProtocolVersions: []string{protocolVersion}, RequireKey: true})
	server := grpc.NewServer(append(options,
		grpc.Creds(credentials.NewTLS(n.files.server())), grpc.ChainUnaryInterceptor(authenticated, n.line.intercept))...)
	agentv1.RegisterAgentServiceServer(server, s)
	go func() { _ = server.Serve(n.line) }()
	return l.Addr().String(), server.Stop, nil
}

// connect makes the connection to the other side, which is told where it is and proves who it is.
func (n *node[TTx]) connect(address string) error {
	c, err := n.dial(address)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client != nil {
		_ = n.client.Close()
	}
	n.client, n.at = c, address
	return nil
}

func (n *node[TTx]) dial(address string) (*grpc.ClientConn, error) {
	options := grpcerr.DialOptions(&grpcerr.ClientConfig{Methods: methods, ReadBackoff: 20 * time.Millisecond})
	c, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(credentials.NewTLS(n.files.client(n.other))))...)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return c, nil
}

// remote is the other side. A raw one is a connection of its own that knows of no call before it, as another process has it, or a
// message that slept somewhere.
func (n *node[TTx]) remote(raw bool) (agentv1.AgentServiceClient, func(), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil {
		return nil, nil, errors.New("nobody said where the other side is")
	}
	if !raw {
		return agentv1.NewAgentServiceClient(n.client), func() {}, nil
	}
	c, err := n.dial(n.at)
	if err != nil {
		return nil, nil, err
	}
	return agentv1.NewAgentServiceClient(c), func() { _ = c.Close() }, nil
}

// tx runs fn in a transaction of its own, and again while it meets others.
func (n *node[TTx]) tx(ctx context.Context, fn func(ctx context.Context, tx TTx) error) error {
	const tries = 5
	var err error
	for range tries {
		if err = n.txOnce(ctx, fn); !errors.Is(err, store.ErrRetryTx) {
			return err
		}
	}
	return err
}

func (n *node[TTx]) txOnce(ctx context.Context, fn func(ctx context.Context, tx TTx) error) error {
	tx, _, err := n.store.Begin(ctx, store.Opening{ID: store.ID{Tenant: n.cfg.Tenant}})
	if err != nil {
		return err
	}
	if err := fn(ctx, tx); err != nil {
		_ = n.store.Rollback(ctx, tx)
		return err
	}
	return n.store.Commit(ctx, tx, store.Closing{})
}

// look reads in a transaction, and writes nothing (R109).
func (n *node[TTx]) look(ctx context.Context, fn func(ctx context.Context, values store.Values) error) error {
	return n.rolledBack(ctx, func(ctx context.Context, tx TTx) error { return fn(ctx, n.store.Values(tx)) })
}

// rolledBack runs fn in a transaction of which nothing stays.
func (n *node[TTx]) rolledBack(ctx context.Context, fn func(ctx context.Context, tx TTx) error) error {
	tx, _, err := n.store.Begin(ctx, store.Opening{ID: store.ID{Tenant: n.cfg.Tenant}})
	if err != nil {
		return err
	}
	defer func() { _ = n.store.Rollback(ctx, tx) }()
	return fn(ctx, tx)
}

// metaOf is what a request says of itself. It names an operation, and authorizes nothing.
func metaOf(req interface{ GetMeta() *pb.RequestMeta }) contract.RequestMeta {
	return grpcerr.MetaFromProto(req.GetMeta())
}

// answered is the answer to a mutation: a receipt that has a failure is told as that, with the code that it has; every other
// receipt, UNKNOWN too, is an answer (R1, R2).
func answered(r contract.Receipt, err error) (*pb.Receipt, error) {
	if err == nil && r.Failure != nil {
		err = r.Failure
	}
	if err != nil {
		return nil, err
	}
	return grpcerr.ReceiptToProto(r), nil
}
