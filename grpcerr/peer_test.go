package grpcerr_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// peer is a server that speaks HTTP/2 and does what a test says with each request that arrived whole.
type peer struct {
	t        *testing.T
	listener net.Listener
	script   func(n int, s stream)
	done     sync.WaitGroup

	mu     sync.Mutex
	bodies []string
	conns  []net.Conn
}

// stream is one request and the way to answer it.
type stream struct {
	*http2.Framer

	conn net.Conn
	id   uint32
}

func newPeer(t *testing.T, script func(n int, s stream)) *peer {
	t.Helper()
	p := &peer{t: t, listener: listen(t), script: script}
	p.done.Go(func() {
		for {
			conn, err := p.listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
			p.done.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		p.listener.Close()
		p.mu.Lock()
		for _, conn := range p.conns {
			conn.Close()
		}
		p.mu.Unlock()
		p.done.Wait()
	})
	return p
}

func (p *peer) serve(conn net.Conn) {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, conn)
	_ = framer.WriteSettings()
	bodies := map[uint32]*bytes.Buffer{}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = framer.WritePing(true, f.Data)
			}
		case *http2.HeadersFrame:
			bodies[f.StreamID] = &bytes.Buffer{}
		case *http2.DataFrame:
			bodies[f.StreamID].Write(f.Data())
			if f.StreamEnded() {
				p.mu.Lock()
				p.bodies = append(p.bodies, bodies[f.StreamID].String())
				n := len(p.bodies)
				p.mu.Unlock()
				p.script(n, stream{framer, conn, f.StreamID})
			}
		}
	}
}

// requests returns the bodies of the requests that arrived.
func (p *peer) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.bodies...)
}

// answer answers with OK and a message; nil: with none.
func (s stream) answer(t *testing.T, m proto.Message) {
	t.Helper()
	s.headers(false, ":status", "200", "content-type", "application/grpc")
	if m != nil {
		data, err := proto.Marshal(m)
		require.NoError(t, err)
		prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data)))
		_ = s.WriteData(s.id, false, append(prefix, data...))
	}
	s.headers(true, "grpc-status", "0")
}

func (s stream) headers(last bool, pairs ...string) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(pairs); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: last})
}
