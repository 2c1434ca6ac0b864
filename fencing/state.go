package fencing

import (
	"context"
	"errors"
	"math"

	"github.com/go-json-experiment/json"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// state is a kind of state. Sound says whether somebody can have stored it: not everything that can be decoded is such a state, and
// the zero one, which stands for what does not exist, never is.
type state interface{ sound() bool }

// decode reads a state; that of a value that does not exist is the zero one. What was stored and cannot be a state is ErrUnreadable,
// never the zero state: counting would begin anew from there.
func decode[S state](v store.Value) (S, error) {
	var none, s S
	if v.Revision == 0 {
		return none, nil
	}
	if err := json.Unmarshal(v.Content, &s, json.RejectUnknownMembers(true)); err != nil {
		return none, ErrUnreadable.With(err)
	}
	if !s.sound() {
		return none, ErrUnreadable
	}
	return s, nil
}

// load reads a state as the transaction sees it, without a lock.
func load[S state](ctx context.Context, values store.Values, id store.ValueID) (s S, err error) {
	v, err := values.Load(ctx, id)
	if err != nil {
		return s, err
	}
	return decode[S](v)
}

// hold reads a state and keeps it as it is until the transaction ends.
func hold[S state](ctx context.Context, values store.Values, id store.ValueID) (s S, exists bool, err error) {
	v, err := values.Hold(ctx, id)
	if err != nil {
		return s, false, err
	}
	s, err = decode[S](v)
	return s, v.Revision > 0, err
}

// update reads a state, decides, and swaps it, again while somebody else was quicker: what is written was decided on what stood.
// It writes also what did not change, since only what it wrote stays so until the transaction ends. After a refusal it tells the
// state that stands.
func update[S state](ctx context.Context, values store.Values, id store.ValueID, decide func(S) (S, error)) (before, after S, err error) {
	var none S
	v, err := values.Load(ctx, id)
	for err == nil {
		if before, err = decode[S](v); err != nil {
			break
		}
		if after, err = decide(before); err != nil {
			return before, after, err
		}
		if v, err = swap(ctx, values, id, v.Revision, after); err == nil {
			return before, after, nil
		}
		if isRevision(err) {
			err = nil
		}
	}
	return none, none, err
}

// swap writes a state in the place of the one with this revision.
func swap[S state](ctx context.Context, values store.Values, id store.ValueID, revision int64, s S) (store.Value, error) {
	content, err := json.Marshal(s)
	if err != nil {
		return store.Value{}, ErrUnreadable.With(err)
	}
	return values.Swap(ctx, store.SwapParams{ValueID: id, Revision: revision, Content: content})
}

// isRevision says whether somebody else was quicker.
func isRevision(err error) bool { return errors.Is(err, store.ErrRevision) }

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
