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

// MarshalJSON writes the receipt as [Receipt.Clean] leaves it. The error is an *[InvalidError] for a result that is none of the
// seven.
func (r Receipt) MarshalJSON() ([]byte, error) {
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

// UnmarshalJSON reads what MarshalJSON wrote, strictly: unknown, repeated and null members, another version, another result and
// what [Receipt.Validate] refuses are errors, of type *[InvalidError].
func (r *Receipt) UnmarshalJSON(data []byte) error {
	var doc receiptDoc
	if err := decode(data, &doc); err != nil {
		return err
	}
	if doc.SchemaVersion != ReceiptVersion {
		return invalid("/schema_version", `must be "`+ReceiptVersion+`"`)
	}
	read := Receipt{
		Result: doc.Result, Method: doc.Method, OperationID: doc.OperationID, Before: doc.Before, After: doc.After, Barrier: doc.Barrier,
		Ref: doc.Ref, Detail: doc.Detail, By: doc.By, RecordedAt: doc.RecordedAt, Replayed: doc.Replayed,
	}
	digest, err := hex.DecodeString(doc.Digest)
	if err != nil || len(digest) != len(read.Digest) {
		return invalid("/digest", "must be 64 hexadecimal digits")
	}
	read.Digest = Digest(digest)
	if doc.Failure != nil {
		if read.Failure, err = doc.Failure.read(); err != nil {
			return err
		}
	}
	if err := read.Validate(); err != nil {
		return err
	}
	*r = read
	return nil
}

func (d failureDoc) read() (*Failure, error) {
	f := &Failure{Code: d.Code, Reason: d.Reason, Message: d.Message, Current: d.Current}
	switch d.Effect {
	case "":
	case EffectNone.String():
		f.Effect = EffectNone
	case EffectUnknown.String():
		f.Effect = EffectUnknown
	default:
		return nil, invalid("/failure/effect", `must be "none" or "unknown"`)
	}
	return f, nil
}
