package contracttest_test

import (
	"bytes"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/contract"
)

// reading decodes a document that was changed first.
func reading(change func([]byte) []byte) impl {
	return impl{DecodeReceipt: func(document []byte) (r contract.Receipt, err error) {
		err = r.UnmarshalJSON(change(bytes.Clone(document)))
		return r, err
	}}
}

func advancing(change func(standing, next contract.Receipt) (contract.Receipt, contract.Receipt)) impl {
	return impl{AdvanceReceipt: func(standing, next contract.Receipt) (contract.Receipt, error) {
		s, n := change(standing, next)
		r, err := s.Advance(n)
		if err != nil {
			return standing, err
		}
		return r, nil
	}}
}

func answering(change func(contract.Receipt, error) error) impl {
	return impl{ReceiptErr: func(r contract.Receipt) error { return change(r, r.Err()) }}
}

func wrongReceipts() []wrong {
	return append([]wrong{
		{"a receipt that is believed without evidence", impl{DecodeReceipt: func(document []byte) (r contract.Receipt, err error) {
			if err = r.UnmarshalJSON(document); err != nil && strings.Contains(err.Error(), "without evidence") {
				return r, nil
			}
			return r, err
		}}, "receipts/applied without evidence"},
		{"a receipt whose digest may be in upper case", reading(bytes.ToLower), "receipts/digest: in upper case"},
		{"a receipt whose missing count is zero", reading(func(d []byte) []byte {
			return bytes.ReplaceAll(d, []byte(`"barrier":{"id":"b"}`), []byte(`"barrier":{"id":"b","active_calls":0}`))
		}), "receipts/barrier: without the count"},
		{"a receipt with the name of its enumeration", reading(func(d []byte) []byte { return bytes.ReplaceAll(d, []byte("RESULT_CODE_"), nil) }),
			"receipts/result: with its prefix"},

		{"a receipt that is written as it comes", impl{EncodeReceipt: func(r contract.Receipt) ([]byte, error) {
			if r.Result == contract.ResultApplied && r.Validate() != nil {
				r.Ref = "?"
			}
			return r.MarshalJSON()
		}}, "receipts_encoding/what could not be read is not written: applied without evidence"},
		{"a receipt that leaves the count out", impl{EncodeReceipt: func(r contract.Receipt) ([]byte, error) {
			data, err := r.MarshalJSON()
			return bytes.ReplaceAll(data, []byte(`,"active_calls":0`), nil), err
		}}, "receipts_encoding/a barrier: the count is never left out"},

		{"a terminal receipt that changes", advancing(func(s, n contract.Receipt) (contract.Receipt, contract.Receipt) {
			if s.Result == contract.ResultNotApplied {
				s.Result = contract.ResultUnknown
			}
			return s, n
		}), "receipts_advance/NOT_APPLIED to APPLIED"},
		{"an unknown receipt that goes back to accepted", impl{AdvanceReceipt: func(s, n contract.Receipt) (contract.Receipt, error) {
			if s.Result == contract.ResultUnknown && n.Result == contract.ResultAccepted {
				return n, nil
			}
			return s.Advance(n)
		}}, "receipts_advance/UNKNOWN to ACCEPTED"},
		{"evidence that nobody stands for", advancing(func(s, n contract.Receipt) (contract.Receipt, contract.Receipt) {
			if n.By == "" {
				n.By = "somebody"
			}
			return s, n
		}), "receipts_advance/nobody stands for it"},
		{"a receipt that becomes another operation's", impl{AdvanceReceipt: func(s, n contract.Receipt) (contract.Receipt, error) {
			r, err := s.Advance(n)
			if err == nil {
				r.OperationID = n.OperationID
			}
			return r, err
		}}, "receipts_advance/the operation stays what it is"},

		{"accepted is applied", answering(func(r contract.Receipt, err error) error {
			if r.Result == contract.ResultAccepted {
				return nil
			}
			return err
		}), "receipts_answers/accepted"},
		{"a success of the transport is one of the operation", answering(func(r contract.Receipt, err error) error {
			if r.Result == "" {
				return nil
			}
			return err
		}), "receipts_answers/no receipt"},
		{"unknown is not applied", answering(func(r contract.Receipt, err error) error {
			if r.Result == contract.ResultUnknown {
				return contract.ErrNotApplied
			}
			return err
		}), "receipts_answers/unknown"},
	}, wrongMeta()...)
}

func wrongMeta() []wrong {
	return []wrong{
		{"no version means the first", impl{CheckVersion: func(m contract.RequestMeta, supported ...string) error {
			if m.ProtocolVersion == "" {
				return nil
			}
			return m.CheckVersion(supported...)
		}}, "protocol_versions/none"},
		{"an unsupported version is an invalid argument", impl{CheckVersion: func(m contract.RequestMeta, supported ...string) error {
			if m.CheckVersion(supported...) != nil {
				return contract.ErrInvalid
			}
			return nil
		}}, "protocol_versions/a later one"},
		{"versions that begin the same are the same", impl{CheckVersion: func(m contract.RequestMeta, supported ...string) error {
			for _, s := range supported {
				if m.ProtocolVersion != "" && strings.HasPrefix(s, m.ProtocolVersion) {
					return nil
				}
			}
			return m.CheckVersion(supported...)
		}}, "protocol_versions/a prefix"},
		{"a mutation without a key", impl{CheckMutation: func(m contract.RequestMeta, method contract.Method) error {
			if m.IdempotencyKey == "" {
				m.IdempotencyKey = m.OperationID
			}
			return m.ValidateMutation(method)
		}}, "mutation_ids/no key"},
		{"a stop that is held up for an id", impl{CheckMutation: func(m contract.RequestMeta, _ contract.Method) error {
			return m.ValidateMutation(contract.Method{})
		}}, "mutation_ids/redelivered, without ids"},
		{"a key that must be a UUID", impl{CheckMutation: func(m contract.RequestMeta, method contract.Method) error {
			if !strings.Contains(m.IdempotencyKey, "-") {
				m.IdempotencyKey = ""
			}
			return m.ValidateMutation(method)
		}}, "mutation_ids/a key that is no UUID"},

		{"a deadline that is inclusive", impl{Before: func(now, deadline time.Time) error { return before(now, deadline.Add(1)) }},
			"fencing_deadlines/at the deadline"},
		{"no deadline means no end", impl{Before: func(now, deadline time.Time) error {
			if deadline.IsZero() {
				return nil
			}
			return before(now, deadline)
		}}, "fencing_deadlines/no deadline"},
	}
}
