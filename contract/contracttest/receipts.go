package contracttest

import (
	"encoding/hex"

	"github.com/confirmexec/confirmexec/contract"
)

// receiptTopics are about receipts of mutations, and about what their requests carry.
var receiptTopics = []topic{
	newTopic("receipts", gotReceipt, "DecodeReceipt"),
	newTopic("receipts_encoding", gotReceiptEncoding, "EncodeReceipt"),
	newTopic("receipts_advance", gotAdvance, "AdvanceReceipt"),
	newTopic("receipts_answers", gotReceiptAnswer, "ReceiptErr"),
	newTopic("protocol_versions", gotVersion, "CheckVersion"),
	newTopic("mutation_ids", gotMutation, "CheckMutation"),
}

type receipt struct {
	Result      anyResult `json:"result"`
	Method      raw       `json:"method,omitempty"`
	OperationID raw       `json:"operation_id,omitempty"`
	Digest      string    `json:"digest,omitempty"`
	Before      int64     `json:"before,omitempty"`
	After       int64     `json:"after,omitempty"`
	Barrier     *barrier  `json:"barrier,omitempty"`
	Ref         raw       `json:"ref,omitempty"`
	Detail      raw       `json:"detail,omitempty"`
	By          raw       `json:"by,omitempty"`
	RecordedAt  int64     `json:"recorded_at,omitempty"`
	Failure     *failure  `json:"failure,omitempty"`
	Replayed    bool      `json:"replayed,omitempty"`
}

// anyResult is a result code, or what somebody may take for one.
type anyResult string

type barrier struct {
	ID          raw   `json:"id"`
	ActiveCalls int64 `json:"active_calls"`
	Epoch       raw   `json:"epoch,omitempty"`
}

type failure struct {
	Code    contract.FailureCode `json:"code"`
	Reason  raw                  `json:"reason,omitempty"`
	Effect  string               `json:"effect,omitempty"`
	Message raw                  `json:"message,omitempty"`
	Current int64                `json:"current,omitempty"`
}

func (r receipt) read() (contract.Receipt, error) {
	out := contract.Receipt{
		Result: contract.ResultCode(r.Result), Method: string(r.Method), OperationID: string(r.OperationID),
		Before: r.Before, After: r.After, Ref: string(r.Ref), Detail: string(r.Detail), By: string(r.By),
		RecordedAt: r.RecordedAt, Replayed: r.Replayed,
	}
	if b := r.Barrier; b != nil {
		out.Barrier = &contract.Barrier{ID: string(b.ID), ActiveCalls: b.ActiveCalls, Epoch: string(b.Epoch)}
	}
	if f := r.Failure; f != nil {
		out.Failure = &contract.Failure{
			Code: f.Code, Reason: contract.Reason(f.Reason), Effect: effectOf(f.Effect), Message: string(f.Message), Current: f.Current,
		}
	}
	_, err := hex.Decode(out.Digest[:], []byte(r.Digest))
	return out, err
}

func toReceipt(r contract.Receipt) *receipt {
	out := &receipt{
		Result: anyResult(r.Result), Method: raw(r.Method), OperationID: raw(r.OperationID), Digest: hex.EncodeToString(r.Digest[:]),
		Before: r.Before, After: r.After, Ref: raw(r.Ref), Detail: raw(r.Detail), By: raw(r.By),
		RecordedAt: r.RecordedAt, Replayed: r.Replayed,
	}
	if b := r.Barrier; b != nil {
		out.Barrier = &barrier{raw(b.ID), b.ActiveCalls, raw(b.Epoch)}
	}
	if f := r.Failure; f != nil {
		out.Failure = &failure{Code: f.Code, Reason: raw(f.Reason), Message: raw(f.Message), Current: f.Current}
		if f.Effect != contract.EffectByCode {
			out.Failure.Effect = f.Effect.String()
		}
	}
	return out
}

type receiptWant struct {
	refusal
	Receipt *receipt `json:"receipt,omitempty"`
}

func receiptOf(r contract.Receipt, err error, want refusal) receiptWant {
	if err != nil {
		return receiptWant{refusal: refusalOf(err, want)}
	}
	return receiptWant{Receipt: toReceipt(r)}
}

func gotReceipt(i Implementation, in documentIn, want receiptWant) receiptWant {
	r, err := i.DecodeReceipt(in.Document)
	return receiptOf(r, err, want.refusal)
}

type receiptIn struct {
	Receipt receipt `json:"receipt"`
}

func gotReceiptEncoding(i Implementation, in receiptIn, _ documentWant) documentWant {
	r, err := in.Receipt.read()
	if err != nil {
		return documentOf(nil, err)
	}
	return documentOf(i.EncodeReceipt(r))
}

type advanceIn struct {
	Standing receipt `json:"standing"`
	Next     receipt `json:"next"`
}

// gotAdvance also compares what is returned with a refusal, which is what stood.
func gotAdvance(i Implementation, in advanceIn, want receiptWant) receiptWant {
	standing, err := in.Standing.read()
	if err != nil {
		return receiptOf(standing, err, refusal{})
	}
	next, err := in.Next.read()
	if err != nil {
		return receiptOf(next, err, refusal{})
	}
	r, err := i.AdvanceReceipt(standing, next)
	if err != nil && r != standing {
		return receiptWant{refusal: refusal{Other: "a refusal that changes what stands"}}
	}
	return receiptOf(r, err, want.refusal)
}

type answerWant struct {
	refusal
	Applied bool `json:"applied"`
}

func gotReceiptAnswer(i Implementation, in receiptIn, want answerWant) answerWant {
	r, err := in.Receipt.read()
	if err == nil {
		err = i.ReceiptErr(r)
	}
	return answerWant{refusalOf(err, want.refusal), err == nil}
}

type versionIn struct {
	ProtocolVersion string   `json:"protocol_version"`
	Supported       []string `json:"supported"`
}

func gotVersion(i Implementation, in versionIn, want acceptance) acceptance {
	err := i.CheckVersion(contract.RequestMeta{ProtocolVersion: in.ProtocolVersion}, in.Supported...)
	return acceptanceOf(err, want.refusal)
}

type mutationIn struct {
	OperationID    raw  `json:"operation_id"`
	IdempotencyKey raw  `json:"idempotency_key"`
	Redelivered    bool `json:"redelivered"`
}

func gotMutation(i Implementation, in mutationIn, want acceptance) acceptance {
	m := contract.RequestMeta{OperationID: string(in.OperationID), IdempotencyKey: string(in.IdempotencyKey)}
	err := i.CheckMutation(m, contract.Method{Resend: in.Redelivered, Redelivered: in.Redelivered})
	return acceptanceOf(err, want.refusal)
}
