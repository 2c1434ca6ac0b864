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
func KnownNoEffect(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ KnownNoEffect() bool }:
		return e.KnownNoEffect()
	case interface{ Unwrap() []error }:
		errs := e.Unwrap()
		for _, err := range errs {
			if !KnownNoEffect(err) {
				return false
			}
		}
		return len(errs) > 0
	case interface{ Unwrap() error }:
		return KnownNoEffect(e.Unwrap())
	}
	return false
}

// FailureToTell returns the failure that a server tells its caller of an error: the first one, as [FailureOf]; false when
// there is none. Its effect is unknown unless err as a whole is proof that nothing happened ([KnownNoEffect]). Of an
// [InvalidError] its message is where and what.
func FailureToTell(err error) (*Failure, bool) {
	f, ok := FailureOf(err)
	if !ok {
		return nil, false
	}
	if invalid, is := errors.AsType[*InvalidError](err); is && invalid != nil && f == ErrInvalid {
		f = f.With(nil)
		f.Message = strings.TrimPrefix(invalid.Error(), string(f.Code)+": ")
	}
	if f.KnownNoEffect() && !KnownNoEffect(err) {
		f = f.WithUnknownEffect()
	}
	return f, true
}

// WithUnknownEffect returns a copy of f that proves nothing. Where f did, only the first part of its message stays, up to a
// semicolon: what was wrong. What was done, and what to do then, no longer holds.
func (f *Failure) WithUnknownEffect() *Failure {
	c := *f
	c.Effect = EffectUnknown
	if f.KnownNoEffect() {
		wrong, _, _ := strings.Cut(f.Message, ";")
		c.Message = strings.TrimPrefix(wrong+"; whether anything was done is not known; query the original operation", "; ")
	}
	return &c
}
