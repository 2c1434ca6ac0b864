package fencetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/fencing/fencetest"
	"github.com/confirmexec/confirmexec/store/memstore"
)

type (
	tx      = *memstore.Tx
	harness = fencetest.Harness[tx]
)

// faults are the broken implementations, and the case that must find each. A fault is applied again after each restart, so that
// what it keeps in variables of its own is a process's memory.
var faults = map[string]struct {
	fault func(h *harness)
	found string
}{
	"the generation is counted in memory":   {generationInMemory, "J1 R49 numbers rise over a restart"},
	"the token mark is not durable":         {tokenInMemory, "J1 R56 a token is remembered over a restart"},
	"the epoch is compared by order":        {epochByOrder, "R113 an epoch is compared by equality"},
	"an empty store lets the first one in":  {emptyIsFirst, "R112 a scope without an office refuses every epoch"},
	"a caller is checked once":              {checkedOnce, "J4 J12 R116 a newer session fences every older one"},
	"a higher generation is let in":         {higherIsNewer, "J12 R114 R115 R122 all of a caller's identity is compared"},
	"the certificate is not looked at":      {selfReported, "J12 R114 R115 R122 all of a caller's identity is compared"},
	"the boot is not compared":              {anyBoot, "J12 R114 R115 R122 all of a caller's identity is compared"},
	"a deposed dispatcher activates":        {deposedActivates, "J4 R112 a deposed dispatcher approves and activates nobody"},
	"a refusal names no number":             {noCurrent, "J14 a refusal names the number that stands"},
	"a fenced caller leaves an audit row":   {auditRow, "J4 J12 R116 a newer session fences every older one"},
	"a fenced caller's token is remembered": {fencedToken, "J12 R56 a fenced caller shows no token"},
	"an equal token is anybody's":           {equalToken, "J4 J14 R56 a token below the highest is stale"},
	"a missing generation means any":        {missingIsAny, "J14 R45 R47 a generation that does not stand is refused"},
	"a barrier moves the generation again":  {barrierAgain, "J9 R44 R46 a barrier moves the generation once"},
	"a barrier is applied with active calls": {
		appliedActive, "J11 R48 R119 a barrier is reached when nothing is active",
	},
	"a stop of admission can be taken back": {stopTakenBack, "J10 R92 a stop of admission is for ever"},
	"STOP is not absorbing":                 {resumesStopped, "J10 R79 STOP is for ever"},
	"an old authorization resumes":          {oldAuthorization, "R81 R82 a resume needs a new authorization"},
	"a permit is consumed twice":            {consumedTwice, "J13 R54 a permit is consumed once"},
	"a permit's deadline is inclusive":      {inclusiveDeadline, "R51 R64 a permit is of one session, and has an end"},
	"a permit is issued after the fence":    {issuedAfterFence, "J13 R72 R74 no permit of a reservation that is over"},
	"a void permit is consumed":             {voidConsumed, "J13 R73 a permit is void once its reservation has ended"},
	"an older session is joined":            {joinsOlder, "J1 R39 a session that was given later stays"},
	"a process that starts joins its past":  {joinsOlder, "J4 R116 a process that starts again leaves its session"},
	"a lease is released without evidence":  {noEvidence, "J19 R117 no lease is released without evidence, or by another"},
	"the gate looks before it registers":    {looseGate, "J11 R89 a call is registered before a close, or not at all"},
	"a restart opens the gate":              {openAtStart, "J10 R92 a gate that was stopped is never open again"},
	"every report of a fact has a row":      {rowPerReport, "J17 R95 R96 R98 a fact is queued once"},
	"a fenced caller reports":               {checkedOnce, "J17 R95 R96 R98 a fact is queued once"},
	"a fact outlives its completion":        {commitsAll, "J18 R100 R101 what completes queues its fact with it"},
	"a mutation's guard is asked once":      {checkedOnce, "J12 R121 a fenced caller gets no receipt and leaves no claim"},
}

// generationInMemory begins to count at 1 in each process.
func generationInMemory(h *harness) {
	var mu sync.Mutex
	before := int64(-1)
	activate, hold := h.Activate, h.Hold
	h.Activate = func(ctx context.Context, tx tx, e fencing.Epoch, peer string, says fencing.Binding) (int64, error) {
		g, err := activate(ctx, tx, e, peer, says)
		mu.Lock()
		defer mu.Unlock()
		if before < 0 {
			before = g - 1
		}
		return g - before, err
	}
	h.Hold = func(ctx context.Context, tx tx, c fencing.Caller) error {
		mu.Lock()
		c.Says.Generation += max(before, 0)
		mu.Unlock()
		return hold(ctx, tx, c)
	}
}

// tokenInMemory decides well, and keeps the mark in the process.
func tokenInMemory(h *harness) {
	var mu sync.Mutex
	marks, hold := map[string]fencing.Mark{}, h.Hold
	h.Tokens = &fencetest.Tokens[tx]{
		Show: func(ctx context.Context, tx tx, c fencing.Caller, resource string, token int64, holder string) error {
			if err := hold(ctx, tx, c); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			m, err := marks[resource].Show(token, holder)
			marks[resource] = m
			return err
		},
	}
}

func epochByOrder(h *harness) {
	var mu sync.Mutex
	var active fencing.Epoch
	take, hold := h.TakeOffice, h.HoldOffice
	h.TakeOffice = func(ctx context.Context, tx tx) (fencing.Office, error) {
		o, err := take(ctx, tx)
		mu.Lock()
		defer mu.Unlock()
		active = o.Epoch
		return o, err
	}
	h.HoldOffice = func(ctx context.Context, tx tx, e fencing.Epoch) error {
		mu.Lock()
		newer := active != "" && e > active
		mu.Unlock()
		if newer {
			return nil
		}
		return hold(ctx, tx, e)
	}
}

func emptyIsFirst(h *harness) {
	hold := h.HoldOffice
	h.HoldOffice = func(ctx context.Context, tx tx, e fencing.Epoch) error {
		err := hold(ctx, tx, e)
		if f, ok := contract.FailureOf(err); ok && f.Current == 0 {
			return nil
		}
		return err
	}
}

// checkedOnce remembers who was let in, as an interceptor with a cache does.
func checkedOnce(h *harness) {
	var known sync.Map
	hold := h.Hold
	h.Hold = func(ctx context.Context, tx tx, c fencing.Caller) error {
		if _, ok := known.Load(c); ok {
			return nil
		}
		err := hold(ctx, tx, c)
		if err == nil {
			known.Store(c, true)
		}
		return err
	}
	activate := h.Activate
	h.Activate = func(ctx context.Context, tx tx, e fencing.Epoch, peer string, says fencing.Binding) (g int64, err error) {
		if g, err = activate(ctx, tx, e, peer, says); err == nil {
			says.Generation = g
			known.Store(fencing.Caller{Peer: peer, Says: says, Epoch: e}, true)
		}
		return g, err
	}
}

// holding is a fault of what callers are let in.
func holding(change func(ctx context.Context, tx tx, c fencing.Caller, hold func(fencing.Caller) error) error) func(h *harness) {
	return func(h *harness) {
		hold := h.Hold
		h.Hold = func(ctx context.Context, tx tx, c fencing.Caller) error {
			return change(ctx, tx, c, func(c fencing.Caller) error { return hold(ctx, tx, c) })
		}
	}
}

var higherIsNewer = holding(func(_ context.Context, _ tx, c fencing.Caller, hold func(fencing.Caller) error) error {
	err := hold(c)
	if f, ok := contract.FailureOf(err); ok && f.Reason == fencing.ReasonSessionFenced && c.Says.Generation > f.Current {
		return nil
	}
	return err
})

var selfReported = holding(func(_ context.Context, _ tx, c fencing.Caller, hold func(fencing.Caller) error) error {
	c.Peer = "spiffe://cell-1/" + c.Says.AgentID
	return hold(c)
})

var anyBoot = holding(func(_ context.Context, _ tx, c fencing.Caller, hold func(fencing.Caller) error) error {
	c.Says.BootID = "boot-1"
	return hold(c)
})

func deposedActivates(h *harness) {
	var mu sync.Mutex
	var active fencing.Epoch
	take, activate := h.TakeOffice, h.Activate
	h.TakeOffice = func(ctx context.Context, tx tx) (fencing.Office, error) {
		o, err := take(ctx, tx)
		mu.Lock()
		defer mu.Unlock()
		active = o.Epoch
		return o, err
	}
	h.Activate = func(ctx context.Context, tx tx, _ fencing.Epoch, peer string, says fencing.Binding) (int64, error) {
		mu.Lock()
		e := active
		mu.Unlock()
		return activate(ctx, tx, e, peer, says)
	}
}

var noCurrent = holding(func(_ context.Context, _ tx, c fencing.Caller, hold func(fencing.Caller) error) error {
	err := hold(c)
	if f, ok := contract.FailureOf(err); ok {
		silent := *f
		silent.Current = 0
		return &silent
	}
	return err
})

// auditRow writes about the refusal into the same transaction.
func auditRow(h *harness) {
	hold, add := h.Hold, h.Append
	h.Hold = func(ctx context.Context, tx tx, c fencing.Caller) error {
		err := hold(ctx, tx, c)
		if err != nil {
			err = errors.Join(err, add(ctx, tx, "audit refused "+c.Peer))
		}
		return err
	}
}

// showing is a fault of how tokens are shown.
func showing(change func(c fencing.Caller, resource string, token int64, holder string, show func(fencing.Caller) error) error) func(h *harness) {
	return func(h *harness) {
		show := h.Tokens.Show
		h.Tokens = &fencetest.Tokens[tx]{
			Show: func(ctx context.Context, tx tx, c fencing.Caller, resource string, token int64, holder string) error {
				return change(c, resource, token, holder, func(c fencing.Caller) error { return show(ctx, tx, c, resource, token, holder) })
			},
		}
	}
}

// fencedToken notes the token first, and asks then who showed it.
func fencedToken(h *harness) {
	var mu sync.Mutex
	var current fencing.Caller
	activate := h.Activate
	h.Activate = func(ctx context.Context, tx tx, e fencing.Epoch, peer string, says fencing.Binding) (g int64, err error) {
		g, err = activate(ctx, tx, e, peer, says)
		says.Generation = g
		mu.Lock()
		defer mu.Unlock()
		current = fencing.Caller{Peer: peer, Says: says, Epoch: e}
		return g, err
	}
	showing(func(c fencing.Caller, _ string, _ int64, _ string, show func(fencing.Caller) error) error {
		mu.Lock()
		active := current
		mu.Unlock()
		if err := show(active); err != nil {
			return err
		}
		return show(c)
	})(h)
}

var equalToken = showing(func(c fencing.Caller, _ string, token int64, _ string, show func(fencing.Caller) error) error {
	err := show(c)
	if f, ok := contract.FailureOf(err); ok && f.Reason == fencing.ReasonTokenStale && f.Current == token {
		return nil
	}
	return err
})

// setting is a fault of how admission is set.
func setting(change func(r *fencing.AdmissionRequest, active *int64, again func() (contract.Receipt, error)) (contract.Receipt, error)) func(h *harness) {
	return func(h *harness) {
		broken := *h.Admissions
		set := broken.Set
		broken.Set = func(ctx context.Context, tx tx, c fencing.Caller, r fencing.AdmissionRequest, active int64) (contract.Receipt, error) {
			return change(&r, &active, func() (contract.Receipt, error) { return set(ctx, tx, c, r, active) })
		}
		h.Admissions = &broken
	}
}

var missingIsAny = setting(func(r *fencing.AdmissionRequest, _ *int64, set func() (contract.Receipt, error)) (contract.Receipt, error) {
	if r.ExpectedGeneration > 0 {
		return set()
	}
	r.ExpectedGeneration = 1 << 50
	_, err := set()
	if f, ok := contract.FailureOf(err); ok && f.Current > 0 {
		r.ExpectedGeneration = f.Current
		return set()
	}
	return contract.Receipt{}, err
})

// barrierAgain does not remember barriers: each delivery is a change of its own.
var barrierAgain = func() func(h *harness) {
	var n atomic.Int64
	return setting(func(r *fencing.AdmissionRequest, _ *int64, set func() (contract.Receipt, error)) (contract.Receipt, error) {
		r.BarrierID += fmt.Sprint("#", n.Add(1))
		return set()
	})
}()

var appliedActive = setting(func(_ *fencing.AdmissionRequest, active *int64, set func() (contract.Receipt, error)) (contract.Receipt, error) {
	*active = 0
	return set()
})

// stopTakenBack knows a stop as a close with a barrier, and nothing more.
func stopTakenBack(h *harness) {
	broken := *h.Admissions
	broken.Stop = func(ctx context.Context, tx tx, c fencing.Caller, barrierID string, active int64) (contract.Receipt, error) {
		r := fencing.AdmissionRequest{BarrierID: barrierID, ExpectedGeneration: 1 << 50, Epoch: c.Epoch}
		_, err := broken.Set(ctx, tx, c, r, active)
		if f, ok := contract.FailureOf(err); ok && f.Current > 0 {
			r.ExpectedGeneration = f.Current
			return broken.Set(ctx, tx, c, r, active)
		}
		return contract.Receipt{}, err
	}
	h.Admissions = &broken
}

// controlling is a fault of which refusals of a control are none.
func controlling(lets func(r fencing.Control, f *contract.Failure) bool) func(h *harness) {
	return func(h *harness) {
		broken := *h.Tasks
		control := broken.Control
		broken.Control = func(ctx context.Context, tx tx, c fencing.Caller, e string, r fencing.Control) (contract.Receipt, error) {
			receipt, err := control(ctx, tx, c, e, r)
			if f, ok := contract.FailureOf(err); ok && lets(r, f) {
				return contract.Receipt{Result: contract.ResultApplied, Before: f.Current, After: f.Current + 1}, nil
			}
			return receipt, err
		}
		h.Tasks = &broken
	}
}

var resumesStopped = controlling(func(r fencing.Control, f *contract.Failure) bool {
	return r.Action == fencing.ActionResume && f.Reason == fencing.ReasonTerminal
})

var oldAuthorization = controlling(func(r fencing.Control, f *contract.Failure) bool {
	return r.Authorization != "" && f.Reason == fencing.ReasonUnauthorized
})

// permitting changes the permits.
func permitting(change func(p *fencetest.Permits[tx])) func(h *harness) {
	return func(h *harness) {
		broken := *h.Permits
		change(&broken)
		h.Permits = &broken
	}
}

var consumedTwice = permitting(func(p *fencetest.Permits[tx]) {
	consume := p.Consume
	p.Consume = func(ctx context.Context, tx tx, c fencing.Caller, permit fencing.Permit, now time.Time) error {
		err := consume(ctx, tx, c, permit, now)
		if errors.Is(err, fencing.ErrConsumed) {
			return nil
		}
		return err
	}
})

var inclusiveDeadline = permitting(func(p *fencetest.Permits[tx]) {
	consume := p.Consume
	p.Consume = func(ctx context.Context, tx tx, c fencing.Caller, permit fencing.Permit, now time.Time) error {
		return consume(ctx, tx, c, permit, now.Add(-time.Millisecond))
	}
})

var issuedAfterFence = permitting(func(p *fencetest.Permits[tx]) {
	issue := p.Issue
	p.Issue = func(ctx context.Context, tx tx, c fencing.Caller, q fencing.PermitRequest) (fencing.Permit, error) {
		permit, err := issue(ctx, tx, c, q)
		if errors.Is(err, fencing.ErrReservationFenced) {
			return fencing.Permit{ID: "late", PermitRequest: q, Token: 1}, nil
		}
		return permit, err
	}
})

var voidConsumed = permitting(func(p *fencetest.Permits[tx]) {
	consume := p.Consume
	p.Consume = func(ctx context.Context, tx tx, c fencing.Caller, permit fencing.Permit, now time.Time) error {
		err := consume(ctx, tx, c, permit, now)
		if errors.Is(err, fencing.ErrVoid) {
			return nil
		}
		return err
	}
})

// joinsOlder takes every session that is delivered for news.
func joinsOlder(h *harness) {
	broken := *h.Joins
	join := broken.Join
	broken.Join = func(ctx context.Context, tx tx, peer string, given fencing.Session) error {
		err := join(ctx, tx, peer, given)
		if errors.Is(err, fencing.ErrSessionFenced) {
			return nil
		}
		return err
	}
	h.Joins = &broken
}

var noEvidence = permitting(func(p *fencetest.Permits[tx]) {
	release := p.Release
	p.Release = func(ctx context.Context, tx tx, c fencing.Caller, resource string, l fencing.Lease, _ fencing.Evidence) error {
		e := fencing.Evidence{ExecutionID: "execution-1", Result: contract.ResultApplied, By: "timeout"}
		return release(ctx, tx, c, resource, l, e)
	}
})

// gate is one whose check and registration are two steps.
type gate struct {
	fencetest.Gate
	open  atomic.Bool
	calls atomic.Int64
}

func looseGate(h *harness) {
	newGate := h.Gate
	h.Gate = func(ctx context.Context, agentID string) (fencetest.Gate, error) {
		next, err := newGate(ctx, agentID)
		g := &gate{Gate: next}
		g.open.Store(true)
		return g, err
	}
}

func (g *gate) Enter(string) (func(), error) {
	if !g.open.Load() {
		return nil, fencing.ErrClosed
	}
	runtime.Gosched()
	g.calls.Add(1)
	return func() { g.calls.Add(-1) }, nil
}

func (g *gate) Open(int64) error {
	g.open.Store(true)
	return nil
}

func (g *gate) Close(int64) int64 {
	g.open.Store(false)
	return g.calls.Load()
}

func (g *gate) Drain(context.Context) error { return nil }

// openAtStart does not ask how admission stands.
func openAtStart(h *harness) {
	h.Gate = func(context.Context, string) (fencetest.Gate, error) {
		return fencing.NewGate(fencing.Admission{Generation: 1, Open: true}), nil
	}
}
