package faultnet

import (
	"errors"
	"io"
	"net"
	"sync"
)

// pieceSize is how much is read at once. A flight that the client writes in one go arrives as one piece, if it fits.
const pieceSize = 64 << 10

// watcher follows one connection after its start-up packet. Each piece is shown before it is relayed, from one
// goroutine per direction.
type watcher interface {
	fromClient(piece []byte)
	fromServer(piece []byte)
	closed() // nothing more will be relayed
}

// proxy takes connections to a server and relays them. It is safe for concurrent use.
type proxy struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	relay    func(client, server net.Conn) // of everything after the start-up packet; returns when both sides have ended

	running sync.WaitGroup
	mu      sync.Mutex
	open    map[net.Conn]struct{}
	ended   bool
}

func newProxy(dial func() (net.Conn, error), relay func(client, server net.Conn)) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, dial: dial, relay: relay, open: map[net.Conn]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// close cuts all connections and returns when no goroutine of the proxy is left.
func (p *proxy) close() {
	p.mu.Lock()
	p.ended = true
	_ = p.listener.Close()
	for conn := range p.open {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// adopt makes close cut the connection too. It reports false, and cuts at once, if that has happened.
func (p *proxy) adopt(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		_ = conn.Close()
		return false
	}
	p.open[conn] = struct{}{}
	return true
}

func (p *proxy) release(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
	_ = conn.Close()
}

// serve relays one connection until both sides have ended. A server that cannot be reached looks to the client like
// one that hangs up.
func (p *proxy) serve(client net.Conn) {
	if !p.adopt(client) {
		return
	}
	defer p.release(client)
	packet, code, err := p.greet(client)
	if err != nil {
		return
	}
	server, err := p.dial()
	if err != nil || !p.adopt(server) {
		return
	}
	defer p.release(server)
	if _, err := server.Write(packet); err != nil {
		return
	}
	if code == codeCancel {
		join(client, server, unwatched{})
		return
	}
	p.relay(client, server)
}

// greet refuses encryption and returns the packet that begins the connection proper.
func (p *proxy) greet(client net.Conn) (packet []byte, code uint32, err error) {
	for {
		packet, code, err = readStartup(client)
		if err != nil || (code != codeSSL && code != codeGSS) {
			return packet, code, err
		}
		if _, err := client.Write(refuseEncryption); err != nil {
			return nil, 0, err
		}
	}
}

// join relays both ways and returns when both ways have ended.
func join(client, server net.Conn, w watcher) {
	defer w.closed()
	var both sync.WaitGroup
	both.Go(func() { pump(server, client, w.fromClient) })
	both.Go(func() { pump(client, server, w.fromServer) })
	both.Wait()
}

// pump relays one way, showing each piece first. An orderly end is passed on as one; a broken connection breaks both.
func pump(to, from net.Conn, show func([]byte)) {
	piece := make([]byte, pieceSize)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			show(piece[:n])
			if _, writeErr := to.Write(piece[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if errors.Is(err, io.EOF) && finish(to) == nil {
			return
		}
		if err != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

// finish tells the other side that nothing more comes.
func finish(conn net.Conn) error {
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// unwatched is for connections that carry no messages, which are requests to cancel.
type unwatched struct{}

func (unwatched) fromClient([]byte) {}
func (unwatched) fromServer([]byte) {}
func (unwatched) closed()           {}
