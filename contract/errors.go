package contract

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The reasons of the broker's refusals.
const (
	ReasonInvalid        Reason = "pramaan.agent_operation.invalid"
	ReasonStale          Reason = "pramaan.agent_operation.stale"
	ReasonKeyReused      Reason = "pramaan.agent_operation.key_reused"
	ReasonNotMinted      Reason = "pramaan.agent_operation.not_minted"
	ReasonExpired        Reason = "pramaan.agent_operation.expired"
	ReasonInProgress     Reason = "pramaan.agent_operation.in_progress"
	ReasonFenced         Reason = "pramaan.agent_operation.fenced"
	ReasonGuard          Reason = "pramaan.agent_operation.guard_not_met"
	ReasonDenied         Reason = "pramaan.agent_operation.denied"
	ReasonTenantMismatch Reason = "pramaan.agent_operation.tenant_mismatch"
	ReasonRetryTx        Reason = "pramaan.agent_operation.retry_transaction"
	ReasonTxEnded        Reason = "pramaan.agent_operation.transaction_ended"
	ReasonUnavailable    Reason = "pramaan.agent_operation.unavailable"
	ReasonNotConfirmed   Reason = "pramaan.agent_operation.not_confirmed"
	ReasonUnsettled      Reason = "pramaan.agent_operation.unsettled"
)

// The broker's refusals, for errors.Is. Where there is more to know, errors.As gives it: *[ConflictError] (which axis
// drifted), *[InvalidError] (which field).
var (
	ErrInvalid = &Failure{Code: InvalidArgument, Reason: ReasonInvalid,
		Message: "the request is not valid; correct it and send it again"}
	ErrStale = &Failure{Code: FailedPrecondition, Reason: ReasonStale,
		Message: "the surface has changed since the proposal; nothing was done; " +
			"cancel the key, and propose again from the surface as it is now"}
	ErrKeyReused = &Failure{Code: Aborted, Reason: ReasonKeyReused, Effect: EffectNone,
		Message: "the key stands for other content; this request did nothing; " +
			"read what the key stands for, or propose this content under a key of its own"}
	// ErrOperationReused is ErrKeyReused as the caller of a mutation is told it: errors.Is finds that one.
	ErrOperationReused = &Failure{Code: Aborted, Reason: ReasonKeyReused, Effect: EffectNone,
		Message: "the operation stands for other content or another key; this request did nothing; query it; " +
			"other content is a new operation"}
	ErrNotMinted = &Failure{Code: NotFound, Reason: ReasonNotMinted,
		Message: "no such key; nothing was done; confirm with the key of a proposal, unchanged"}
	ErrExpired = &Failure{Code: FailedPrecondition, Reason: ReasonExpired,
		Message: "the proposal has expired; it was never executed; propose again"}
	ErrInProgress = &Failure{Code: AlreadyExists, Reason: ReasonInProgress,
		Message: "the operation is running; this request started nothing; read its result later under the same key"}
	ErrFenced = &Failure{Code: Aborted, Reason: ReasonFenced,
		Message: "this attempt has lost the key; what it did after that was not recorded; read the result under the same key"}
	ErrGuardNotMet = &Failure{Code: Aborted, Reason: ReasonGuard, Effect: EffectNone,
		Message: "a value that guards the operation has another revision; this request did nothing, and whatever it acted on is no longer so; " +
			"read what stands now"}
	ErrDenied = &Failure{Code: PermissionDenied, Reason: ReasonDenied,
		Message: "not authorized; nothing was done and nothing is shown; a new authorization is needed"}
	ErrTenantMismatch = &Failure{Code: PermissionDenied, Reason: ReasonTenantMismatch,
		Message: "the transaction is bound to another tenant; nothing was done; use one transaction per tenant"}
	ErrRetryTx = &Failure{Code: Aborted, Reason: ReasonRetryTx, Effect: EffectNone,
		Message: "the transaction met a serialization failure or a deadlock; roll it back and run it again from its start"}
	ErrTxEnded = &Failure{Code: Aborted, Reason: ReasonTxEnded,
		Message: "the transaction was ended before the operation was done with it; read the result under the same key; " +
			"an executor must neither commit nor roll back"}
	ErrUnavailable = &Failure{Code: Unavailable, Reason: ReasonUnavailable,
		Message: "the store could not be used; look the key up before anything else"}
	ErrNotConfirmed = &Failure{Code: FailedPrecondition, Reason: ReasonNotConfirmed,
		Message: "nothing was confirmed under the key; there is nothing to resolve; Cancel makes sure that it never runs"}
	// ErrUnsettled is in the chain of OperationResult.Err when an item is failed, ambiguous or cancelled, or was never started, and
	// when there is no outcome.
	ErrUnsettled = &Failure{Code: Aborted, Reason: ReasonUnsettled, Effect: EffectUnknown,
		Message: "not every item was applied; see the result's outcomes"}
)

// With returns a copy of f with a cause: how a sentinel becomes the error of one call.
func (f *Failure) With(cause error) *Failure {
	c := *f
	c.Cause = cause
	return &c
}

// ConflictError is the refusal of a confirmation that disagrees with what stands: the surface drifted (its reason is
// [ReasonStale]), or the key stands for other content ([ReasonKeyReused]). Nothing was claimed and nothing ran (S13,
// S20).
type ConflictError struct {
	Failure Failure
	Drift   Drift // what moved; empty for a reused key
}

// Error tells the code, the reason, what drifted and what to do.
func (e *ConflictError) Error() string {
	if e == nil {
		return "conflict without content"
	}
	if len(e.Drift) == 0 {
		return e.Failure.Error()
	}
	return e.Failure.Error() + " (" + e.Drift.String() + ")"
}

// Unwrap returns the failure; a nil pointer has none.
func (e *ConflictError) Unwrap() error {
	if e == nil {
		return nil
	}
	return &e.Failure
}

// InvalidError is the refusal of a document or a request that breaks the contract's shape or limits. Nothing was
// written. Its text holds nothing that the document chose: no value, and of Path only the names that this package
// defines (S22).
type InvalidError struct {
	Path    string // JSON pointer (RFC 6901) of what is wrong, exact; empty for the whole document
	Problem string // what is wrong with it and what it must be; never the value
	shown   string // Path without the document's own names; empty when that is Path
}

// Error tells where and what.
func (e *InvalidError) Error() string {
	if e == nil {
		return "refusal without content"
	}
	return string(InvalidArgument) + ": " + cmp.Or(e.shown, e.Path, "document") + ": " + e.Problem
}

// Unwrap returns [ErrInvalid]; a nil pointer, which nobody made by looking at a request, refuses nothing.
func (e *InvalidError) Unwrap() error {
	if e == nil {
		return nil
	}
	return ErrInvalid
}

// invalid is an InvalidError at a path of this package's own words.
func invalid(path, problem string) error { return &InvalidError{Path: path, Problem: problem} }

// invalidAt is an InvalidError at a place of a document: a path of this package's own words, and a pointer from there
// that may go on into names that only the document knows.
func invalidAt(path string, rest jsontext.Pointer, problem string) error {
	e := &InvalidError{Path: path + string(rest), Problem: problem}
	if own := ownPart(rest, strings.HasSuffix(path, "/params")); len(own) < len(rest) {
		e.shown = path + own + "/…"
	}
	return e
}

// ownPart returns the part of p that consists of this package's member names and of indices into its arrays.
func ownPart(p jsontext.Pointer, inParams bool) string {
	var own strings.Builder
	list := false
	for token := range p.Tokens() {
		if inParams || !list && !wireNames[token] {
			break
		}
		own.WriteString("/" + token)
		inParams = token == "params"
		list = !list && (token == "items" || token == "outcomes")
	}
	return own.String()
}
