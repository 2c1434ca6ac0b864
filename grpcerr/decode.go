package grpcerr

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/confirmexec/confirmexec/contract"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// ReasonEnvelopeMismatch is the reason of [ErrEnvelopeMismatch].
const ReasonEnvelopeMismatch contract.Reason = "pramaan.agent_operation.envelope_mismatch"

// ErrEnvelopeMismatch takes the place of a failure that contradicts itself: its code is not that of the status, or its copies
// disagree. Something on the way has changed the reply, so nothing in it is believed: the original operation is queried. The
// cause says what disagrees.
var ErrEnvelopeMismatch = &contract.Failure{Code: contract.Unavailable, Reason: ReasonEnvelopeMismatch, Effect: contract.EffectUnknown,
	Message: "the reply contradicts itself; the outcome is not known; query the original operation; do not start another"}

func mismatch(what string) *contract.Failure { return ErrEnvelopeMismatch.With(errors.New(what)) }

// FromError returns the failure that the status of err holds in its details: [Codec.FromReply] without trailers.
func (c Codec) FromError(err error) (f *contract.Failure, ok bool) { return c.FromReply(err, nil) }

// FromReply returns the failure that the receiver told: from the Failure detail, else from the ErrorInfo of this package's
// [Domain], else from the trailers; trailer may be nil. It is false when none of them is there. A code alone is no failure: a
// library or a proxy may have made it, and the outcome is what the call's evidence shows (R4); see [BareFailure].
//
// What is there has to agree, details that are repeated included, and its code has to be the status's; else the failure is
// [ErrEnvelopeMismatch] (R3). A code or an effect that this version does not know is read as the status's code with an unknown
// effect; where the status has no failure code, there is no failure. A detail that cannot be read, or of a type that is not
// known, is passed over. Texts are cleaned as [contract.Receipt.Clean] does it.
//
// It is total: err may be nil, without a status, or hold a failure of this process, which nobody told and is not looked at.
func (c Codec) FromReply(err error, trailer metadata.MD) (f *contract.Failure, ok bool) {
	st := statusOf(err)
	if st == nil {
		return nil, false
	}
	f, what := c.open(st).add(trailer).failure(st.Message())
	switch {
	case what != "":
		return mismatch(what), true
	case f == nil:
		return nil, false
	}
	return settle(f, st.Code())
}

// envelope is everything in a reply that tells of one failure.
type envelope struct {
	details []*contract.Failure
	lossy   bool // a detail is the service's own message
	copies  []texts
	unclear bool // the trailers say two things
}

func (c Codec) open(st *status.Status) envelope {
	var e envelope
	for _, detail := range st.Proto().GetDetails() {
		own, info := &pb.Failure{}, &errdetails.ErrorInfo{}
		switch {
		case detail.MessageIs(own):
			if detail.UnmarshalTo(own) == nil {
				e.details = append(e.details, FailureFromProto(own))
			}
		case detail.MessageIs(info):
			if detail.UnmarshalTo(info) == nil && info.GetDomain() == Domain {
				e.copies = append(e.copies, info.GetMetadata())
			}
		default:
			if f, ok := c.adapted(detail); ok {
				e.details, e.lossy = append(e.details, clean(f)), true
			}
		}
	}
	return e
}

func (c Codec) adapted(detail *anypb.Any) (*contract.Failure, bool) {
	if c.Adapter == nil {
		return nil, false
	}
	if m, err := detail.UnmarshalNew(); err == nil {
		f, ok := c.Adapter.FromDetail(m)
		return f, ok && f != nil
	}
	return nil, false
}

func (e envelope) add(trailer metadata.MD) envelope {
	m, single := textsOfTrailer(trailer)
	if m[keyCode] != "" {
		e.copies = append(e.copies, m)
	}
	e.unclear = !single
	return e
}

// failure is the one failure that everything in the envelope tells, nil for an empty one; what says what disagrees.
func (e envelope) failure(text string) (f *contract.Failure, what string) {
	switch {
	case e.unclear:
		return nil, "the trailers say two things"
	case len(e.details) > 0:
		f = e.details[0]
	case len(e.copies) > 0:
		f = e.copies[0].failure()
		f.Message = text
		f = clean(f)
	}
	for _, other := range e.details {
		if *other != *f {
			return nil, "the details hold two failures"
		}
	}
	for _, m := range e.copies {
		if e.lossy {
			m.fill(f)
		}
		if !m.agree(f) {
			return nil, "the failure and its copies disagree"
		}
	}
	return f, ""
}

// settle holds the failure against the status's code.
func settle(f *contract.Failure, code codes.Code) (*contract.Failure, bool) {
	own, ok := contract.FailureCodeOfGRPC(uint32(code))
	switch known(f.Code) {
	case own:
		if ok {
			return f, true
		}
		return nil, false
	case "":
		f.Code, f.Effect = own, contract.EffectUnknown
		return f, true
	}
	return mismatch("the code of the failure is not the status's"), true
}

// ReasonBareCode is the reason of the failures that [BareFailure] makes.
const ReasonBareCode contract.Reason = "pramaan.agent_operation.bare_code"

// BareFailure reads a status whose envelope was lost, or that a server without this package sent: no library and no proxy makes
// INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION or ABORTED by itself on a gRPC connection, so somebody meant
// it. Only the code is believed: what the failure that was lost said of the effect, or another server's rules, is not known, so
// the effect is unknown, and [contract.Decide] has the original operation queried or read again, never sent. It is false for all
// other codes, which prove nothing (R4, R18).
//
// It is an offer, to tell a person more than "unknown", and [Codec.FromReply] does not use it. Behind a bridge from HTTP, which
// makes ABORTED out of any conflict, even the code is a guess.
func BareFailure(err error) (f *contract.Failure, ok bool) {
	st := statusOf(err)
	if st == nil {
		return nil, false
	}
	switch st.Code() { //nolint:exhaustive // the five that nobody makes by himself
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted:
		code, _ := contract.FailureCodeOfGRPC(uint32(st.Code()))
		return &contract.Failure{Code: code, Reason: ReasonBareCode, Effect: contract.EffectUnknown,
			Message: "the answer came without its failure; act on its code; whether anything happened is not known"}, true
	}
	return nil, false
}
