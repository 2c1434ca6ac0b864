package fencing

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// sessions are every kind of session that there is.
var sessions = []struct {
	name string
	s    Session
}{
	{"none", Session{}},
	{"approved", Session{Binding: Binding{"a1", "c1", "", 0}}},
	{"active", Session{Binding{"a1", "c1", "b1", 2}, "e1"}},
	{"ended", Session{Binding: Binding{"a1", "c1", "", 2}}},
}

// sessionRequest is one thing that can be asked of a session.
type sessionRequest struct {
	name string
	ask  func(Session) (Session, error)
}

func approve(agentID, cellID string) sessionRequest {
	return sessionRequest{fmt.Sprintf("approve %q %q", agentID, cellID),
		func(s Session) (Session, error) { return s.Approve(agentID, cellID) }}
}

func activate(b Binding, e Epoch) sessionRequest {
	return sessionRequest{"activate " + shown(b, e), func(s Session) (Session, error) { return s.Activate(b, e) }}
}

func admit(peer string, b Binding, e Epoch) sessionRequest {
	return sessionRequest{fmt.Sprintf("admit %q %s", peer, shown(b, e)),
		func(s Session) (Session, error) { return s, s.Admit(Caller{peer, b, e}) }}
}

func join(b Binding, e Epoch) sessionRequest {
	return sessionRequest{"join " + shown(b, e), func(s Session) (Session, error) { return s.Join(Session{b, e}) }}
}

var leave = sessionRequest{"leave", Session.Leave}

// shown tells a session's parts; "-" is an empty one.
func shown(b Binding, e Epoch) string {
	texts := []string{b.AgentID, b.CellID, b.BootID, fmt.Sprint(b.Generation), string(e)}
	for i, text := range texts {
		if text == "" {
			texts[i] = "-"
		}
	}
	return strings.Join(texts, " ")
}

// sessionRequests are every request in which one part is not as it should be, and those in which all are.
func sessionRequests() []sessionRequest {
	all := []sessionRequest{
		approve("a1", "c1"), approve("a2", "c1"), approve("a1", "c2"), approve("", "c1"), approve("a1", ""), approve("a1\n", "c1"), leave,
	}
	for _, b := range []Binding{
		{"a1", "c1", "b1", 0}, {"a1", "c1", "b2", 0}, {"a1", "c1", "b2", 99}, {"a2", "c1", "b2", 0}, {"a1", "c2", "b2", 0}, {"", "", "b2", 0},
		{"a1", "c1", "", 0},
	} {
		all = append(all, activate(b, "e1"))
	}
	all = append(all, activate(Binding{"a1", "c1", "b2", 0}, "e2"), activate(Binding{"a1", "c1", "b2", 0}, ""),
		admit("", Binding{"a1", "c1", "b1", 2}, "e1"))
	for _, b := range []Binding{
		{"a1", "c1", "b1", 2}, {"a2", "c1", "b1", 2}, {"a1", "c2", "b1", 2}, {"a1", "c1", "b2", 2}, {"a1", "c1", "b1", 1}, {"a1", "c1", "b1", 3},
		{"a1", "c1", "b1", 0}, {"a1", "c1", "b1", -2}, {"a1", "c1", "", 2}, {"a1", "c1", "", 0}, {"", "", "", 0},
	} {
		all = append(all, admit("p", b, "e1"))
	}
	all = append(all, admit("p", Binding{"a1", "c1", "b1", 2}, "e2"), admit("p", Binding{"a1", "c1", "b1", 2}, ""),
		admit("p", Binding{"a2", "c1", "b0", 1}, "e0"))
	for _, b := range []Binding{
		{"a1", "c1", "b1", 1}, {"a1", "c1", "b1", 2}, {"a1", "c1", "b2", 2}, {"a1", "c1", "b2", 3}, {"a2", "c1", "b2", 9}, {"a1", "c1", "b2", 0},
		{"a1", "c1", "b2", -1}, {"a1", "c1", "", 3}, {"", "c1", "b2", 3}, {"a1", "", "b2", 3},
	} {
		all = append(all, join(b, "e1"))
	}
	return append(all, join(Binding{"a1", "c1", "b1", 2}, "e2"), join(Binding{"a1", "c1", "b1", 2}, ""))
}

// R36, R112, R114, R116: the whole decision about a session, for people to read.
func TestSessionTable(t *testing.T) {
	var b table
	b.row("# state", "agent, cell, boot, generation, epoch", "request", "=> answer", "state after it")
	for _, s := range sessions {
		b.row()
		for _, r := range sessionRequests() {
			after, err := r.ask(s.s)
			told := "the same"
			if after != s.s {
				told = shown(after.Binding, after.Epoch)
			}
			b.row(s.name, shown(s.s.Binding, s.s.Epoch), r.name, answer(err), told)
		}
	}
	b.compare(t, "session", "What becomes of a session.")
}

// sequences calls fn with the states along every sequence of n requests.
func sequences[S any, R any](start S, requests []R, n int, step func(S, R) S) {
	if n == 0 {
		return
	}
	for _, r := range requests {
		sequences(step(start, r), requests, n-1, step)
	}
}

// dispatcherSide are the requests that make and use sessions.
func dispatcherSide() []sessionRequest {
	return []sessionRequest{
		approve("a1", "c1"), approve("a2", "c1"), approve("", ""), activate(Binding{"a1", "c1", "b1", 7}, "e1"),
		activate(Binding{"a1", "c1", "b2", 0}, "e2"), activate(Binding{"a2", "c1", "b1", 0}, "e1"), activate(Binding{"a2", "c9", "b1", 0}, "e1"),
		admit("p", Binding{"a1", "c1", "b1", 1}, "e1"),
	}
}

// R36, R40, R41: in every sequence the generation only rises, by one and for an activation alone; a refusal changes nothing; no two
// activations have one generation; nobody who was not approved has a session.
func TestGenerationsOnlyRise(t *testing.T) {
	type path struct {
		Session
		activations int64
	}
	steps := 0
	sequences(path{}, dispatcherSide(), 5, func(p path, r sessionRequest) path {
		steps++
		before := p.Session
		after, err := r.ask(before)
		activation := strings.HasPrefix(r.name, "activate")
		switch {
		case err != nil:
			require.Equal(t, before, after, r.name)
			f, ok := contract.FailureOf(err)
			require.True(t, ok && f.KnownNoEffect(), r.name)
		case activation:
			require.Equal(t, before.Generation+1, after.Generation, r.name)
			require.Equal(t, []string{before.AgentID, before.CellID}, []string{after.AgentID, after.CellID}, r.name)
			require.NotEmpty(t, before.AgentID)
			p.activations++
		default:
			require.Equal(t, before.Generation, after.Generation, r.name)
		}
		require.Equal(t, p.activations, after.Generation, "as many generations as activations")
		require.True(t, after == Session{} || after.sound())
		return path{after, p.activations}
	})
	assert.Greater(t, steps, 30_000)
}

// R116, R122: after every sequence, of all the sessions that there ever were the current one is admitted and no other.
func TestOnlyTheCurrentSessionIsAdmitted(t *testing.T) {
	type path struct {
		Session
		past []Session
	}
	sequences(path{}, dispatcherSide(), 4, func(p path, r sessionRequest) path {
		after, err := r.ask(p.Session)
		if err == nil && after.BootID != "" {
			p.past = append(slices.Clip(p.past), after)
		}
		for _, s := range p.past {
			require.Equal(t, s == after, after.Admit(Caller{"p", s.Binding, s.Epoch}) == nil, "%v of %v", s, after)
		}
		return path{after, p.past}
	})
}

// R39, R49: on the agent's side no sequence of news, late ones and repeated ones among them, leads back to an earlier session.
func TestJoinNeverGoesBack(t *testing.T) {
	news := []sessionRequest{leave}
	for g := int64(1); g <= 3; g++ {
		news = append(news, join(Binding{"a1", "c1", "b1", g}, "e1"), join(Binding{"a1", "c1", "b2", g}, "e2"))
	}
	sequences(Session{}, news, 5, func(s Session, r sessionRequest) Session {
		after, err := r.ask(s)
		if err != nil {
			require.Equal(t, s, after)
			return after
		}
		require.GreaterOrEqual(t, after.Generation, s.Generation)
		if after.Generation == s.Generation && after != s {
			require.Equal(t, "leave", r.name, "one generation is one session")
		}
		return after
	})
}

// R116: an agent that was started again is in no session until it has a newer one: nothing that was sent to its process before gets
// in, and nothing that it was told before brings the old session back.
func TestRestartedAgentIsInNoSession(t *testing.T) {
	ctx, spy, old := t.Context(), newSpy(), sampleSession
	caller := Caller{"dispatcher", old.Binding, old.Epoch}
	_, err := space.JoinSession(ctx, spy, "dispatcher", old)
	require.NoError(t, err)
	_, err = space.Hold(ctx, spy, SessionIs(caller))
	require.NoError(t, err)

	left, err := space.LeaveSession(ctx, spy, "dispatcher")
	require.NoError(t, err)
	assert.Equal(t, old.Generation, left.Generation)
	_, err = space.Hold(ctx, spy, SessionIs(caller))
	assert.ErrorIs(t, err, ErrNoSession)
	_, err = space.JoinSession(ctx, spy, "dispatcher", old)
	assert.Equal(t, standing(ErrSessionFenced, old.Generation), err)
	_, err = space.LeaveSession(ctx, spy, "dispatcher")
	assert.ErrorIs(t, err, ErrNoSession)

	newer := Session{Binding{"a1", "c1", "b2", old.Generation + 1}, "e1"}
	_, err = space.JoinSession(ctx, spy, "dispatcher", newer)
	require.NoError(t, err)
	_, err = space.Hold(ctx, spy, SessionIs(caller))
	assert.Equal(t, standing(ErrSessionFenced, newer.Generation), err)
}

// R49: news of a session go to the agent's store once it has them, and a peer that cannot be stored is refused.
func TestJoinSessionRefusals(t *testing.T) {
	spy := newSpy()
	_, err := space.JoinSession(t.Context(), spy, "", sampleSession)
	assert.Equal(t, "INVALID_ARGUMENT /peer", answer(err))
	_, err = space.JoinSession(t.Context(), spy, "p", Session{})
	assert.Equal(t, "INVALID_ARGUMENT /session", answer(err))
	assert.Empty(t, spy.wrote())
}

// active makes an active session for a peer and returns its caller.
func active(ctx context.Context, t *testing.T, spy *spyValues, peer, agentID string) Caller {
	t.Helper()
	o, err := space.TakeOffice(ctx, spy, "dispatcher")
	require.NoError(t, err)
	f, err := space.Hold(ctx, spy, EpochIs("dispatcher", o.Epoch))
	require.NoError(t, err)
	_, err = f.ApproveAgent(ctx, peer, agentID, "c1")
	require.NoError(t, err)
	s, err := f.ActivateAgent(ctx, peer, Binding{AgentID: agentID, CellID: "c1", BootID: "b1"}, o.Epoch)
	require.NoError(t, err)
	return Caller{peer, s.Binding, s.Epoch}
}

// R114, R115: the session is found by the certificate's identity. Whoever says to be another agent, in another cell, or with another
// agent's session, is refused; and it is that agent's session which is locked.
func TestSessionIsOfTheCertificate(t *testing.T) {
	ctx, spy := t.Context(), newSpy()
	one, two := active(ctx, t, spy, "spiffe://x/1", "a1"), active(ctx, t, spy, "spiffe://x/2", "a2")
	spy.calls = nil
	_, err := space.Hold(ctx, spy, SessionIs(one))
	require.NoError(t, err)
	assert.Equal(t, []string{"hold session/spiffe://x/1"}, spy.calls)

	for name, c := range map[string]struct {
		caller Caller
		want   error
	}{
		"another agent's session over its own certificate": {Caller{one.Peer, two.Says, two.Epoch}, ErrNotApproved},
		"another cell":                  {Caller{one.Peer, Binding{"a1", "c2", "b1", 1}, one.Epoch}, ErrNotApproved},
		"its session over another's":    {Caller{two.Peer, one.Says, one.Epoch}, ErrNotApproved},
		"a certificate without session": {Caller{"spiffe://x/3", one.Says, one.Epoch}, ErrNoSession},
		"no certificate":                {Caller{"", one.Says, one.Epoch}, ErrNoSession},
		"one too long to be approved":   {Caller{strings.Repeat("x", 600), one.Says, one.Epoch}, ErrNoSession},
	} {
		_, err := space.Hold(ctx, spy, SessionIs(c.caller))
		assert.Equal(t, c.want, err, name)
	}
	assert.Equal(t, contract.PermissionDenied, ErrNotApproved.Code)
	assert.Equal(t, contract.Unauthenticated, ErrNoSession.Code)
	assert.Equal(t, contract.Unauthenticated, ErrSessionFenced.Code)
}

// R40: an identity that nobody approved gets no session, and no row.
func TestUnapprovedGetsNoRow(t *testing.T) {
	spy := newSpy()
	for _, says := range []Binding{{}, sampleBinding, {BootID: "b1"}} {
		_, err := fenceOf(spy).ActivateAgent(t.Context(), "p", says, "e1")
		assert.Equal(t, ErrNotApproved, err)
	}
	assert.Empty(t, spy.stored)
	_, err := fenceOf(spy).ActivateAgent(t.Context(), "", sampleBinding, "e1")
	assert.Equal(t, "INVALID_ARGUMENT /peer", answer(err))
	_, err = fenceOf(spy).ApproveAgent(t.Context(), strings.Repeat("x", maxPeer+1), "a1", "c1")
	assert.Equal(t, "INVALID_ARGUMENT /peer", answer(err))
}

// R41: an activation that raced with another one has a generation of its own, and the last to commit is the current one.
func TestRacingActivationsDiffer(t *testing.T) {
	ctx, spy := t.Context(), newSpy()
	first := active(ctx, t, spy, "p", "a1")
	raced, other := false, Session{}
	spy.before = func(call string) error {
		if call == "swap session/p" && !raced {
			raced = true
			var err error
			other, err = fenceOf(spy).ActivateAgent(ctx, "p", Binding{"a1", "c1", "b2", 0}, first.Epoch)
			require.NoError(t, err)
		}
		return nil
	}
	last, err := fenceOf(spy).ActivateAgent(ctx, "p", Binding{"a1", "c1", "b3", 0}, first.Epoch)
	require.NoError(t, err)
	assert.Equal(t, []int64{1, 2, 3}, []int64{first.Says.Generation, other.Generation, last.Generation})
	for _, s := range []Session{{first.Says, first.Epoch}, other} {
		_, err := space.Hold(ctx, spy, SessionIs(Caller{"p", s.Binding, s.Epoch}))
		assert.Equal(t, standing(ErrSessionFenced, 3), err)
	}
	stands, err := space.Session(ctx, spy, "p")
	require.NoError(t, err)
	assert.Equal(t, last, stands)
}

// R111, R112: a session of the dispatcher before is refused under the new epoch, by the office and by what the request says.
func TestSessionOfADeposedDispatcher(t *testing.T) {
	ctx, spy := t.Context(), newSpy()
	c := active(ctx, t, spy, "p", "a1")
	o, err := space.TakeOffice(ctx, spy, "dispatcher")
	require.NoError(t, err)
	_, err = space.Hold(ctx, spy, SessionIs(c), EpochIs("dispatcher", c.Epoch))
	assert.Equal(t, standing(ErrEpochFenced, 2), err)
	_, err = space.Hold(ctx, spy, SessionIs(Caller{"p", c.Says, o.Epoch}), EpochIs("dispatcher", o.Epoch))
	assert.Equal(t, ErrEpochFenced, err)
}

// R115: what a request says is what is compared, and its peer is the connection's.
func TestCallerOf(t *testing.T) {
	m := contract.RequestMeta{AgentID: "a1", CellID: "c1", BootID: "b1", SessionGeneration: 3, DispatcherEpoch: "e1"}
	assert.Equal(t, Caller{"p", sampleBinding, "e1"}, CallerOf("p", m))
}
