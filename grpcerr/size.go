package grpcerr

import (
	"encoding/base64"
	"unicode/utf8"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// maxMetadata is what the header fields of one error may have in bytes, counted as HTTP/2 does. Peers refuse above 8 KiB,
	// and the fields of others need room.
	maxMetadata = 4 << 10
	// maxText is the limit of a status text that was cut.
	maxText = 256
	// fieldOverhead is what HTTP/2 counts for a header field beside its name and value.
	fieldOverhead = 32
)

// size is what the status needs as header fields.
func size(st *spb.Status) int {
	n := len("grpc-message") + percentEncoded(st.GetMessage()) + fieldOverhead
	if len(st.GetDetails()) > 0 {
		n += len("grpc-status-details-bin") + base64.RawStdEncoding.EncodedLen(proto.Size(st)) + fieldOverhead
	}
	return n
}

// percentEncoded is the length of a text as grpc-message.
func percentEncoded(text string) int {
	n := len(text)
	for _, b := range []byte(text) {
		if b < ' ' || b > '~' || b == '%' {
			n += 2
		}
	}
	return n
}

// sizeOf is what the trailers need as header fields.
func sizeOf(md metadata.MD) int {
	n := 0
	for name, values := range md {
		for _, value := range values {
			n += len(name) + len(value) + fieldOverhead
		}
	}
	return n
}

// fit returns a status that holds no failure as it is, unless it is too large: then its text is cut, and as many of
// the last details are left out as need be.
func fit(st *status.Status) *status.Status {
	p := st.Proto()
	if size(p) <= maxMetadata {
		return st
	}
	p.Message = shorten(p.GetMessage(), maxText)
	for len(p.GetDetails()) > 0 && size(p) > maxMetadata {
		p.Details = p.GetDetails()[:len(p.GetDetails())-1]
	}
	return status.FromProto(p)
}

// shorten cuts a text to limit bytes, between two characters.
func shorten(text string, limit int) string {
	const mark = "…"
	if len(text) <= limit {
		return text
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
