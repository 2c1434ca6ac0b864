package faultnet

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// Message types of the protocol, version 3, that matter here. The same letter may mean two things, one each way.
const (
	fromClientQuery    = 'Q'
	fromClientSync     = 'S'
	fromClientFlush    = 'H'
	fromClientFunction = 'F'
	fromClientParse    = 'P'
	fromClientBind     = 'B'
	fromClientExecute  = 'E'
	fromClientCopyData = 'd'
	fromClientCopyDone = 'c'
	fromClientCopyFail = 'f'
	fromClientEnd      = 'X'

	fromServerReady        = 'Z'
	fromServerError        = 'E'
	fromServerParsed       = '1'
	fromServerBound        = '2'
	fromServerComplete     = 'C'
	fromServerEmpty        = 'I'
	fromServerNotice       = 'N'
	fromServerStatus       = 'S'
	fromServerNotification = 'A'
)

// Codes of the packets with which a client may begin. They stand where a start-up packet has the protocol version.
const (
	codeCancel = 80877102
	codeSSL    = 80877103
	codeGSS    = 80877104
)

// maxStartup is the server's own limit for a start-up packet.
const maxStartup = 10_000

// refuseEncryption answers a client that asks for SSL or GSS: messages that cannot be read cannot be followed.
var refuseEncryption = []byte{'N'}

// readStartup reads one start-up packet, which has a length but no type, and returns it whole with its code.
func readStartup(r io.Reader) (packet []byte, code uint32, err error) {
	header := make([]byte, 8)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, 0, err
	}
	length := binary.BigEndian.Uint32(header)
	if length < 8 || length > maxStartup {
		return nil, 0, fmt.Errorf("a start-up packet of %d bytes", length)
	}
	packet = slices.Concat(header, make([]byte, length-8))
	if _, err := io.ReadFull(r, packet[8:]); err != nil {
		return nil, 0, err
	}
	return packet, binary.BigEndian.Uint32(header[4:]), nil
}

// framer finds the messages in a stream of bytes that arrives in pieces. Each message is a type, a length and a body.
// The zero value stands before the first message.
type framer struct {
	header [5]byte
	filled int    // bytes of the header that have arrived
	body   uint32 // bytes of the body that have not
}

// feed reads the next piece and calls seen with the type of each message that ends in it.
func (f *framer) feed(piece []byte, seen func(kind byte)) {
	for len(piece) > 0 {
		if f.filled < len(f.header) {
			n := copy(f.header[f.filled:], piece)
			f.filled, piece = f.filled+n, piece[n:]
			if f.filled < len(f.header) {
				return
			}
			f.body = max(binary.BigEndian.Uint32(f.header[1:]), 4) - 4 // the length counts itself
		}
		n := min(uint64(f.body), uint64(len(piece)))
		f.body, piece = f.body-uint32(n), piece[n:]
		if f.body == 0 {
			f.filled = 0
			seen(f.header[0])
		}
	}
}

// message is one whole message: its type, its length and its body.
type message []byte

func (m message) kind() byte   { return m[0] }
func (m message) body() []byte { return m[headerSize:] }

const headerSize = 5

// splitter cuts a stream of bytes that arrives in pieces into whole messages. The zero value stands before the first one.
type splitter struct{ rest []byte }

// feed takes the next piece and returns the messages that are whole by now, in memory of their own.
func (s *splitter) feed(piece []byte) []message {
	s.rest = append(s.rest, piece...)
	var whole []message
	for len(s.rest) >= headerSize {
		size := 1 + int(max(binary.BigEndian.Uint32(s.rest[1:]), 4)) // the length counts itself, and not the type
		if len(s.rest) < size {
			break
		}
		whole = append(whole, slices.Clone(message(s.rest[:size])))
		s.rest = s.rest[size:]
	}
	return whole
}

// joined puts messages together again.
func joined(messages []message) []byte {
	var stream []byte
	for _, m := range messages {
		stream = append(stream, m...)
	}
	return stream
}
