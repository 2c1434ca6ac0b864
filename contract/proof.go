package contract

import (
	"errors"
	"strings"
)

// KnownNoEffect says whether err is proof that nothing happened: it is or wraps a failure that says so, as
// [Failure.KnownNoEffect] does. Of errors that are joined all must be: a refusal beside an error of the commit proves
// nothing, which the first failure alone, [FailureOf], does not show. It is total: nil proves nothing.
//
// Another error says it by a method KnownNoEffect() bool of its own; then what it wraps is not asked.
func KnownNoEffect(err error) bool { return proves(err, false) }

// proves is [KnownNoEffect]; where own is set, of what err's holder has done itself.
func proves(err error, own bool) bool {
	if own && relayed(err) {
		return false
	}
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ KnownNoEffect() bool }:
		return e.KnownNoEffect()
	case interface{ Unwrap() []error }:
		errs := e.Unwrap()
		for _, err := range errs {
			if !proves(err, own) {
				return false
			}
		}
		return len(errs) > 0
	case interface{ Unwrap() error }:
		return proves(e.Unwrap(), own)
	}
	return false
}

func relayed(err error) bool {
	r, ok := err.(interface{ Relayed() bool })
	return ok && r.Relayed()
}

// FailureToTell returns the failure that a server tells its caller of an error: the first one, as [FailureOf]; false when
// there is none. Its effect is unknown unless err as a whole is proof that nothing happened ([KnownNoEffect]). Of an
// [InvalidError] its message is where and what.
//
// An error of a call that the server itself made to another one, which says so by a method Relayed() bool as those of package
// grpcerr do, proves nothing about what the server did before that call. A server that knows that it did nothing either returns a
// failure of its own, with that error as its cause.
func FailureToTell(err error) (*Failure, bool) {
	f, ok := FailureOf(err)
	if !ok {
		return nil, false
	}
	if invalid, is := errors.AsType[*InvalidError](err); is && invalid != nil && f == ErrInvalid {
		f = f.With(nil)
		f.Message = strings.TrimPrefix(invalid.Error(), string(f.Code)+": ")
	}
	if f.KnownNoEffect() && !proves(err, true) {
		f = f.WithUnknownEffect()
	}
	return f, true
}

// WithUnknownEffect returns a copy of f that proves nothing. Where f did, only the first part of its message stays, up to a
// semicolon: what was wrong. What was done, and what to do then, no longer holds.
func (f *Failure) WithUnknownEffect() *Failure {
	if f == nil {
		return nil
	}
	c := *f
	c.Effect = EffectUnknown
	if f.KnownNoEffect() {
		wrong, _, _ := strings.Cut(f.Message, ";")
		c.Message = strings.TrimPrefix(wrong+"; whether anything was done is not known; query the original operation", "; ")
	}
	return &c
}
