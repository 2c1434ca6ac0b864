package httperr

import (
	"io"
	"mime"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/confirmexec/confirmexec/contract"
)

// MaxBody is how much of a response [FromResponse] reads, in bytes. A document of this package is far smaller.
const MaxBody = 64 << 10

// FromResponse returns the failure that the receiver itself told in a response. It is read from a problem document's members
// alone, whatever the status is: a proxy may have changed that. The body is read if the response says that it is a problem
// document, and else left as it is; closing it is the caller's.
//
// It is false for every other response: one without a document, one whose document is too long, cut off, or not of this package,
// such as a gateway's own. A status alone is no failure (R4): unless the response is what the caller asked for, the outcome
// is not known, and [contract.Decide] with a nil failure says what to do.
func FromResponse(resp *http.Response) (f *contract.Failure, ok bool) {
	if resp == nil || resp.Body == nil || !isProblem(resp.Header) {
		return nil, false
	}
	if body, whole := read(resp.Body); whole {
		return decode(body)
	}
	return nil, false
}

// read returns the body; false for one that broke off or is too long.
func read(r io.Reader) (body []byte, whole bool) {
	body, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	return body, err == nil && len(body) <= MaxBody
}

func isProblem(h http.Header) bool {
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return false
	}
	media, _, err := mime.ParseMediaType(types[0])
	return err == nil && media == ContentType
}

// wireProblem is the part of a document that is read. A detail that is no text is passed over, as RFC 9457 wants it.
type wireProblem struct {
	Detail  jsontext.Value       `json:"detail"`
	Code    contract.FailureCode `json:"code"`
	Reason  contract.Reason      `json:"reason"`
	Effect  string               `json:"effect"`
	Current int64                `json:"current"`
	Action  contract.Action      `json:"action"`
}

// decode reads a document. Members that it does not know are passed over, as RFC 9457 wants it; repeated ones are refused. Many
// services have a code of their own in their documents: only one with the effect and the action that belong to it is a failure.
func decode(body []byte) (*contract.Failure, bool) {
	var doc wireProblem
	err := json.Unmarshal(body, &doc)
	if f, ok := doc.failure(); ok && err == nil {
		return f, true
	}
	return nil, false
}

func (doc wireProblem) failure() (*contract.Failure, bool) {
	f := &contract.Failure{Code: doc.Code, Reason: doc.Reason, Message: text(doc.Detail), Current: doc.Current}
	switch doc.Effect {
	case contract.EffectNone.String():
		f.Effect = contract.EffectNone
	case contract.EffectUnknown.String():
		f.Effect = contract.EffectUnknown
	default:
		return nil, false
	}
	if _, known := f.Code.Rule(); !known || doc.Action != actionOf(f) {
		return nil, false
	}
	return clean(f), true
}

func text(v jsontext.Value) (s string) {
	if v.Kind() == jsontext.KindString {
		_ = json.Unmarshal(v, &s) // it is a valid string
	}
	return s
}
