package grpcerr

import (
	"errors"
	"strings"

	"github.com/confirmexec/confirmexec/contract"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

const (
	codePrefix   = "FAILURE_CODE_"
	resultPrefix = "RESULT_CODE_"
)

// clean returns a failure as it can be sent and shown, without its cause.
func clean(f *contract.Failure) *contract.Failure {
	return contract.Receipt{Failure: f}.Clean().Failure
}

// FailureToProto returns a failure as it is sent: texts are cleaned, and the cause is left behind. A code that is not one of the
// ten becomes FAILURE_CODE_UNSPECIFIED. Nil stays nil.
func FailureToProto(f *contract.Failure) *pb.Failure {
	if f == nil {
		return nil
	}
	f = clean(f)
	p := &pb.Failure{Reason: string(f.Reason), Message: f.Message, Current: f.Current}
	if rule, ok := f.Code.Rule(); ok {
		p.Code = pb.FailureCode(rule.GRPC) //nolint:gosec // at most 16
	}
	switch f.Effect {
	case contract.EffectByCode:
	case contract.EffectNone:
		p.Effect = pb.Effect_EFFECT_NONE
	default:
		p.Effect = pb.Effect_EFFECT_UNKNOWN
	}
	return p
}

// FailureFromProto reads a failure. It is total: nil stays nil, texts are cleaned, and a number that this version does not know is
// a code that is none of the ten (the number as a text, empty for FAILURE_CODE_UNSPECIFIED), or an unknown effect. Under a code
// that is not known, no effect is known to be none.
func FailureFromProto(p *pb.Failure) *contract.Failure {
	if p == nil {
		return nil
	}
	f := &contract.Failure{Reason: contract.Reason(p.GetReason()), Message: p.GetMessage(), Current: p.GetCurrent()}
	if p.GetCode() != pb.FailureCode_FAILURE_CODE_UNSPECIFIED {
		f.Code = contract.FailureCode(strings.TrimPrefix(p.GetCode().String(), codePrefix))
	}
	switch {
	case p.GetEffect() == pb.Effect_EFFECT_UNSPECIFIED:
	case p.GetEffect() == pb.Effect_EFFECT_NONE && known(f.Code) != "":
		f.Effect = contract.EffectNone
	default:
		f.Effect = contract.EffectUnknown
	}
	return clean(f)
}

// ReceiptToProto returns a receipt as it is sent, and as [contract.Receipt.Clean] leaves it. A result that is none of the seven
// becomes RESULT_CODE_UNSPECIFIED, which no reader takes for a receipt.
func ReceiptToProto(r contract.Receipt) *pb.Receipt {
	r = r.Clean()
	p := &pb.Receipt{
		Result: pb.ResultCode(pb.ResultCode_value[resultPrefix+string(r.Result)]), // 0 for what is not there
		Method: r.Method, OperationId: r.OperationID, Digest: r.Digest[:], Before: r.Before, After: r.After,
		Ref: r.Ref, Detail: r.Detail, By: r.By, RecordedAtMs: r.RecordedAt, Failure: FailureToProto(r.Failure), Replayed: r.Replayed,
	}
	if b := r.Barrier; b != nil {
		p.Barrier = &pb.Barrier{Id: b.ID, ActiveCalls: b.ActiveCalls, Epoch: b.Epoch}
	}
	return p
}

// ReceiptFromProto reads the receipt of an OK reply. The error is [contract.ErrOutcomeUnknown] for a reply without a receipt, for
// a result that is unspecified or not known, and for what [contract.Receipt.Validate] refuses: a success of the transport is not
// one of the operation (R2, R21). The receipt is then the zero one.
func ReceiptFromProto(p *pb.Receipt) (contract.Receipt, error) {
	if p == nil {
		return contract.Receipt{}, noReceipt(errors.New("there is no receipt"))
	}
	r := contract.Receipt{
		Method: p.GetMethod(), OperationID: p.GetOperationId(), Before: p.GetBefore(), After: p.GetAfter(),
		Ref: p.GetRef(), Detail: p.GetDetail(), By: p.GetBy(), RecordedAt: p.GetRecordedAtMs(),
		Failure: FailureFromProto(p.GetFailure()), Replayed: p.GetReplayed(),
	}
	if p.GetResult() != pb.ResultCode_RESULT_CODE_UNSPECIFIED {
		r.Result = contract.ResultCode(strings.TrimPrefix(p.GetResult().String(), resultPrefix))
	}
	if b := p.GetBarrier(); b != nil {
		r.Barrier = &contract.Barrier{ID: b.GetId(), ActiveCalls: b.GetActiveCalls(), Epoch: b.GetEpoch()}
	}
	if copy(r.Digest[:], p.GetDigest()) != len(p.GetDigest()) || len(p.GetDigest()) != len(r.Digest) {
		return contract.Receipt{}, noReceipt(errors.New("the digest is not of 32 bytes"))
	}
	r = r.Clean()
	if err := r.Validate(); err != nil {
		return contract.Receipt{}, noReceipt(err)
	}
	return r, nil
}

func noReceipt(why error) error { return contract.ErrOutcomeUnknown.With(why) }

// MetaToProto returns the meta data as it is sent, unchanged: keys are compared byte by byte.
func MetaToProto(m contract.RequestMeta) *pb.RequestMeta {
	return &pb.RequestMeta{
		ProtocolVersion: m.ProtocolVersion, OperationId: m.OperationID, IdempotencyKey: m.IdempotencyKey, AgentId: m.AgentID,
		CellId: m.CellID, BootId: m.BootID, SessionGeneration: m.SessionGeneration, DispatcherEpoch: m.DispatcherEpoch,
	}
}

// MetaFromProto reads the meta data, unchanged; nil is the zero value. Nothing is checked: see [contract.RequestMeta.CheckVersion]
// and [contract.RequestMeta.ValidateMutation].
func MetaFromProto(p *pb.RequestMeta) contract.RequestMeta {
	return contract.RequestMeta{
		ProtocolVersion: p.GetProtocolVersion(), OperationID: p.GetOperationId(), IdempotencyKey: p.GetIdempotencyKey(),
		AgentID: p.GetAgentId(), CellID: p.GetCellId(), BootID: p.GetBootId(), SessionGeneration: p.GetSessionGeneration(),
		DispatcherEpoch: p.GetDispatcherEpoch(),
	}
}
