package httperr

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/confirmexec/confirmexec/contract"
)

// TypePrefix begins the type of every problem with a code. What follows is the failure's reason, or its code in lower case if it has
// none that a URI can hold as it is. Such a URI is a name and leads nowhere; a service with pages about its problems sets
// [Problem.Type] to theirs. Readers of this package do not look at it.
const TypePrefix = "urn:confirmexec:problem:"

// Problem is one problem document. All its texts are safe to show: none is from a cause, a payload, a key or a tenant (S22).
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"` // the same for every problem of a type
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitzero"`   // what was wrong and what to do: the failure's message
	Instance string `json:"instance,omitzero"` // a URI of this occurrence; the caller's to set

	// The failure itself. A document in which Code, Effect and Action do not fit together is not of this package.
	Code    contract.FailureCode `json:"code,omitzero"` // empty if the error holds no failure of the ten codes
	Reason  contract.Reason      `json:"reason,omitzero"`
	Effect  string               `json:"effect,omitzero"`  // "none" or "unknown"
	Current int64                `json:"current,omitzero"` // the revision or generation that stands now
	Action  contract.Action      `json:"action,omitzero"`  // what the caller does next, if the request is never sent again
}

const (
	detailInternal = "the server failed; the outcome is not known; query the original operation before anything else"
	detailCanceled = "the request was cancelled; the outcome is not known; query the original operation before anything else"
	detailDeadline = "the time limit was over before the answer; the outcome is not known; query the original operation"
)

// ProblemOf returns the problem that tells an error to the caller. It is total and reads the first failure in err's chain, its
// message included; of a [contract.InvalidError] it tells where and what. Its effect is unknown where it is joined with an error
// that does not prove that nothing happened, or is of a call to another server: see [contract.FailureToTell]. Texts around a failure
// and its cause are not told. Nil is an error of the handler, and no success: it is the problem of an error without a failure.
func ProblemOf(err error) Problem {
	f, ok := contract.FailureToTell(err)
	if !ok && errors.Is(err, context.DeadlineExceeded) {
		f, ok = &contract.Failure{Code: contract.DeadlineExceeded, Effect: contract.EffectUnknown, Message: detailDeadline}, true
	}
	if ok {
		if k, known := kinds[f.Code]; known {
			return problemOf(clean(f), k)
		}
	}
	if !ok && errors.Is(err, context.Canceled) {
		return bare(http.StatusServiceUnavailable, detailCanceled)
	}
	return bare(http.StatusInternalServerError, detailInternal)
}

// kind is what the problems of one code have in common.
type kind struct {
	status int
	title  string
}

var kinds = map[contract.FailureCode]kind{
	contract.InvalidArgument:    {http.StatusBadRequest, "The request is not valid"},
	contract.Unauthenticated:    {http.StatusUnauthorized, "The session or the credentials do not hold"},
	contract.PermissionDenied:   {http.StatusForbidden, "Not authorized"},
	contract.FailedPrecondition: {http.StatusConflict, "The state does not allow the request"},
	contract.Aborted:            {http.StatusConflict, "The request disagrees with what stands"},
	contract.ResourceExhausted:  {http.StatusTooManyRequests, "Something that is needed is used up"},
	contract.Unavailable:        {http.StatusServiceUnavailable, "The service could not be used"},
	contract.DeadlineExceeded:   {http.StatusGatewayTimeout, "The time limit was over"},
	contract.NotFound:           {http.StatusNotFound, "Not found"},
	contract.AlreadyExists:      {http.StatusConflict, "The operation exists already"},
}

var keyReused = kind{http.StatusUnprocessableEntity, "The idempotency key stands for other content"}

func problemOf(f *contract.Failure, k kind) Problem {
	if f.Code == contract.Aborted && f.Reason == contract.ReasonKeyReused {
		k = keyReused
	}
	return Problem{
		Type: typeOf(f), Title: k.title, Status: k.status, Detail: f.Message,
		Code: f.Code, Reason: f.Reason, Effect: effectOf(f).String(), Current: f.Current, Action: actionOf(f),
	}
}

// bare is the problem of an error that holds no failure. Its type says that it means no more than its status.
func bare(status int, detail string) Problem {
	return Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
		Effect: contract.EffectUnknown.String(), Action: actionOf(nil),
	}
}

func typeOf(f *contract.Failure) string {
	if f.Reason == "" || strings.ContainsFunc(string(f.Reason), notInURN) {
		return TypePrefix + strings.ToLower(string(f.Code))
	}
	return TypePrefix + string(f.Reason)
}

func notInURN(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}

// effectOf is what a failure tells of the effect, with the rule of its code applied.
func effectOf(f *contract.Failure) contract.Effect {
	if f.KnownNoEffect() {
		return contract.EffectNone
	}
	return contract.EffectUnknown
}

func actionOf(f *contract.Failure) contract.Action {
	return contract.Decide(contract.Method{}, f, contract.Answered).Action
}

// clean returns a failure as it can be sent and shown, without its cause.
func clean(f *contract.Failure) *contract.Failure {
	return contract.Receipt{Failure: f}.Clean().Failure
}
