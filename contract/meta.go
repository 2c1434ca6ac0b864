package contract

import "slices"

// RequestMeta is what every request of the Agent contract carries beside its business content. Of these only OperationID and
// IdempotencyKey name the operation; AgentID, CellID, BootID, SessionGeneration and DispatcherEpoch are claims, which authorize
// nothing until they were compared with an authenticated binding (R114, R115).
type RequestMeta struct {
	ProtocolVersion   string // of the contract; the package's name is not one (R17)
	OperationID       string
	IdempotencyKey    string
	AgentID           string
	CellID            string
	BootID            string
	SessionGeneration int64
	DispatcherEpoch   string
}

// MaxMetaText is the limit of each text of a RequestMeta, in bytes.
const MaxMetaText = 128

// ReasonUnsupportedVersion is the reason of [ErrUnsupportedVersion].
const ReasonUnsupportedVersion Reason = "pramaan.agent_operation.unsupported_version"

// ErrUnsupportedVersion is the refusal of a request in a version of the contract that the receiver does not speak.
var ErrUnsupportedVersion = &Failure{Code: FailedPrecondition, Reason: ReasonUnsupportedVersion,
	Message: "the protocol version is not supported; nothing was done; use one that both sides speak"}

// CheckVersion refuses every protocol version that is not among those supported, the empty one included. The error is
// [ErrUnsupportedVersion] (R17).
func (m RequestMeta) CheckVersion(supported ...string) error {
	if m.ProtocolVersion == "" || !slices.Contains(supported, m.ProtocolVersion) {
		return ErrUnsupportedVersion
	}
	return nil
}

// ValidateMutation checks what a mutation needs: an operation id and an idempotency key, each one line of visible text of at
// most [MaxMetaText] bytes. A redelivered method needs neither: it is processed on every delivery, and no lack of an id may
// hold up a stop (R85). The error is an *[InvalidError] (R30).
func (m RequestMeta) ValidateMutation(method Method) error {
	if method.Redelivered {
		return nil
	}
	if err := checkText("/meta/operation_id", m.OperationID, MaxMetaText); err != nil {
		return err
	}
	return checkText("/meta/idempotency_key", m.IdempotencyKey, MaxMetaText)
}
