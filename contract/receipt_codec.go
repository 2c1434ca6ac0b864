package contract

import (
	"encoding/hex"

	"github.com/go-json-experiment/json"
)

// ReceiptVersion is the schema version of a receipt's JSON form.
const ReceiptVersion = "operation_receipt.v1"

// receiptDoc is a receipt as it is written.
type receiptDoc struct {
	SchemaVersion string      `json:"schema_version"`
	Result        ResultCode  `json:"result"`
	Method        string      `json:"method"`
	OperationID   string      `json:"operation_id"`
	Digest        string      `json:"digest"`
	Before        int64       `json:"before,omitzero"`
	After         int64       `json:"after,omitzero"`
	Barrier       *Barrier    `json:"barrier,omitzero"`
	Ref           string      `json:"ref,omitempty"`
	Detail        string      `json:"detail,omitempty"`
	By            string      `json:"by,omitempty"`
	RecordedAt    int64       `json:"recorded_at,omitzero"`
	Failure       *failureDoc `json:"failure,omitzero"`
	Replayed      bool        `json:"replayed,omitzero"`
}

type failureDoc struct {
	Code    FailureCode `json:"code"`
	Reason  Reason      `json:"reason,omitempty"`
	Effect  string      `json:"effect,omitempty"`
	Message string      `json:"message,omitempty"`
	Current int64       `json:"current,omitzero"`
}

// wireReceipt is a receipt as it is read. A nil member is one that the document lacks.
type wireReceipt struct {
	SchemaVersion *string      `json:"schema_version"`
	Result        *ResultCode  `json:"result"`
	Method        *string      `json:"method"`
	OperationID   *string      `json:"operation_id"`
	Digest        *string      `json:"digest"`
	Before        int64        `json:"before"`
	After         int64        `json:"after"`
	Barrier       *wireBarrier `json:"barrier"`
	Ref           string       `json:"ref"`
	Detail        string       `json:"detail"`
	By            string       `json:"by"`
	RecordedAt    int64        `json:"recorded_at"`
	Failure       *wireFailure `json:"failure"`
	Replayed      bool         `json:"replayed"`
}

type wireBarrier struct {
	ID          *string `json:"id"`
	ActiveCalls *int64  `json:"active_calls"`
	Epoch       string  `json:"epoch"`
}

type wireFailure struct {
	Code    *FailureCode `json:"code"`
	Reason  Reason       `json:"reason"`
	Effect  *string      `json:"effect"`
	Message string       `json:"message"`
	Current int64        `json:"current"`
}

// MarshalJSON writes the receipt as [Receipt.Clean] leaves it. It refuses what [Receipt.Validate] refuses, since nobody could read
// it again; the error is an *[InvalidError].
func (r Receipt) MarshalJSON() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	c := r.Clean()
	doc := receiptDoc{
		ReceiptVersion, c.Result, c.Method, c.OperationID, hex.EncodeToString(c.Digest[:]), c.Before, c.After, c.Barrier,
		c.Ref, c.Detail, c.By, c.RecordedAt, nil, c.Replayed,
	}
	if f := c.Failure; f != nil {
		doc.Failure = &failureDoc{Code: f.Code, Reason: f.Reason, Message: f.Message, Current: f.Current}
		if f.Effect != EffectByCode {
			doc.Failure.Effect = f.Effect.String()
		}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, decodeError(err)
	}
	return data, nil
}

// UnmarshalJSON reads what MarshalJSON wrote, strictly: unknown, missing, repeated and null members, another version, another
// result, texts that are not clean and what [Receipt.Validate] refuses are errors, of type *[InvalidError].
func (r *Receipt) UnmarshalJSON(data []byte) error {
	var w wireReceipt
	if err := decode(data, &w); err != nil {
		return err
	}
	read, err := w.read()
	if err != nil {
		return err
	}
	if err := read.Validate(); err != nil {
		return err
	}
	if !read.clean() {
		return invalid("", "holds a text that is too long or not plain")
	}
	*r = read
	return nil
}

func (w wireReceipt) read() (r Receipt, err error) {
	if err := checkPresent("",
		member{"schema_version", w.SchemaVersion != nil},
		member{"result", w.Result != nil},
		member{"method", w.Method != nil},
		member{"operation_id", w.OperationID != nil},
		member{"digest", w.Digest != nil}); err != nil {
		return r, err
	}
	if *w.SchemaVersion != ReceiptVersion {
		return r, invalid("/schema_version", `must be "`+ReceiptVersion+`"`)
	}
	r = Receipt{
		Result: *w.Result, Method: *w.Method, OperationID: *w.OperationID, Before: w.Before, After: w.After,
		Ref: w.Ref, Detail: w.Detail, By: w.By, RecordedAt: w.RecordedAt, Replayed: w.Replayed,
	}
	if r.Digest, err = readDigest(*w.Digest); err != nil {
		return r, err
	}
	if r.Barrier, err = w.Barrier.read(); err != nil {
		return r, err
	}
	r.Failure, err = w.Failure.read()
	return r, err
}

// readDigest takes the form that is written only: a digest has one text.
func readDigest(text string) (d Digest, err error) {
	n, err := hex.Decode(d[:], []byte(text[:min(len(text), 2*len(d))]))
	if err != nil || n != len(d) || hex.EncodeToString(d[:]) != text {
		return Digest{}, invalid("/digest", "must be 64 hexadecimal digits in lower case")
	}
	return d, nil
}

// read wants the count: what a document does not say is no evidence that nothing was running.
func (w *wireBarrier) read() (*Barrier, error) {
	if w == nil {
		return nil, nil
	}
	if err := checkPresent("/barrier", member{"id", w.ID != nil}, member{"active_calls", w.ActiveCalls != nil}); err != nil {
		return nil, err
	}
	return &Barrier{*w.ID, *w.ActiveCalls, w.Epoch}, nil
}

func (w *wireFailure) read() (*Failure, error) {
	if w == nil {
		return nil, nil
	}
	if err := checkPresent("/failure", member{"code", w.Code != nil}); err != nil {
		return nil, err
	}
	f := &Failure{Code: *w.Code, Reason: w.Reason, Message: w.Message, Current: w.Current}
	switch {
	case w.Effect == nil:
	case *w.Effect == EffectNone.String():
		f.Effect = EffectNone
	case *w.Effect == EffectUnknown.String():
		f.Effect = EffectUnknown
	default:
		return nil, invalid("/failure/effect", `must be "none" or "unknown"`)
	}
	return f, nil
}

// clean says whether [Receipt.Clean] changes nothing.
func (r Receipt) clean() bool {
	c := r.Clean()
	if r.Barrier != nil && *r.Barrier != *c.Barrier || r.Failure != nil && *r.Failure != *c.Failure {
		return false
	}
	c.Barrier, c.Failure = r.Barrier, r.Failure
	return c == r
}
