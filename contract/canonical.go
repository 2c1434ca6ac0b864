package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	problemSyntax    = "must be one valid JSON value in UTF-8, with nothing after it"
	problemDuplicate = "must not appear twice in its object"
	problemNumber    = "is not exactly a float64; send money and 64-bit ids as strings"
)

// CanonicalJSON returns raw in the form of RFC 8785: two documents have the same form exactly when they have the same
// value. What that form would change silently is refused instead: duplicate names, invalid UTF-8, lone surrogates, -0,
// and numbers other than the shortest decimal of a float64 (so 1e400 and 2^53+1 are refused; 1, 1.0 and 1e0 are one
// value). Nesting beyond the default [Limits] is refused too. The error is an *[InvalidError] with the path in raw.
func CanonicalJSON(raw []byte) ([]byte, error) {
	if err := scan("", raw, DefaultLimits().Depth); err != nil {
		return nil, err
	}
	return canonicalize("", raw)
}

// canonicalize expects what scan let through.
func canonicalize(path string, raw []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Canonicalize(); err != nil {
		return nil, syntaxError(path, err)
	}
	return v, nil
}

// checkParams refuses params that are not one JSON object within the limits that has a canonical form.
func checkParams(path string, raw json.RawMessage, l Limits) error {
	if len(raw) > l.Params {
		return invalid(path, fmt.Sprintf("is %d bytes long, the limit is %d", len(raw), l.Params))
	}
	if jsontext.Value(raw).Kind() != jsontext.KindBeginObject {
		return invalid(path, "must be an object")
	}
	return scan(path, raw, l.Depth)
}

// scan reads raw once and refuses whatever has no canonical form.
func scan(path string, raw []byte, depth int) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	for done := false; ; done = dec.StackDepth() == 0 {
		tok, err := dec.ReadToken()
		switch {
		case done && err == io.EOF: //nolint:errorlint // ReadToken returns it bare, and only at the end
			return nil
		case err != nil:
			return syntaxError(path, err)
		case done:
			return invalid(path, problemSyntax)
		case dec.StackDepth() > depth:
			return invalidAt(path, dec.StackPointer(), fmt.Sprintf("is nested deeper than %d levels", depth))
		case tok.Kind() == jsontext.KindNumber && !isExact(tok.String()):
			return invalidAt(path, dec.StackPointer(), problemNumber)
		}
	}
}

func syntaxError(path string, err error) error {
	problem := problemSyntax
	if errors.Is(err, jsontext.ErrDuplicateName) {
		problem = problemDuplicate
	}
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return invalid(path, problem)
	}
	return invalidAt(path, syntactic.JSONPointer, problem)
}
