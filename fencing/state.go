package fencing

import (
	"context"
	"errors"
	"math"

	"github.com/go-json-experiment/json"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// decode reads a state; that of a value that does not exist is the zero one.
func decode[S any](v store.Value) (s S, err error) {
	if v.Revision == 0 {
		return s, nil
	}
	if err := json.Unmarshal(v.Content, &s, json.RejectUnknownMembers(true)); err != nil {
		return s, ErrUnreadable.With(err)
	}
	return s, nil
}

// hold reads a state and keeps it as it is until the transaction ends.
func hold[S any](ctx context.Context, values store.Values, id store.ValueID) (s S, exists bool, err error) {
	v, err := values.Hold(ctx, id)
	if err != nil {
		return s, false, err
	}
	s, err = decode[S](v)
	return s, v.Revision > 0, err
}

// update reads a state, decides, and swaps it, again while somebody else was quicker: what is written was decided on what stood.
func update[S any](ctx context.Context, values store.Values, id store.ValueID, decide func(S) (S, error)) (before, after S, err error) {
	v, err := values.Load(ctx, id)
	for {
		if err != nil {
			return before, after, err
		}
		if before, err = decode[S](v); err != nil {
			return before, after, err
		}
		if after, err = decide(before); err != nil {
			return before, after, err
		}
		content, err := json.Marshal(after)
		if err != nil {
			return before, after, ErrUnreadable.With(err)
		}
		if v, err = values.Swap(ctx, store.SwapParams{ValueID: id, Revision: v.Revision, Content: content}); err == nil {
			return before, after, nil
		}
		if !errors.Is(err, store.ErrRevision) {
			return before, after, err
		}
	}
}

// next counts on, and never around.
func next(n int64) (int64, error) {
	if n < 0 || n == math.MaxInt64 {
		return n, ErrExhausted
	}
	return n + 1, nil
}

// expect compares the number that a request expects with the one that stands. One that is missing is an error, never "any".
func expect(path string, expected, current int64) error {
	switch {
	case expected <= 0:
		return &contract.InvalidError{Path: path, Problem: "must be the expected number, which is at least 1"}
	case expected != current:
		return standing(ErrMoved, current)
	}
	return nil
}
