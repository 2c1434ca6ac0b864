package fencing

import (
	"context"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Binding is who an agent is: which one, where, since which start, in which session (R114).
type Binding struct {
	AgentID    string `json:"agent_id"`
	CellID     string `json:"cell_id"`
	BootID     string `json:"boot_id"`    // opaque: equal or not
	Generation int64  `json:"generation"` // of the session: it only rises
}

// Caller is a caller as it was authenticated, and as it says that it is.
type Caller struct {
	Peer  string  // the identity in its verified certificate, never one that it sent
	Says  Binding // what its request says
	Epoch Epoch   // the dispatcher epoch that its request says; see SessionIs
}

// CallerOf is the caller that sent a request with this meta data over a connection with this verified identity.
func CallerOf(peer string, m contract.RequestMeta) Caller {
	return Caller{peer, Binding{m.AgentID, m.CellID, m.BootID, m.SessionGeneration}, Epoch(m.DispatcherEpoch)}
}

// Session is the current session of the agent that has a certificate identity. Its zero value approves nobody.
type Session struct {
	Binding
	Epoch Epoch `json:"epoch"` // of the dispatcher that it was activated with
}

// Approve is the pure decision to let an agent in a cell have the identity. Approving another one ends the session that there is,
// and its generation counts on.
func (s Session) Approve(agentID, cellID string) (Session, error) {
	if err := contract.ValidateText("/agent_id", agentID, contract.MaxMetaText); err != nil {
		return s, err
	}
	if err := contract.ValidateText("/cell_id", cellID, contract.MaxMetaText); err != nil {
		return s, err
	}
	if s.AgentID == agentID && s.CellID == cellID {
		return s, nil
	}
	return Session{Binding: Binding{AgentID: agentID, CellID: cellID, Generation: s.Generation}}, nil
}

// Activate is the pure decision about a new activation: the generation rises by one, and every session before is fenced (R36, R41).
// A repeated one must not come here: it is answered with its receipt (R37).
func (s Session) Activate(says Binding, epoch Epoch) (Session, error) {
	if s.AgentID == "" || says.AgentID != s.AgentID || says.CellID != s.CellID {
		return s, ErrNotApproved
	}
	if err := contract.ValidateText("/dispatcher_epoch", string(epoch), contract.MaxMetaText); err != nil {
		return s, err
	}
	if err := contract.ValidateText("/boot_id", says.BootID, contract.MaxMetaText); err != nil {
		return s, err
	}
	generation, err := next(s.Generation)
	if err != nil {
		return s, err
	}
	says.Generation = generation
	return Session{says, epoch}, nil
}

// Admit is the pure decision whether c is this session: all of its binding, and its epoch. Who says to be another agent or in
// another cell is denied; a boot or a generation that is not the current one, be it lower or higher, is fenced; so is another
// epoch (R112-R116, R122).
func (s Session) Admit(c Caller) error {
	if c.Peer == "" {
		return ErrNoSession
	}
	return s.admit(c.Says, c.Epoch, ErrSessionFenced)
}

// admit compares all of a session; fenced is the refusal of another boot or generation of the same agent in the same cell.
func (s Session) admit(says Binding, epoch Epoch, fenced *contract.Failure) error {
	switch {
	case s.AgentID == "":
		return ErrNoSession
	case says.AgentID != s.AgentID || says.CellID != s.CellID:
		return ErrNotApproved
	case s.BootID == "":
		return ErrNoSession
	case says.BootID != s.BootID || says.Generation != s.Generation:
		return standing(fenced, s.Generation)
	case epoch != s.Epoch:
		return ErrEpochFenced
	}
	return nil
}

// ApproveAgent lets the certificate identity peer be used by an agent in a cell, which may then activate a session. It needs
// [EpochIs].
func (f Fence) ApproveAgent(ctx context.Context, peer, agentID, cellID string) (Session, error) {
	if err := f.mayWrite("/peer", peer, maxPeer, epochIs); err != nil {
		return Session{}, err
	}
	_, s, err := change(ctx, f, sessionName(peer), func(s Session) (Session, error) { return s.Approve(agentID, cellID) })
	return s, err
}

// ActivateAgent makes a new session for the agent that was authenticated as peer. The session before is fenced when the transaction
// commits; writers that hold it are waited for. It needs [EpochIs].
func (f Fence) ActivateAgent(ctx context.Context, peer string, says Binding, epoch Epoch) (Session, error) {
	if err := f.mayWrite("/peer", peer, maxPeer, epochIs); err != nil {
		return Session{}, err
	}
	_, s, err := change(ctx, f, sessionName(peer), func(s Session) (Session, error) { return s.Activate(says, epoch) })
	return s, err
}

// Join is the pure decision, on the agent's own side, about the session that the dispatcher gave it: a newer one takes the place of
// an older one, and never the other way round, however often and how late it comes (R39, R49).
func (s Session) Join(given Session) (Session, error) {
	if !given.sound() || given.BootID == "" {
		return s, &contract.InvalidError{Path: "/session", Problem: "must have an agent, a cell, a boot id, a generation and an epoch"}
	}
	if given.Generation < s.Generation || given.Generation == s.Generation && given != s {
		return s, standing(ErrSessionFenced, s.Generation)
	}
	return given, nil
}

// Leave is the pure decision, on the agent's own side, to end its session: no other one than a newer one can be joined after it.
// The error is ErrNoSession if there is none.
func (s Session) Leave() (Session, error) {
	if s.BootID == "" {
		return s, ErrNoSession
	}
	s.BootID, s.Epoch = "", ""
	return s, nil
}

// sound says whether s can be a session: an approved one, and if it is active with all of its parts.
func (s Session) sound() bool {
	if s.AgentID == "" || s.CellID == "" || s.Generation < 0 {
		return false
	}
	return s.BootID == "" && s.Epoch == "" || s.BootID != "" && s.Epoch != "" && s.Generation > 0
}

// JoinSession records, on the agent's own side, the session that the dispatcher with this identity gave it: see [Session.Join].
func (s Space) JoinSession(ctx context.Context, values store.Values, peer string, given Session) (Session, error) {
	if err := contract.ValidateText("/peer", peer, maxPeer); err != nil {
		return Session{}, err
	}
	_, joined, err := update(ctx, values, s.id(sessionName(peer)), func(s Session) (Session, error) { return s.Join(given) })
	return joined, err
}

// LeaveSession ends, on the agent's own side, the session with the dispatcher with this identity. An agent that starts again does
// so first: what was sent to its process before is refused then, and the generation stays what it was (R49, R116).
func (s Space) LeaveSession(ctx context.Context, values store.Values, peer string) (Session, error) {
	_, left, err := update(ctx, values, s.id(sessionName(peer)), Session.Leave)
	return left, err
}

// Session tells the current session of an identity, without a lock: nothing may be written because of it.
func (s Space) Session(ctx context.Context, values store.Values, peer string) (Session, error) {
	return load[Session](ctx, values, s.id(sessionName(peer)))
}

// SessionIs holds when c is the current session of its certificate identity: see [Session.Admit]. The session is found by what was
// authenticated, never by what the caller says.
func SessionIs(c Caller) Check {
	return Check{sessionName(c.Peer), sessionIs, func(ctx context.Context, values store.Values, id store.ValueID) error {
		if contract.ValidateText("/peer", c.Peer, maxPeer) != nil {
			return ErrNoSession // nobody can have approved it
		}
		s, _, err := hold[Session](ctx, values, id)
		if err != nil {
			return err
		}
		return s.Admit(c)
	}}
}

func sessionName(peer string) string { return "session/" + peer }

const maxPeer = 400
