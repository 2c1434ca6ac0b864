package contracttest

import (
	"errors"
	"time"

	"github.com/confirmexec/confirmexec/contract"
)

// Implementation is what is tested: a function for each question that the vectors ask, in the terms of package contract. A topic
// whose functions are all nil is left out, and one with some of them fails. Errors must be those of package contract: a
// *[contract.InvalidError] with the path of what is wrong, or a *[contract.Failure].
type Implementation struct {
	Strict bool // a topic without its functions fails, and is not skipped

	// Documents. Zero limits mean the defaults.
	DecodeProposal     func(document []byte, l contract.Limits) (contract.OperationProposal, error)
	DecodeConfirmation func(document []byte, l contract.Limits) (contract.OperationConfirmation, error)
	EncodeProposal     func(contract.OperationProposal) ([]byte, error)
	EncodeConfirmation func(contract.OperationConfirmation) ([]byte, error)
	CheckSurfaceKey    func(key string) error
	IsStale            func(contract.OperationConfirmation, contract.CurrentSurfaceState) bool
	DriftOf            func(contract.OperationConfirmation, contract.CurrentSurfaceState) contract.Drift

	// Outcomes and results. EncodeOutcomes and EncodeResult make every text safe first.
	DecodeOutcomes func(document []byte) ([]contract.OperationItemOutcome, error)
	EncodeOutcomes func([]contract.OperationItemOutcome) []byte
	DecodeResult   func(document []byte) (contract.OperationResult, error)
	EncodeResult   func(contract.OperationResult) ([]byte, error)
	Tally          func(contract.OperationResult) contract.Tally
	Summary        func(contract.OperationResult) string
	// Attention says whether a caller that only looks at errors gets one, and what else is special.
	Attention func(contract.OperationResult) (attention, cancelled, pruned bool)

	// Digests.
	Canonical     func(document []byte) ([]byte, error)
	Digest        func(contract.OperationProposal) (contract.Digest, error)
	ContentDigest func(method string, fields []Field) contract.Digest

	// Failures. GRPCStatus and HTTPStatus are the statuses that tell a failure.
	RetryTable func() []contract.Rule
	Rule       func(contract.FailureCode) (contract.Rule, bool)
	CodeOfGRPC func(status uint32) (contract.FailureCode, bool)
	GRPCStatus func(*contract.Failure) uint32
	HTTPStatus func(*contract.Failure) int
	// FailureResult is the result code of the request that a failure answers.
	FailureResult func(*contract.Failure) contract.ResultCode
	Decide        func(contract.Method, *contract.Failure, contract.Delivery) contract.Decision
	// MethodOf is what is said of a method, by its full name, in the Agent contract of a service.
	MethodOf func(service, method string) contract.Method

	// Receipts and the meta data of mutations.
	DecodeReceipt  func(document []byte) (contract.Receipt, error)
	EncodeReceipt  func(contract.Receipt) ([]byte, error)
	AdvanceReceipt func(standing, next contract.Receipt) (contract.Receipt, error)
	ReceiptErr     func(contract.Receipt) error
	CheckVersion   func(m contract.RequestMeta, supported ...string) error
	CheckMutation  func(contract.RequestMeta, contract.Method) error

	// Keys plays events, one after the other, on a system in which nothing has happened yet. It returns the answer to each, and
	// how often an executor was called in all.
	Keys func(events []KeyEvent) (answers []string, runs int, err error)

	// Fencing: what stands, and what is shown. A nil error admits.
	EpochIs    func(stands Office, shown string) error
	TakeOffice func(stands Office, epoch string) (Office, error)
	Admit      func(Session, Caller) error
	Activate   func(Session, Caller) (Session, error)
	ShowToken  func(m Mark, token int64, holder string) (Mark, error)
	Before     func(now, deadline time.Time) error
}

// Field is one field of a mutation's content. Value holds its bytes: of an int eight, big endian; of a bool one, 0 or 1.
type Field struct {
	Name, Kind string // the kind is "text", "bytes", "int" or "bool"
	Value      []byte
}

// Contract returns the implementation that package contract is. It has no functions for keys, fencing, and the statuses of
// transports: other packages have these.
func Contract() Implementation {
	return Implementation{
		DecodeProposal:     contract.DecodeProposal,
		DecodeConfirmation: contract.DecodeConfirmation,
		EncodeProposal:     contract.OperationProposal.MarshalJSON,
		EncodeConfirmation: contract.OperationConfirmation.MarshalJSON,
		CheckSurfaceKey:    func(key string) error { return contract.SurfaceKey(key).Validate(contract.Limits{}) },
		IsStale:            contract.IsStale,
		DriftOf:            contract.DriftOf,

		DecodeOutcomes: contract.DecodeOutcomes,
		EncodeOutcomes: contract.EncodeOutcomes,
		DecodeResult:   decodeWith((*contract.OperationResult).UnmarshalJSON),
		EncodeResult:   contract.OperationResult.MarshalJSON,
		Tally:          contract.OperationResult.Tally,
		Summary:        contract.OperationResult.Summary,
		Attention: func(r contract.OperationResult) (attention, cancelled, pruned bool) {
			return errors.Is(r.Err(), contract.ErrUnsettled), r.Cancelled(), r.Pruned()
		},

		Canonical:     contract.CanonicalJSON,
		Digest:        contract.DigestOf,
		ContentDigest: contentDigest,

		RetryTable:    contract.RetryTable,
		Rule:          contract.FailureCode.Rule,
		CodeOfGRPC:    contract.FailureCodeOfGRPC,
		Decide:        contract.Decide,
		FailureResult: (*contract.Failure).Result,
		MethodOf:      func(service, method string) contract.Method { return contract.AgentMethods(service).Of(method) },

		DecodeReceipt:  decodeWith((*contract.Receipt).UnmarshalJSON),
		EncodeReceipt:  contract.Receipt.MarshalJSON,
		AdvanceReceipt: contract.Receipt.Advance,
		ReceiptErr:     contract.Receipt.Err,
		CheckVersion:   contract.RequestMeta.CheckVersion,
		CheckMutation:  contract.RequestMeta.ValidateMutation,
	}
}

func decodeWith[T any](unmarshal func(*T, []byte) error) func([]byte) (T, error) {
	return func(document []byte) (T, error) {
		var v T
		err := unmarshal(&v, document)
		return v, err
	}
}

func contentDigest(method string, fields []Field) contract.Digest {
	c := contract.NewContent(method)
	for _, f := range fields {
		switch f.Kind {
		case "text":
			c.Text(f.Name, string(f.Value))
		case "bytes":
			c.Bytes(f.Name, f.Value)
		case "int":
			c.Int(f.Name, intOf(f.Value))
		case "bool":
			c.Bool(f.Name, f.Value[0] == 1)
		}
	}
	return c.Digest()
}
