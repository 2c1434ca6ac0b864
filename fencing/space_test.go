package fencing

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// spyValues are values in memory that tell what was called. What real locks do is for the stores' own suites; here it is what they
// are asked for.
type spyValues struct {
	stored map[store.ValueID]store.Value
	calls  []string // such as "hold office/dispatcher"
	before func(call string) error
}

func newSpy() *spyValues { return &spyValues{stored: map[store.ValueID]store.Value{}} }

func (s *spyValues) note(op string, id store.ValueID) error {
	s.calls = append(s.calls, op+" "+id.Name)
	if s.before != nil {
		return s.before(op + " " + id.Name)
	}
	return nil
}

func (s *spyValues) Load(_ context.Context, id store.ValueID) (store.Value, error) {
	err := s.note("load", id)
	return s.stored[id], err
}

func (s *spyValues) Hold(_ context.Context, id store.ValueID) (store.Value, error) {
	err := s.note("hold", id)
	return s.stored[id], err
}

func (s *spyValues) Swap(_ context.Context, p store.SwapParams) (store.Value, error) {
	if err := s.note("swap", p.ValueID); err != nil {
		return store.Value{}, err
	}
	if stands := s.stored[p.ValueID]; stands.Revision != p.Revision {
		return stands, &store.Error{Op: "spy: swap", Kind: store.ErrRevision}
	}
	v := store.Value{Revision: p.Revision + 1, Content: p.Content}
	s.stored[p.ValueID] = v
	return v, nil
}

// put stores a content as it is.
func (s *spyValues) put(name, content string) {
	id := store.ValueID{Tenant: "t", Name: name}
	s.stored[id] = store.Value{Revision: s.stored[id].Revision + 1, Content: []byte(content)}
}

// content tells what is stored under a name; empty: nothing.
func (s *spyValues) content(name string) string {
	return string(s.stored[store.ValueID{Tenant: "t", Name: name}].Content)
}

// wrote tells the names that were swapped.
func (s *spyValues) wrote() (names []string) {
	for _, c := range s.calls {
		if op, name := c[:4], c[5:]; op == "swap" {
			names = append(names, name)
		}
	}
	return names
}

var (
	space = Space{Tenant: "t"}
	// errDown is a fault of the store.
	errDown = &store.Error{Op: "spy: down"}
)

// fenceOf is a Fence that claims every check and made none, for tests of what is under it.
func fenceOf(values store.Values) Fence {
	return Fence{space, values, epochIs | sessionIs | admissionOpen}
}

// A Fence that nobody held writes nothing, whatever is asked of it. A method that forgets to look is found here.
func TestZeroFenceWritesNothing(t *testing.T) {
	for m := range reflect.TypeFor[Fence]().Methods() {
		if notWrites[m.Name] {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			told, err := called(t, Fence{}, m)
			for _, v := range told {
				assert.True(t, v.IsZero(), "tells something: %v", v)
			}
			assert.Equal(t, ErrUnfenced, err)
		})
	}
	assert.False(t, Fence{}.Held())
	assert.True(t, fenceOf(newSpy()).Held())
}

// checks returns a check per name, which refuses with its error.
func checkThat(name string, err error) Check {
	return Check{name, 0, func(ctx context.Context, values store.Values, id store.ValueID) error {
		if _, e := values.Hold(ctx, id); e != nil {
			return e
		}
		return err
	}}
}

// R112: whatever the order of the checks, the locks are taken in one, so that two transactions never wait for each other.
func TestHoldTakesItsLocksInOneOrder(t *testing.T) {
	checks := []Check{checkThat("office/d", nil), checkThat("session/p", nil), checkThat("admission/a", nil), checkThat("task/e", nil)}
	want := []string{"hold admission/a", "hold office/d", "hold session/p", "hold task/e"}
	everyOrder(checks, func(checks []Check) {
		spy := newSpy()
		f, err := space.Hold(t.Context(), spy, checks...)
		require.NoError(t, err)
		assert.True(t, f.Held())
		assert.Equal(t, want, spy.calls)
	})
}

// everyOrder calls fn with every permutation of all.
func everyOrder[T any](all []T, fn func([]T)) {
	var permute func(done, rest []T)
	permute = func(done, rest []T) {
		if len(rest) == 0 {
			fn(done)
		}
		for i := range rest {
			others := append(append([]T(nil), rest[:i]...), rest[i+1:]...)
			permute(append(append([]T(nil), done...), rest[i]), others)
		}
	}
	permute(nil, all)
}

// R121: the refusal is that of the first check as they were given, whatever the order of the locks; and there is no Fence then.
func TestHoldTellsTheFirstRefusal(t *testing.T) {
	refusals := map[string]error{"c": ErrEpochFenced, "b": ErrSessionFenced, "a": ErrClosed}
	everyOrder([]string{"a", "b", "c", "d"}, func(names []string) {
		var checks []Check
		var want error
		for _, name := range names {
			checks = append(checks, checkThat(name, refusals[name]))
			if want == nil {
				want = refusals[name]
			}
		}
		f, err := space.Hold(t.Context(), newSpy(), checks...)
		assert.Equal(t, want, err)
		assert.False(t, f.Held())
	})
}

// A transaction that must be run again says so, and not what the statements after that say.
func TestHoldStopsAtTheStoresFault(t *testing.T) {
	retry := &store.Error{Op: "spy", Kind: store.ErrRetryTx}
	spy := newSpy()
	spy.before = func(call string) error {
		if call == "hold a" {
			return retry
		}
		return errDown
	}
	f, err := space.Hold(t.Context(), spy, checkThat("b", nil), checkThat("a", nil))
	assert.ErrorIs(t, err, store.ErrRetryTx)
	assert.Equal(t, []string{"hold a"}, spy.calls)
	assert.False(t, f.Held())
}

func TestHoldNeedsACheck(t *testing.T) {
	f, err := space.Hold(t.Context(), newSpy())
	assert.ErrorIs(t, err, ErrUnfenced)
	assert.False(t, f.Held())
}

// R114, R115: what is not there is refused, and every name is one of the space's tenant.
func TestEmptyStoreRefusesEveryone(t *testing.T) {
	caller := Caller{"spiffe://x/a", Binding{"a", "c", "b", 1}, "e"}
	for name, check := range map[string]Check{
		"office": EpochIs("dispatcher", "e"), "session": SessionIs(caller),
	} {
		spy := newSpy()
		_, err := space.Hold(t.Context(), spy, check)
		f, ok := contract.FailureOf(err)
		require.True(t, ok, name)
		assert.True(t, f.KnownNoEffect(), name)
		assert.Empty(t, spy.wrote(), name)
	}
}

// The states of one tenant are not another's.
func TestSpaceIsATenants(t *testing.T) {
	spy := newSpy()
	o, err := Space{"t1"}.TakeOffice(t.Context(), spy, "dispatcher")
	require.NoError(t, err)
	_, err = Space{"t1"}.Hold(t.Context(), spy, EpochIs("dispatcher", o.Epoch))
	require.NoError(t, err)
	_, err = Space{"t2"}.Hold(t.Context(), spy, EpochIs("dispatcher", o.Epoch))
	assert.ErrorIs(t, err, ErrEpochFenced)
	for id := range spy.stored {
		assert.Equal(t, "t1", id.Tenant)
	}
}

// Every sentinel is a refusal of one of the ten codes, under its own reason, that did nothing.
func TestFailuresDidNothing(t *testing.T) {
	seen := map[contract.Reason]bool{}
	for _, f := range []*contract.Failure{
		ErrEpochFenced, ErrSessionFenced, ErrNoSession, ErrNotApproved, ErrTokenStale, ErrMoved, ErrExpired, ErrUnfenced, ErrPermitFenced,
		ErrReserved, ErrReleased, ErrReservationFenced, ErrNotHeld, ErrNoEvidence, ErrPermitted, ErrVoid, ErrConsumed, ErrExhausted,
		ErrUnreadable,
	} {
		assert.False(t, seen[f.Reason], f.Reason)
		seen[f.Reason] = true
		_, known := f.Code.Rule()
		assert.True(t, known, f.Reason)
		assert.True(t, f.KnownNoEffect(), f.Reason)
		told := standing(f, 7)
		assert.ErrorIs(t, told, f)
		assert.Zero(t, f.Current, "the sentinel itself tells nothing")
	}
	assert.NotErrorIs(t, ErrVoid, ErrConsumed)
}
