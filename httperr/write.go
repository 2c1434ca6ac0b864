package httperr

import (
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ContentType is the media type of a problem document.
const ContentType = "application/problem+json"

// Write answers a request with the problem of an error: [ProblemOf] and [Problem.Write]. Like http.Error it does not end the
// handler, and it must be called before anything was written.
func Write(w http.ResponseWriter, err error) { ProblemOf(err).Write(w) }

// Write answers a request with the document. Header fields that were set for another body go; it may not be cached, since it is the
// answer to one request. A status that is no error becomes 500. Other fields, such as WWW-Authenticate, stay as the caller set
// them.
func (p Problem) Write(w http.ResponseWriter) {
	if p.Status < 400 || p.Status > 599 {
		p.Status = http.StatusInternalServerError
	}
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Expires"} {
		h.Del(name)
	}
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	body, _ := json.Marshal(p, jsontext.AllowInvalidUTF8(true)) // texts and whole numbers always encode
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) //nolint:gosec // JSON, and said to be; an error means that there is nobody left to tell
}
