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

	fromServerReady        = 'Z'
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
