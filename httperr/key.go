package httperr

import (
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
)

// KeyHeader is the header field that names the operation of a request.
const KeyHeader = "Idempotency-Key"

const keyPath = "/header/" + KeyHeader

// KeyFromHeader returns the key of a request: a UUID in its 36-character form, as a string of RFC 8941 (`"8e03978e-…"`). The
// bare UUID that many clients send is taken for the same: it can mean nothing else. A missing, an empty or a repeated field, the
// nil UUID and everything else, parameters of the string too, are an *[contract.InvalidError], which [Write] answers with 400.
// No error shows the value.
func KeyFromHeader(h http.Header) (uuid.UUID, error) {
	values := h.Values(KeyHeader)
	switch len(values) {
	case 0:
		return uuid.Nil, invalidKey("is required")
	case 1:
	default:
		return uuid.Nil, invalidKey("must be there once")
	}
	text := unquoted(strings.Trim(values[0], " \t"))
	key, err := uuid.Parse(text)
	if err != nil || len(text) != len(uuid.Nil.String()) || key == uuid.Nil {
		return uuid.Nil, invalidKey("must be a UUID in its 36-character form, in double quotes, other than the nil UUID")
	}
	return key, nil
}

// unquoted strips one pair of quotes. What a string could escape is no part of a UUID.
func unquoted(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

func invalidKey(problem string) error {
	return &contract.InvalidError{Path: keyPath, Problem: problem}
}

// SetKey sets the key of a request, for clients.
func SetKey(h http.Header, key uuid.UUID) { h.Set(KeyHeader, `"`+key.String()+`"`) }

// WithKey is a handler for requests that must have a key. One without a readable key is answered with 400 and does not reach it.
func WithKey(handle func(w http.ResponseWriter, r *http.Request, key uuid.UUID)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := KeyFromHeader(r.Header)
		if err != nil {
			Write(w, err)
			return
		}
		handle(w, r, key)
	})
}
