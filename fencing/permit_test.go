package fencing

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// with is the sample permit with a change.
func with(change func(*Permit)) Permit {
	p := samplePermit
	change(&p)
	return p
}

// sentPermits are the sample permit, and what differs from it in one thing.
func sentPermits() []struct {
	name string
	p    Permit
} {
	return []struct {
		name string
		p    Permit
	}{
		{"as issued", samplePermit},
		{"another agent", with(func(p *Permit) { p.Binding.AgentID = "a2" })},
		{"another cell", with(func(p *Permit) { p.Binding.CellID = "c2" })},
		{"another boot", with(func(p *Permit) { p.Binding.BootID = "b2" })},
		{"no boot", with(func(p *Permit) { p.Binding.BootID = "" })},
		{"lower generation", with(func(p *Permit) { p.Binding.Generation = 2 })},
		{"higher generation", with(func(p *Permit) { p.Binding.Generation = 4 })},
		{"no generation", with(func(p *Permit) { p.Binding.Generation = 0 })},
		{"another epoch", with(func(p *Permit) { p.Epoch = "e2" })},
		{"no epoch", with(func(p *Permit) { p.Epoch = "" })},
		{"no deadline", with(func(p *Permit) { p.Deadline = 0 })},
		{"negative deadline", with(func(p *Permit) { p.Deadline = -1 })},
		{"lower token", with(func(p *Permit) { p.Token = 1 })},
		{"higher token", with(func(p *Permit) { p.Token = 3 })},
		{"no token", with(func(p *Permit) { p.Token = 0 })},
		{"negative token", with(func(p *Permit) { p.Token = math.MinInt64 })},
		{"another permit", with(func(p *Permit) { p.ID = "p2" })},
		{"no permit id", with(func(p *Permit) { p.ID = "" })},
		{"another execution", with(func(p *Permit) { p.ExecutionID = "x2" })},
		{"no execution", with(func(p *Permit) { p.ExecutionID = "" })},
		{"no resource", with(func(p *Permit) { p.Resource = "" })},
	}
}

// marks are what an agent can know of a resource whose highest token is the sample permit's.
var marks = []struct {
	name string
	m    PermitMark
}{
	{"none", PermitMark{}},
	{"consumed", PermitMark{Mark{2, "p1"}, "x1", false}},
	{"consumed, void", PermitMark{Mark{2, "p1"}, "x1", true}},
	{"void", PermitMark{Mark{2, ""}, "", true}},
}

// R51, R54, R56, R64: the whole decision about a permit that was sent, for people to read: by an agent in the session that it was
// issued in, whose store knows different things of the resource.
func TestPermitTable(t *testing.T) {
	ctx := t.Context()
	var b table
	b.row("# known of the resource", "permit, at", "=> answer", "known after it")
	for _, known := range marks {
		b.row()
		for _, sent := range sentPermits() {
			for _, now := range []int64{-1, 0} {
				spy := agentThatKnows(known.m)
				_, err := fenceOf(spy).ConsumePermit(ctx, "dispatcher", sent.p, time.UnixMilli(sampleAsk.Deadline+now))
				after, loadErr := space.PermitMark(ctx, spy, "line-1")
				require.NoError(t, loadErr)
				told := "the same"
				if after != known.m {
					told = fmt.Sprintf("%d %q for %q void=%v", after.Token, after.Holder, after.ExecutionID, after.Void)
				}
				b.row(known.name, sent.name+map[int64]string{-1: "", 0: ", at its deadline"}[now], answer(err), told)
			}
		}
	}
	b.compare(t, "permit", "What becomes of a permit that is sent to an agent.")
}

// agentThatKnows is the store of an agent in the sample session.
func agentThatKnows(m PermitMark) *spyValues {
	spy := newSpy()
	spy.put("session/dispatcher", everyKept[1].form)
	if m != (PermitMark{}) {
		content, _ := json.Marshal(m)
		spy.put("permit_mark/line-1", string(content))
	}
	return spy
}

// R51, A5: the permit's own session and epoch are compared with the agent's, and are ABORTED when they are stale; R66: without a
// session no permit is.
func TestAdmitPermitCodes(t *testing.T) {
	want := map[string]error{
		"another agent": ErrNotApproved, "another cell": ErrNotApproved, "another boot": standing(ErrPermitFenced, 3),
		"no boot": standing(ErrPermitFenced, 3), "lower generation": standing(ErrPermitFenced, 3),
		"higher generation": standing(ErrPermitFenced, 3),
		"no generation":     standing(ErrPermitFenced, 3), "another epoch": ErrEpochFenced, "no epoch": ErrEpochFenced, "no deadline": ErrExpired,
		"negative deadline": ErrExpired,
	}
	for _, sent := range sentPermits() {
		err := sampleSession.AdmitPermit(sent.p, at)
		if want[sent.name] == nil {
			assert.NoError(t, err, sent.name)
			continue
		}
		assert.Equal(t, want[sent.name], err, sent.name)
	}
	for _, s := range []Session{{}, {Binding: Binding{"a1", "c1", "", 3}}} {
		assert.Equal(t, ErrNoSession, s.AdmitPermit(samplePermit, at))
	}
	assert.Equal(t, contract.Aborted, ErrPermitFenced.Code)
	assert.Equal(t, contract.FailedPrecondition, ErrVoid.Code)
	assert.Equal(t, contract.FailedPrecondition, ErrConsumed.Code)
}

// R56, R73: in every sequence of permits and of the ends of reservations each permit is consumed at most once, the tokens of those that
// are rise, none is consumed after the end of its reservation or of a later one, and a refusal changes nothing.
func TestPermitsAreConsumedOnce(t *testing.T) {
	type path struct {
		PermitMark
		ended, last int64
	}
	type event struct {
		name string
		ask  func(PermitMark) (PermitMark, error)
		p    Permit
		end  int64
	}
	var events []event
	for token := int64(1); token <= 3; token++ {
		p := Permit{ID: fmt.Sprint("p", token), PermitRequest: PermitRequest{ExecutionID: fmt.Sprint("x", token)}, Token: token}
		events = append(events, event{name: "consume", ask: func(m PermitMark) (PermitMark, error) { return m.Consume(p) }, p: p},
			event{name: "end", ask: func(m PermitMark) (PermitMark, error) { return m.End(token) }, end: token})
	}
	other := Permit{ID: "p9", PermitRequest: PermitRequest{ExecutionID: "x9"}, Token: 2}
	events = append(events, event{name: "consume", ask: func(m PermitMark) (PermitMark, error) { return m.Consume(other) }, p: other})
	consumed := 0
	sequences(path{}, events, 6, func(before path, e event) path {
		after, err := e.ask(before.PermitMark)
		next := path{after, max(before.ended, e.end), before.last}
		require.True(t, after == PermitMark{} || after.sound())
		switch {
		case e.name == "end":
			require.NoError(t, err)
			require.Equal(t, max(before.Token, e.end), after.Token)
		case err != nil:
			require.Equal(t, before.PermitMark, after)
			require.True(t, e.p.Token <= before.last || e.p.Token <= before.ended, "refused without a reason: %v", err)
		default:
			consumed++
			require.Greater(t, e.p.Token, before.last)
			require.Greater(t, e.p.Token, before.ended)
			require.Equal(t, PermitMark{Mark{e.p.Token, e.p.ID}, e.p.ExecutionID, false}, after)
			next.last = e.p.Token
		}
		return next
	})
	assert.Greater(t, consumed, 1000)
}

// R57, R66: what the checks refuse consumes nothing, and neither does a stale permit; the session is held while one is consumed.
func TestRefusedPermitIsNotConsumed(t *testing.T) {
	ctx, spy := t.Context(), agentThatKnows(PermitMark{})
	caller := Caller{"dispatcher", sampleBinding, "e1"}
	_, err := space.Hold(ctx, spy, SessionIs(caller), checkThat("admission/a1", ErrClosed))
	require.Equal(t, ErrClosed, err)
	spy.put("admission/a1", openAdmission)
	f, err := space.Hold(ctx, spy, SessionIs(caller), AdmissionOpen("a1"))
	require.NoError(t, err)
	for _, sent := range sentPermits() {
		if sampleSession.AdmitPermit(sent.p, at) != nil {
			_, err := f.ConsumePermit(ctx, "dispatcher", sent.p, at)
			assert.Error(t, err)
		}
	}
	_, err = f.ConsumePermit(ctx, "dispatcher", samplePermit, time.UnixMilli(sampleAsk.Deadline))
	assert.Equal(t, ErrExpired, err)
	_, err = f.ConsumePermit(ctx, "another dispatcher", samplePermit, at)
	assert.Equal(t, ErrNoSession, err)
	assert.Empty(t, spy.wrote())

	spy.calls = nil
	m, err := f.ConsumePermit(ctx, "dispatcher", samplePermit, at)
	require.NoError(t, err)
	assert.Equal(t, PermitMark{Mark{2, "p1"}, "x1", false}, m)
	assert.Equal(t, []string{"hold session/dispatcher", "load permit_mark/line-1", "swap permit_mark/line-1"}, spy.calls)
}

// R73: a permit is void for an agent that was told that its reservation is over, also before it came, and earlier ones are stale; a
// later one is not affected, and late news of an earlier reservation end no later one.
func TestEndedPermitsAreVoid(t *testing.T) {
	ctx, spy := t.Context(), agentThatKnows(PermitMark{})
	f := fenceOf(spy)
	_, err := f.EndPermits(ctx, "line-1", 2)
	require.NoError(t, err)
	_, err = f.ConsumePermit(ctx, "dispatcher", samplePermit, at)
	assert.Equal(t, standing(ErrVoid, 2), err)
	_, err = f.ConsumePermit(ctx, "dispatcher", with(func(p *Permit) { p.Token, p.ID = 1, "p0" }), at)
	assert.Equal(t, standing(ErrTokenStale, 2), err)
	later := with(func(p *Permit) { p.Token, p.ID, p.ExecutionID = 3, "p3", "x3" })
	m, err := f.ConsumePermit(ctx, "dispatcher", later, at)
	require.NoError(t, err)
	after, err := f.EndPermits(ctx, "line-1", 2)
	require.NoError(t, err)
	assert.Equal(t, m, after)
	_, err = f.EndPermits(ctx, "line-1", 3)
	require.NoError(t, err)
	_, err = f.ConsumePermit(ctx, "dispatcher", later, at)
	assert.Equal(t, standing(ErrVoid, 3), err, "what was consumed is over as well")
	_, err = f.EndPermits(ctx, "line-1", 0)
	assert.Equal(t, "INVALID_ARGUMENT /fencing_token", answer(err))
}

// dispatcher is the store of a dispatcher with an active session of agent a1 and a reservation for it; it returns a Fence on it.
func dispatcher(ctx context.Context, t *testing.T) (*spyValues, Fence, Caller) {
	t.Helper()
	spy := newSpy()
	c := active(ctx, t, spy, "spiffe://x/a1", "a1")
	f, err := space.Hold(ctx, spy, SessionIs(c), EpochIs("dispatcher", c.Epoch))
	require.NoError(t, err)
	r, err := f.Reserve(ctx, "line-1", "r1", "a1")
	require.NoError(t, err)
	require.Equal(t, int64(1), r.Revision)
	return spy, f, c
}

func askFor(executionID, reservationID string, revision int64) PermitRequest {
	return PermitRequest{"line-1", reservationID, executionID, revision, sampleAsk.Deadline}
}

// R70, R71, R115: a permit is kept with all that was asked for, in the session of the certificate; it is read again as it was.
func TestIssuePermit(t *testing.T) {
	ctx := t.Context()
	spy, f, c := dispatcher(ctx, t)
	p, r, err := f.IssuePermit(ctx, c.Peer, askFor("x1", "r1", 1))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(p.ID), 26)
	assert.Equal(t, Permit{p.ID, askFor("x1", "r1", 1), 1, c.Epoch, c.Says}, p)
	assert.Equal(t, Reservation{Lease: Lease{"r1", "a1", 1}, State: ReservationActive, Revision: 2, ExecutionID: "x1"}, r)

	read, valid, err := space.Permit(ctx, spy, "x1")
	require.NoError(t, err)
	assert.Equal(t, p, read)
	assert.True(t, valid)
	none, valid, err := space.Permit(ctx, spy, "x2")
	require.NoError(t, err)
	assert.Zero(t, none)
	assert.False(t, valid)
}

// R73: a permit that was issued is void once its reservation was fenced or released, also when the resource has another one.
func TestIssuedPermitBecomesVoid(t *testing.T) {
	ctx := t.Context()
	spy, f, c := dispatcher(ctx, t)
	p, r, err := f.IssuePermit(ctx, c.Peer, askFor("x1", "r1", 1))
	require.NoError(t, err)
	isVoid := func(when string) {
		read, valid, err := space.Permit(ctx, spy, "x1")
		require.NoError(t, err)
		assert.Equal(t, p, read)
		assert.False(t, valid, when)
	}
	_, err = f.FenceReservation(ctx, "line-1", r.Lease)
	require.NoError(t, err)
	isVoid("fenced")
	_, err = f.ReleaseReservation(ctx, "line-1", r.Lease, applied)
	require.NoError(t, err)
	isVoid("released")
	r, err = f.Reserve(ctx, "line-1", "r2", "a1")
	require.NoError(t, err)
	isVoid("succeeded")
	_, err = f.ReleaseReservation(ctx, "line-1", r.Lease, Evidence{})
	require.NoError(t, err)
	_, err = f.Reserve(ctx, "line-1", "r1", "a1")
	require.NoError(t, err)
	isVoid("reserved again under the same id: the token tells them apart")
}

// R72, R74, R76, R66: what is refused writes nothing, and an execution never has a second permit: not of its reservation, not of a
// later one, and not of another resource.
func TestIssuePermitRefusals(t *testing.T) {
	ctx := t.Context()
	spy, f, c := dispatcher(ctx, t)
	refused := func(peer string, q PermitRequest, want error) {
		t.Helper()
		spy.calls = nil
		p, r, err := f.IssuePermit(ctx, peer, q)
		if want == nil {
			assert.ErrorIs(t, err, contract.ErrInvalid)
		} else {
			assert.Equal(t, want, err)
		}
		assert.Zero(t, p)
		assert.Zero(t, r)
		assert.Empty(t, spy.wrote())
	}
	refused(c.Peer, askFor("x1", "r1", 2), standing(ErrMoved, 1))
	refused(c.Peer, askFor("x1", "r0", 1), ErrReleased)
	refused("spiffe://x/unknown", askFor("x1", "r1", 1), ErrNoSession)
	for _, q := range []PermitRequest{
		askFor("", "r1", 1), askFor("x1", "", 1), askFor("x1", "r1", 0), askFor("x1", "r1", -1),
		{"", "r1", "x1", 1, 1}, {"line-1", "r1", "x1", 1, 0},
		{"line-1", "r1", "x1", 1, -5}, askFor(strings.Repeat("x", 129), "r1", 1),
	} {
		refused(c.Peer, q, nil)
	}
	refused("", askFor("x1", "r1", 1), nil)

	_, r, err := f.IssuePermit(ctx, c.Peer, askFor("x1", "r1", 1))
	require.NoError(t, err)
	refused(c.Peer, askFor("x1", "r1", r.Revision), ErrPermitted)
	refused(c.Peer, askFor("x2", "r1", r.Revision), standing(ErrPermitted, r.Revision))
	_, err = f.FenceReservation(ctx, "line-1", r.Lease)
	require.NoError(t, err)
	refused(c.Peer, askFor("x2", "r1", 3), standing(ErrReservationFenced, 3))
	_, err = f.ReleaseReservation(ctx, "line-1", r.Lease, applied)
	require.NoError(t, err)
	refused(c.Peer, askFor("x2", "r1", 4), standing(ErrReleased, 4))
	_, err = f.Reserve(ctx, "line-1", "r2", "a1")
	require.NoError(t, err)
	refused(c.Peer, askFor("x1", "r2", 5), ErrPermitted)
	other, err := f.Reserve(ctx, "line-2", "r3", "a1")
	require.NoError(t, err)
	refused(c.Peer, PermitRequest{"line-2", "r3", "x1", other.Revision, 1}, ErrPermitted)
}

// R115: a reservation is its agent's; the session is that of the certificate, and not one that was ended or approved alone.
func TestIssuePermitIsTheAgents(t *testing.T) {
	ctx := t.Context()
	spy, f, _ := dispatcher(ctx, t)
	_, err := f.ApproveAgent(ctx, "spiffe://x/a2", "a2", "c1")
	require.NoError(t, err)
	_, _, err = f.IssuePermit(ctx, "spiffe://x/a2", askFor("x1", "r1", 1))
	assert.Equal(t, ErrNoSession, err, "approved, and not active")
	two := active(ctx, t, spy, "spiffe://x/a2", "a2")
	_, _, err = f.IssuePermit(ctx, two.Peer, askFor("x1", "r1", 1))
	assert.Equal(t, ErrNotApproved, err)
	assert.Empty(t, spy.content("permit/x1"))
}

// R76: two that ask for one execution at once, of two resources, get one permit: the later one runs its transaction again, and is
// refused then.
func TestRacingPermitsAreOne(t *testing.T) {
	ctx := t.Context()
	spy, f, c := dispatcher(ctx, t)
	_, err := f.Reserve(ctx, "line-2", "r2", "a1")
	require.NoError(t, err)
	raced := false
	spy.before = func(call string) error {
		if call == "swap permit/x1" && !raced {
			raced = true
			_, _, err := f.IssuePermit(ctx, c.Peer, PermitRequest{"line-2", "r2", "x1", 1, sampleAsk.Deadline})
			return err
		}
		return nil
	}
	p, _, err := f.IssuePermit(ctx, c.Peer, askFor("x1", "r1", 1))
	assert.ErrorIs(t, err, store.ErrRetryTx)
	assert.Zero(t, p)
	_, isRefusal := contract.FailureOf(err)
	assert.False(t, isRefusal, "it wrote something, so that the transaction must be rolled back")
	_, _, err = f.IssuePermit(ctx, c.Peer, askFor("x1", "r1", 1))
	assert.Equal(t, ErrPermitted, err)
}

// R72: the reservation that is released while a permit is decided is seen: no permit is issued.
func TestReleaseBeatsAPermit(t *testing.T) {
	ctx := t.Context()
	spy, f, c := dispatcher(ctx, t)
	released := false
	spy.before = func(call string) error {
		if call == "swap reservation/line-1" && !released {
			released = true
			_, err := f.ReleaseReservation(ctx, "line-1", Lease{"r1", "a1", 1}, Evidence{})
			return err
		}
		return nil
	}
	_, _, err := f.IssuePermit(ctx, c.Peer, askFor("x1", "r1", 1))
	assert.Equal(t, standing(ErrReleased, 2), err)
	assert.Empty(t, spy.content("permit/x1"))
}

// R76: and a permit beats the release of what nobody used: it needs evidence then.
func TestPermitBeatsARelease(t *testing.T) {
	ctx := t.Context()
	spy, f, c := dispatcher(ctx, t)
	issued := false
	spy.before = func(call string) error {
		if call == "swap reservation/line-1" && !issued {
			issued = true
			_, _, err := f.IssuePermit(ctx, c.Peer, askFor("x1", "r1", 1))
			return err
		}
		return nil
	}
	r, err := f.ReleaseReservation(ctx, "line-1", Lease{"r1", "a1", 1}, Evidence{})
	assert.Equal(t, standing(ErrNoEvidence, 2), err)
	assert.Equal(t, ReservationActive, r.State)
}

// A fault of the store is told as one, and nothing is told of a permit.
func TestPermitFaults(t *testing.T) {
	for _, down := range []string{
		"hold session/spiffe://x/a1", "load permit/x1", "load reservation/line-1", "swap reservation/line-1", "swap permit/x1",
	} {
		spy, f, c := dispatcher(t.Context(), t)
		spy.before = func(call string) error {
			if call == down {
				return errDown
			}
			return nil
		}
		p, r, err := f.IssuePermit(t.Context(), c.Peer, askFor("x1", "r1", 1))
		assert.ErrorIs(t, err, errDown, down)
		assert.Zero(t, p)
		assert.Zero(t, r)
	}
	for _, down := range []string{"load permit/x1", "load reservation/line-1"} {
		spy, f, c := dispatcher(t.Context(), t)
		_, _, err := f.IssuePermit(t.Context(), c.Peer, askFor("x1", "r1", 1))
		require.NoError(t, err)
		spy.before = func(call string) error {
			if call == down {
				return errDown
			}
			return nil
		}
		_, valid, err := space.Permit(t.Context(), spy, "x1")
		assert.ErrorIs(t, err, errDown)
		assert.False(t, valid)
	}
}
