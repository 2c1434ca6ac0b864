package fencing

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// The reservations that the tests are about: the latest of a resource is r2 of agent a1, with token 2.
var (
	lease        = Lease{"r2", "a1", 2}
	reservations = []struct {
		name string
		r    Reservation
	}{
		{"none", Reservation{}},
		{"active", Reservation{Lease: lease, State: ReservationActive, Revision: 5}},
		{"active, permit", Reservation{Lease: lease, State: ReservationActive, Revision: 6, ExecutionID: "x1"}},
		{"fenced", Reservation{Lease: lease, State: ReservationFenced, Revision: 6}},
		{"fenced, permit", Reservation{Lease: lease, State: ReservationFenced, Revision: 7, ExecutionID: "x1"}},
		{"released", Reservation{Lease: lease, State: ReservationReleased, Revision: 6}},
		{"released, permit", Reservation{Lease: lease, State: ReservationReleased, Revision: 7, ExecutionID: "x1", Evidence: applied}},
	}
	applied = Evidence{"x1", contract.ResultApplied, "reconciler", ""}
)

// reservationRequest is one thing that can be asked of a reservation.
type reservationRequest struct {
	name string
	ask  func(Reservation) (Reservation, error)
}

func reserve(id, agentID string) reservationRequest {
	return reservationRequest{fmt.Sprintf("reserve %q for %q", id, agentID),
		func(r Reservation) (Reservation, error) { return r.Reserve(id, agentID) }}
}

// issue asks for a permit; a revision of -1 is the one that stands.
func issue(id, agentID, executionID string, revision int64) reservationRequest {
	return reservationRequest{fmt.Sprintf("issue %q to %q for %q at %d", id, agentID, executionID, revision),
		func(r Reservation) (Reservation, error) {
			if revision == -1 {
				revision = r.Revision
			}
			after, p, err := r.Issue(askOf(id, agentID, executionID, revision))
			if err == nil && p.Token != after.Token || err != nil && p != (Permit{}) {
				return after, fmt.Errorf("the permit %v of %v", p, after)
			}
			return after, err
		}}
}

func askOf(id, agentID, executionID string, revision int64) Permit {
	q := PermitRequest{"line-1", id, executionID, revision, 9}
	return Permit{ID: "p1", PermitRequest: q, Epoch: "e1", Binding: Binding{AgentID: agentID}}
}

func release(l Lease, e Evidence) reservationRequest {
	return reservationRequest{fmt.Sprintf("release %v on %s", l, e.text()),
		func(r Reservation) (Reservation, error) { return r.Release(l, e) }}
}

func fence(l Lease) reservationRequest {
	return reservationRequest{fmt.Sprintf("fence %v", l), func(r Reservation) (Reservation, error) { return r.Fence(l) }}
}

func (e Evidence) text() string {
	if e == (Evidence{}) {
		return "nothing"
	}
	return fmt.Sprintf("%q %s by %q: %q", e.ExecutionID, e.Result, e.By, e.Detail)
}

func reservationRequests() []reservationRequest {
	all := []reservationRequest{
		reserve("r3", "a2"), reserve("r2", "a1"), reserve("", "a1"), reserve("r3", ""),
		issue("r2", "a1", "x2", 5), issue("r2", "a1", "x2", 6), issue("r2", "a1", "x2", 7),
		issue("r2", "a1", "x1", 6), issue("r2", "a2", "x2", 5),
		issue("r1", "a1", "x2", 5), issue("r2", "a1", "x2", 0), issue("r2", "a1", "x2", -7), issue("", "a1", "x2", 5), issue("r2", "a1", "", 5),
	}
	for _, l := range wrongLeases() {
		all = append(all, fence(l), release(l, applied))
	}
	all = append(all, fence(lease), release(lease, Evidence{}), release(lease, applied))
	for _, e := range badEvidence() {
		all = append(all, release(lease, e))
	}
	for _, result := range []contract.ResultCode{contract.ResultNotApplied, contract.ResultRefused, contract.ResultStopped} {
		all = append(all, release(lease, Evidence{"x1", result, "reconciler", "sealed"}))
	}
	return all
}

// wrongLeases differ from the one that stands in one thing.
func wrongLeases() []Lease {
	return []Lease{{"r1", "a1", 1}, {"r2", "a1", 1}, {"r2", "a1", 3}, {"r2", "a2", 2}, {"r1", "a1", 2}, {"r2", "a1", 0}, {"r2", "a1", -2}, {}}
}

// badEvidence is what does not tell how the execution ended.
func badEvidence() []Evidence {
	return []Evidence{
		{"x2", contract.ResultApplied, "reconciler", ""}, {"x1", contract.ResultUnknown, "reconciler", "?"},
		{"x1", contract.ResultAccepted, "reconciler", "?"}, {"x1", contract.ResultConflict, "reconciler", "?"}, {"x1", "", "reconciler", "?"},
		{"x1", "DONE", "reconciler", "?"}, {"x1", contract.ResultApplied, "", ""}, {"x1", contract.ResultNotApplied, "reconciler", ""},
		{"", contract.ResultApplied, "reconciler", ""},
	}
}

// R72, R74, R76, R117: the whole decision about a reservation, for people to read.
func TestReservationTable(t *testing.T) {
	var b table
	b.row("# state", "revision, token", "request", "=> answer", "state, revision, token after it")
	for _, s := range reservations {
		b.row()
		for _, q := range reservationRequests() {
			after, err := q.ask(s.r)
			told := "the same"
			if after != s.r {
				told = fmt.Sprintf("%s %d %d %v execution %q", after.State, after.Revision, after.Token, after.Lease, after.ExecutionID)
			}
			b.row(s.name, fmt.Sprint(s.r.Revision, " ", s.r.Token), q.name, answer(err), told)
		}
	}
	b.compare(t, "reservation", "What becomes of the reservation of a resource.")
}

// R70, R72, R74, R76: in every sequence the token and the revision only rise, each by one; a reservation has one token and one permit,
// none after it was fenced or released; and a refusal changes nothing and tells what stands.
func TestReservationsOnlyGoOn(t *testing.T) {
	requests := []reservationRequest{
		reserve("r1", "a1"), reserve("r2", "a2"), issue("r1", "a1", "x1", -1), issue("r2", "a2", "x2", -1), issue("r1", "a1", "x3", 2),
		fence(Lease{"r1", "a1", 1}), fence(Lease{"r2", "a2", 2}),
		release(Lease{"r1", "a1", 1}, Evidence{}), release(Lease{"r2", "a2", 2}, Evidence{}),
		release(Lease{"r1", "a1", 1}, applied), release(Lease{"r1", "a1", 1}, Evidence{"x1", contract.ResultUnknown, "r", "?"}),
	}
	steps := 0
	sequences(Reservation{}, requests, 5, func(before Reservation, q reservationRequest) Reservation {
		steps++
		after, err := q.ask(before)
		if err != nil {
			require.Equal(t, before, after, q.name)
			f, ok := contract.FailureOf(err)
			require.True(t, ok && f.KnownNoEffect(), "%s: %v", q.name, err)
			return after
		}
		kind, _, _ := strings.Cut(q.name, " ")
		require.Equal(t, before.Revision+1, after.Revision, q.name)
		require.True(t, after.sound())
		if kind == "reserve" {
			require.True(t, before.State == "" || before.State == ReservationReleased, "only what is free is reserved")
			require.Equal(t, before.Token+1, after.Token)
			require.Empty(t, after.ExecutionID)
			return after
		}
		require.Equal(t, before.Lease, after.Lease, "one reservation, one token")
		require.Equal(t, kind == "issue", before.ExecutionID != after.ExecutionID)
		require.False(t, kind == "issue" && (before.State != ReservationActive || before.ExecutionID != ""))
		return after
	})
	assert.Greater(t, steps, 100_000)
}

// R117, A25, J19: an execution whose result is unknown keeps its resource from everybody, whatever is asked in whatever order.
func TestUnknownExecutionKeepsItsReservation(t *testing.T) {
	requests := []reservationRequest{reserve("r9", "a9"), fence(lease), release(lease, Evidence{})}
	for _, l := range wrongLeases() {
		requests = append(requests, release(l, applied), fence(l))
	}
	for _, e := range badEvidence() {
		requests = append(requests, release(lease, e))
	}
	started := Reservation{Lease: lease, State: ReservationActive, Revision: 6, ExecutionID: "x1"}
	sequences(started, requests, 3, func(before Reservation, q reservationRequest) Reservation {
		after, err := q.ask(before)
		require.Equal(t, lease, after.Lease)
		require.NotEqual(t, ReservationReleased, after.State, q.name)
		require.True(t, err != nil || strings.HasPrefix(q.name, "fence"), q.name)
		return after
	})
	released, err := started.Release(lease, applied)
	require.NoError(t, err)
	assert.Equal(t, applied, released.Evidence, "the evidence is kept")
}

// R117: an old request to release does nothing to the reservation that came after, and is told its token.
func TestOldReleaseLeavesTheSuccessor(t *testing.T) {
	ctx, spy := t.Context(), newSpy()
	f := fenceOf(spy)
	first, err := f.Reserve(ctx, "line-1", "r1", "a1")
	require.NoError(t, err)
	_, err = f.ReleaseReservation(ctx, "line-1", first.Lease, Evidence{})
	require.NoError(t, err)
	_, err = f.ReleaseReservation(ctx, "line-1", first.Lease, Evidence{})
	assert.Equal(t, standing(ErrReleased, 2), err)
	_, err = f.Reserve(ctx, "line-1", "r2", "a1")
	require.NoError(t, err)
	before := spy.content("reservation/line-1")

	_, err = f.ReleaseReservation(ctx, "line-1", first.Lease, Evidence{})
	assert.Equal(t, standing(ErrNotHeld, 2), err)
	_, err = f.FenceReservation(ctx, "line-1", first.Lease)
	assert.Equal(t, standing(ErrNotHeld, 2), err)
	_, err = f.ReleaseReservation(ctx, "line-2", first.Lease, Evidence{})
	assert.Equal(t, ErrNotHeld, err.(*contract.Failure).With(nil), "a lease that nobody knows")
	assert.Equal(t, before, spy.content("reservation/line-1"))
	assert.Empty(t, spy.content("reservation/line-2"))
}

// A28: tokens of a resource rise over all of its reservations, and those of two resources have nothing in common.
func TestTokensOfAResource(t *testing.T) {
	ctx, spy := t.Context(), newSpy()
	f := fenceOf(spy)
	for n := int64(1); n <= 20; n++ {
		r, err := f.Reserve(ctx, "line-1", fmt.Sprint("r", n), "a1")
		require.NoError(t, err)
		assert.Equal(t, n, r.Token)
		_, err = f.Reserve(ctx, "line-1", "another", "a2")
		assert.Equal(t, standing(ErrReserved, r.Revision), err)
		_, err = f.ReleaseReservation(ctx, "line-1", r.Lease, Evidence{})
		require.NoError(t, err)
	}
	r, err := f.Reserve(ctx, "line-2", "r1", "a1")
	require.NoError(t, err)
	assert.Equal(t, int64(1), r.Token)
	assert.Equal(t, contract.ResourceExhausted, ErrReserved.Code, "it waits for a release")
}

// R72: fenced or released is FAILED_PRECONDITION, whatever revision was expected; R74: a stale one is ABORTED; R76: a second permit
// is ALREADY_EXISTS.
func TestIssueCodes(t *testing.T) {
	for _, c := range []struct {
		state    string
		revision int64
		code     contract.FailureCode
	}{
		{"none", 1, contract.FailedPrecondition}, {"fenced", 5, contract.FailedPrecondition}, {"fenced", 6, contract.FailedPrecondition},
		{"released", 5, contract.FailedPrecondition}, {"released", 6, contract.FailedPrecondition}, {"active", 4, contract.Aborted},
		{"active", 6, contract.Aborted}, {"active", math.MaxInt64, contract.Aborted}, {"active, permit", 6, contract.AlreadyExists},
		{"active, permit", 5, contract.AlreadyExists},
	} {
		for _, s := range reservations {
			if s.name != c.state {
				continue
			}
			_, _, err := s.r.Issue(askOf("r2", "a1", "x9", c.revision))
			code, _ := contract.CodeOf(err)
			assert.Equal(t, c.code, code, "%s at %d: %v", c.state, c.revision, err)
			f, _ := contract.FailureOf(err)
			assert.Equal(t, s.r.Revision, f.Current, "it tells the revision that stands")
		}
	}
}
