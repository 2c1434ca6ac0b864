package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// relayed is a database behind a relay.
type relayed struct {
	database
	relay *relay
}

// relay stands between PostgreSQL and its client, on a TCP port of this host. Once it is armed it loses the reply of one COMMIT:
// it hands the server the flight that holds it, reads that it was carried out, and cuts the connection instead of saying so.
type relay struct {
	server   *pgconn.Config
	listener net.Listener
	serving  sync.WaitGroup
	armed    atomic.Bool
	lost     atomic.Int32 // the replies of COMMITs that were carried out
}

// openRelayed opens the database of cfg through a relay. To the client the relay speaks without TLS and without asking for a
// password; to the server as cfg says.
func openRelayed(ctx context.Context, cfg *pgxpool.Config) (*relayed, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("relay: listen: %w", err)
	}
	r := &relay{server: cfg.ConnConfig.Config.Copy(), listener: listener}
	r.serving.Go(func() { r.accept(ctx) })
	client := cfg.Copy()
	to := &client.ConnConfig.Config
	to.Host, to.Port = "127.0.0.1", uint16(listener.Addr().(*net.TCPAddr).Port)
	to.TLSConfig, to.Fallbacks = nil, nil
	d, err := openPostgres(ctx, client)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	d.shut = func(shut func() error) func() error {
		return func() error { return errors.Join(shut(), r.close()) }
	}(d.shut)
	return &relayed{d, r}, nil
}

// close ends the relay, when its clients have gone.
func (r *relay) close() error {
	err := r.listener.Close()
	r.serving.Wait()
	return err
}

func (r *relay) accept(ctx context.Context) {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.serving.Go(func() {
			defer func() { _ = conn.Close() }()
			r.serve(ctx, conn)
		})
	}
}

// serve relays one connection until one side of it ends.
func (r *relay) serve(ctx context.Context, conn net.Conn) {
	client := pgproto3.NewBackend(conn, conn)
	if first, err := client.ReceiveStartupMessage(); err != nil {
		return
	} else if _, ok := first.(*pgproto3.StartupMessage); !ok { // it wants to cancel: that is best effort
		return
	}
	server, err := r.dial(ctx)
	if err != nil {
		return
	}
	if greet(client, server) != nil {
		_ = server.Conn.Close()
		return
	}
	p := pair{relay: r, client: client, server: server.Frontend}
	var back sync.WaitGroup
	back.Go(func() {
		p.toClient()
		_ = conn.Close()
	})
	p.toServer()
	_ = server.Conn.Close()
	back.Wait()
}

// dial makes a connection to the server and takes it over.
func (r *relay) dial(ctx context.Context) (*pgconn.HijackedConn, error) {
	conn, err := pgconn.ConnectConfig(ctx, r.server.Copy())
	if err != nil {
		return nil, err
	}
	return conn.Hijack()
}

// greet tells the client what the server said when the connection to it was made.
func greet(client *pgproto3.Backend, server *pgconn.HijackedConn) error {
	client.Send(&pgproto3.AuthenticationOk{})
	for name, value := range server.ParameterStatuses {
		client.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	client.Send(&pgproto3.BackendKeyData{ProcessID: server.PID, SecretKey: server.SecretKey})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return client.Flush()
}

// pair is one connection of the client, and the one to the server that stands for it.
type pair struct {
	relay  *relay
	client *pgproto3.Backend
	server *pgproto3.Frontend
	losing atomic.Bool // the next answer of the server is not told to the client
}

// toServer relays what the client sends, until one of the two has ended.
func (p *pair) toServer() {
	commits := map[string]bool{} // the prepared statements that are a COMMIT
	committing := false          // this flight runs one
	for {
		msg, err := p.client.Receive()
		if err != nil {
			return
		}
		switch m := msg.(type) {
		case *pgproto3.Parse:
			commits[m.Name] = m.Query == "COMMIT"
		case *pgproto3.Bind:
			committing = committing || commits[m.PreparedStatement]
		case *pgproto3.Sync:
			p.losing.Store(committing && p.relay.armed.CompareAndSwap(true, false))
			committing = false
		}
		p.server.Send(msg)
		if p.server.Flush() != nil {
			return
		}
	}
}

// toClient relays what the server answers, until one of the two has ended or a reply is to be lost.
func (p *pair) toClient() {
	committed := false
	for {
		msg, err := p.server.Receive()
		if err != nil {
			return
		}
		if p.losing.Load() {
			switch m := msg.(type) {
			case *pgproto3.CommandComplete:
				committed = string(m.CommandTag) == "COMMIT"
			case *pgproto3.ReadyForQuery:
				if committed && m.TxStatus == 'I' {
					p.relay.lost.Add(1)
				}
				return
			}
			continue
		}
		p.client.Send(msg)
		if p.client.Flush() != nil {
			return
		}
	}
}
