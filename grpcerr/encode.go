package grpcerr

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/confirmexec/confirmexec/contract"
)

// What the caller is told of errors that are no failures: never their own text, which may hold payloads, keys or tenants (S22).
const (
	messageInternal = "the server failed; the outcome is not known; query the original operation"
	messageCanceled = "the call was cancelled; the outcome is not known; query the original operation"
)

// errDeadline is what a handler's own expired deadline becomes, a database's included: it may have happened (R13).
var errDeadline = &contract.Failure{Code: contract.DeadlineExceeded, Effect: contract.EffectUnknown,
	Message: "the deadline was over before the answer; query the original operation"}

// ToStatus returns the status that tells a handler's error to the caller.
//
//   - A [contract.Failure], wherever in the error's tree, gives its code's status (R1), with its Message as the text and two
//     details: one Failure and one ErrorInfo (R3). A cause and the texts of errors around it are not told. The message of a
//     [contract.InvalidError] is where and what. Its effect is unknown where it is joined with an error that does not prove that
//     nothing happened, such as one of the commit: see [contract.FailureToTell]. So it is of a [CallError].
//   - Another error that has a gRPC status keeps that status and its details as they are, without the texts around it. If it holds a
//     failure, that is another server's about another call: it is told with an unknown effect, and without other details. A
//     handler that knows that its own call had no effect either returns the failure itself; see [Codec.FromError].
//   - [context.DeadlineExceeded] is a failure of that code whose effect is unknown; [context.Canceled] is a bare CANCELLED.
//   - Everything else is a bare INTERNAL with a fixed text: there is no failure code for it, and its effect is not known (R18). So
//     is a failure whose code is not one of the ten, and a status that says OK: an error never becomes a success.
//
// Text and details stay within 4 KiB as header fields: above its limit a peer drops the whole status, code included. What is
// too much is cut, the text first; the code never is.
func (c Codec) ToStatus(err error) *status.Status {
	if err == nil {
		return status.New(codes.OK, "")
	}
	if f, ok := contract.FailureToTell(err); ok {
		return c.failureStatus(f)
	}
	if st := statusOf(err); st != nil && st.Code() != codes.OK {
		return c.relayed(st)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return c.failureStatus(errDeadline)
	case errors.Is(err, context.Canceled):
		return status.New(codes.Canceled, messageCanceled)
	}
	return status.New(codes.Internal, messageInternal)
}

// relayed is what becomes of a status that somebody else made. What it says of an effect is about another call: a server that has
// written something and then asks another one, which refuses, has not done nothing.
func (c Codec) relayed(st *status.Status) *status.Status {
	f, ok := c.FromError(st.Err())
	if !ok {
		return fit(st)
	}
	return c.failureStatus(f.WithUnknownEffect())
}

// statusOf returns the status of the first error in the tree that has one; nil when there is none. It differs from
// status.FromError in that the texts of the errors around it stay out of it.
func statusOf(err error) *status.Status {
	s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err)
	if !ok {
		return nil
	}
	return s.GRPCStatus()
}

// cut says how much of a failure is sent.
type cut struct {
	text, message int  // the limits of the status text and of the detail's message, in bytes
	short         bool // of the ErrorInfo's metadata, only code and effect
	own           bool // this package's Failure instead of the service's
}

// cuts are tried in this order until the status is small enough. This package's own Failure fits at the second, whatever is in it.
var cuts = [...]cut{
	{text: contract.MaxDetail, message: contract.MaxDetail},
	{text: maxText, message: contract.MaxDetail},
	{text: maxText, message: maxText},
	{text: maxText, message: maxText, short: true},
	{text: maxText, message: maxText, short: true, own: true},
}

func (c Codec) failureStatus(f *contract.Failure) *status.Status {
	rule, ok := f.Code.Rule()
	if !ok {
		return status.New(codes.Internal, messageInternal)
	}
	f = clean(f)
	trailer := sizeOf(trailerOf(f))
	var st *spb.Status
	for _, cut := range cuts {
		st = c.build(rule.GRPC, f, cut)
		if size(st)+trailer <= maxMetadata {
			break
		}
	}
	return status.FromProto(st)
}

func (c Codec) build(code uint32, f *contract.Failure, cut cut) *spb.Status {
	told := *f
	told.Message = shorten(f.Message, cut.message)
	st := &spb.Status{Code: int32(code), Message: shorten(f.Message, cut.text)} //nolint:gosec // at most 16
	st.Details = append(st.Details, c.detail(&told, cut.own), pack(errorInfo(f, cut.short)))
	return st
}

// detail is the one detail that holds the failure. Where a service has no message, or one that cannot be written, it is this
// package's own.
func (c Codec) detail(f *contract.Failure, own bool) *anypb.Any {
	if c.Adapter != nil && !own {
		if detail := pack(c.Adapter.ToDetail(f)); detail != nil {
			return detail
		}
	}
	return pack(FailureToProto(f))
}

// pack returns nil for nil and for what cannot be written, which no message of this package is: their texts are clean.
func pack(m proto.Message) *anypb.Any {
	detail, err := anypb.New(m)
	if err != nil {
		return nil
	}
	return detail
}

func errorInfo(f *contract.Failure, short bool) *errdetails.ErrorInfo {
	m := textsOf(f)
	if short {
		m = texts{keyCode: m[keyCode], keyEffect: m[keyEffect]}
	}
	return &errdetails.ErrorInfo{Reason: errorReason(f), Domain: Domain, Metadata: m}
}

// errorReason is the reason as ErrorInfo wants it: UPPER_SNAKE, at most 63 characters. The exact one is in the metadata.
func errorReason(f *contract.Failure) string {
	const limit = 63
	words := strings.FieldsFunc(string(f.Reason), func(r rune) bool { return !isWord(r) })
	reason := strings.ToUpper(strings.Join(words, "_"))
	reason = strings.TrimRight(reason[:min(len(reason), limit)], "_")
	if len(reason) < 2 || reason[0] < 'A' {
		return string(f.Code)
	}
	return reason
}

func isWord(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
