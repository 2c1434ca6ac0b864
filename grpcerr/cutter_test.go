package grpcerr_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// cutter stands between a client and a server, on TCP.
type cutter struct {
	listener net.Listener
	backend  string
	deaf     atomic.Bool // nothing of the server's reaches the client any more
	mute     atomic.Bool // nothing of the client's reaches the server any more

	mu    sync.Mutex
	ends  map[net.Conn]bool
	dials int
	done  sync.WaitGroup
}

func newCutter(t *testing.T, backend string) *cutter {
	t.Helper()
	c := &cutter{listener: listen(t), backend: backend, ends: map[net.Conn]bool{}}
	c.done.Go(c.accept)
	t.Cleanup(func() {
		c.listener.Close()
		c.cut()
		c.done.Wait()
	})
	return c
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

func (c *cutter) address() string { return c.listener.Addr().String() }

func (c *cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "tcp", c.backend)
		if err != nil {
			client.Close()
			continue
		}
		c.mu.Lock()
		c.ends[client], c.ends[server] = true, true
		c.dials++
		c.mu.Unlock()
		c.done.Go(func() { c.relay(server, client, &c.mute) })
		c.done.Go(func() { c.relay(client, server, &c.deaf) })
	}
}

func (c *cutter) relay(to, from net.Conn, dropped *atomic.Bool) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if dropped.Load() {
			continue
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// cut closes every connection.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := range c.ends {
		end.Close()
		delete(c.ends, end)
	}
}
