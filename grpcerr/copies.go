package grpcerr

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/confirmexec/confirmexec/contract"
)

// Domain is the domain of this contract's ErrorInfo. One of another domain is somebody else's and is not read.
const Domain = "confirmexec.v1"

// The trailers that repeat the failure in plain ASCII: they reach a caller where a proxy drops the status details. A reason that
// is not visible ASCII has no trailer; a revision that is not told has none.
const (
	TrailerCode    = "x-confirmexec-failure-code"
	TrailerReason  = "x-confirmexec-failure-reason"
	TrailerEffect  = "x-confirmexec-failure-effect"
	TrailerCurrent = "x-confirmexec-failure-current"
)

// texts is a failure without its message as plain texts: the metadata of an ErrorInfo, and what the trailers hold.
type texts map[string]string

const (
	keyCode    = "code"
	keyReason  = "reason"
	keyEffect  = "effect"
	keyCurrent = "current"
)

// trailers are the names of the texts as trailers.
var trailers = texts{keyCode: TrailerCode, keyReason: TrailerReason, keyEffect: TrailerEffect, keyCurrent: TrailerCurrent}

func textsOf(f *contract.Failure) texts {
	m := texts{keyCode: string(f.Code), keyEffect: f.Effect.String()}
	if f.Reason != "" {
		m[keyReason] = string(f.Reason)
	}
	if f.Current != 0 {
		m[keyCurrent] = strconv.FormatInt(f.Current, 10)
	}
	return m
}

// failure reads the texts and cleans them. An effect that is not told, in a word that is not known or under a code that is not
// known, is unknown.
func (m texts) failure() *contract.Failure {
	f := &contract.Failure{Code: contract.FailureCode(m[keyCode]), Reason: contract.Reason(m[keyReason]), Effect: effectOf(m[keyEffect])}
	if f.Effect == contract.EffectNone && m[keyCode] != "" && known(f.Code) == "" {
		f.Effect = contract.EffectUnknown
	}
	f.Current, _ = strconv.ParseInt(m[keyCurrent], 10, 64)
	return clean(f)
}

func effectOf(word string) contract.Effect {
	switch word {
	case contract.EffectByCode.String():
		return contract.EffectByCode
	case contract.EffectNone.String():
		return contract.EffectNone
	}
	return contract.EffectUnknown
}

// fill completes a failure whose own message has no field for everything.
func (m texts) fill(f *contract.Failure) {
	told := m.failure()
	if f.Reason == "" {
		f.Reason = told.Reason
	}
	if f.Effect == contract.EffectByCode && m[keyEffect] != "" {
		f.Effect = told.Effect
	}
	if f.Current == 0 {
		f.Current = told.Current
	}
}

// agree says whether what is told is what f says. Two codes that are both not known agree.
func (m texts) agree(f *contract.Failure) bool {
	told := m.failure()
	return (m[keyCode] == "" || known(told.Code) == known(f.Code)) &&
		(m[keyReason] == "" || told.Reason == f.Reason) &&
		(m[keyEffect] == "" || told.Effect == f.Effect) &&
		(m[keyCurrent] == "" || told.Current == f.Current)
}

// known returns the code if it is one of the ten, else none.
func known(code contract.FailureCode) contract.FailureCode {
	if _, ok := code.Rule(); ok {
		return code
	}
	return ""
}

// trailerOf returns the trailers that repeat f.
func trailerOf(f *contract.Failure) metadata.MD {
	md := metadata.MD{}
	for key, value := range textsOf(f) {
		if !strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
			md.Set(trailers[key], value)
		}
	}
	return md
}

// textsOfTrailer reads the trailers; single is false when one of them says two different things.
func textsOfTrailer(md metadata.MD) (m texts, single bool) {
	m, single = texts{}, true
	for key, name := range trailers {
		for i, value := range md.Get(name) {
			if i > 0 && value != m[key] {
				single = false
			}
			m[key] = value
		}
	}
	return m, single
}

// fromTrailer reads a failure from the trailers alone; false when they hold none. [Codec.FromReply] reads them with the status.
func fromTrailer(md metadata.MD) (f *contract.Failure, ok bool) {
	m, single := textsOfTrailer(md)
	switch {
	case m[keyCode] == "":
		return nil, false
	case !single:
		return mismatch("the trailers say two things"), true
	}
	return m.failure(), true
}
