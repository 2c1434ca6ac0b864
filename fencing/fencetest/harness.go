package fencetest

import (
	"context"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store"
)

// Harness is what the suite needs of an implementation of the fencing rules and of its database. [Of] makes one of package fencing
// on any store. The functions must be safe for concurrent use and must not fail the test by themselves: they return their errors.
//
// A transaction that must be run again is said with [store.ErrRetryTx], one that waited too long with [store.ErrLockTimeout] or
// [store.ErrBusy]; the suite runs it again. Every refusal has a contract.Failure in its chain.
type Harness[TTx any] struct {
	// Offices, Sessions and the rest are the implementation. Without Joins, Tokens, Admissions, Tasks, Permits or Gate their cases are
	// skipped.
	Offices[TTx]
	Sessions[TTx]
	Joins      *Joins[TTx]
	Tokens     *Tokens[TTx]
	Admissions *Admissions[TTx]
	Tasks      *Tasks[TTx]
	Permits    *Permits[TTx]
	// Gate returns the gate of a process that has just started, as the durable admission of this agent stands.
	Gate func(ctx context.Context, agentID string) (Gate, error)

	// Begin begins a transaction on the implementation's database, with its default isolation.
	Begin func(ctx context.Context) (TTx, error)
	// Commit ends the transaction.
	Commit func(ctx context.Context, tx TTx) error
	// Rollback ends the transaction.
	Rollback func(ctx context.Context, tx TTx) error

	// Append adds, within tx, a line to a log of the harness's own. The lines stand in the order of their commits: so the log is
	// locked from the first line to the end of tx.
	Append func(ctx context.Context, tx TTx, line string) error
	// Lines tells the committed lines of the log. The suite has no transaction open when it calls it.
	Lines func(ctx context.Context) ([]string, error)

	// Snapshot tells everything that the implementation has stored, but for the log and for an audit trail, in a form in which
	// every change is seen. The suite has no transaction open when it calls it.
	Snapshot func(ctx context.Context) (string, error)

	// Restart ends the process that has the implementation, or what stands for it, and returns the same database in a new one.
	Restart func(t *testing.T) Harness[TTx]

	// Store and Tenant are for the cases of the broker, whose transactions are then the implementation's. A nil Store skips them.
	Store  store.Store[TTx]
	Tenant string
}

// Offices are who is the active dispatcher, in one scope. Each function works within tx.
type Offices[TTx any] struct {
	// TakeOffice makes a new instance the active one (R111).
	TakeOffice func(ctx context.Context, tx TTx) (fencing.Office, error)
	// HoldOffice refuses every epoch but the active one, which stays so until tx ends (R112).
	HoldOffice func(ctx context.Context, tx TTx, e fencing.Epoch) error
}

// Sessions are who agents are. Each function works within tx.
type Sessions[TTx any] struct {
	// Approve lets the certificate identity peer be used by an agent in a cell, for the dispatcher of epoch e.
	Approve func(ctx context.Context, tx TTx, e fencing.Epoch, peer, agentID, cellID string) error
	// Activate makes a new session for the agent that was authenticated as peer, with the dispatcher of epoch e, and returns its
	// generation (R36).
	Activate func(ctx context.Context, tx TTx, e fencing.Epoch, peer string, says fencing.Binding) (int64, error)
	// Hold refuses every caller but the current session of its peer with the active epoch, and both stay so until tx ends
	// (R112-R122).
	Hold func(ctx context.Context, tx TTx, c fencing.Caller) error
}

// Joins are sessions on the side of the agent that was given them. Each function works within tx.
type Joins[TTx any] struct {
	// Join makes the session that the dispatcher gave to peer the current one (R39).
	Join func(ctx context.Context, tx TTx, peer string, given fencing.Session) error
	// Leave ends peer's session, as a process does that starts again (R116).
	Leave func(ctx context.Context, tx TTx, peer string) error
}

// Tokens are the fencing tokens that resources have seen.
type Tokens[TTx any] struct {
	// Show shows a token to a resource, under c's fence; it is remembered when tx commits (R56).
	Show func(ctx context.Context, tx TTx, c fencing.Caller, resource string, token int64, holder string) error
}

// Admissions are whether agents take new work. Each function works within tx, under c's fence, on the admission of c's agent. A
// request that the implementation answers with an earlier receipt is answered here too.
type Admissions[TTx any] struct {
	// Start begins an admission, closed.
	Start func(ctx context.Context, tx TTx, c fencing.Caller) error
	// Set opens or closes it (R43); active calls are registered.
	Set func(ctx context.Context, tx TTx, c fencing.Caller, r fencing.AdmissionRequest, active int64) (contract.Receipt, error)
	// Drain says that of the calls that a close left, active ones are left now (R48).
	Drain func(ctx context.Context, tx TTx, c fencing.Caller, barrierID string, active int64) (contract.Receipt, error)
	// Stop closes it for ever (R92).
	Stop func(ctx context.Context, tx TTx, c fencing.Caller, barrierID string, active int64) (contract.Receipt, error)
	// HoldOpen refuses unless it is open, and keeps it so until tx ends (R57).
	HoldOpen func(ctx context.Context, tx TTx, c fencing.Caller) error
	// HoldDrained refuses unless this barrier is the last one and reached, and keeps it so until tx ends (R119).
	HoldDrained func(ctx context.Context, tx TTx, c fencing.Caller, barrierID string) error
}

// Tasks are the tasks of executions. Each function works within tx, under c's fence.
type Tasks[TTx any] struct {
	// Start begins a task, running.
	Start func(ctx context.Context, tx TTx, c fencing.Caller, executionID, authorization string) error
	// Control pauses, resumes or stops it (R77).
	Control func(ctx context.Context, tx TTx, c fencing.Caller, executionID string, r fencing.Control) (contract.Receipt, error)
}

// Permits are reservations of resources, and the permits that they allow. Each function works within tx, under c's fence.
type Permits[TTx any] struct {
	// Reserve reserves a free resource for c's agent, with the next token.
	Reserve func(ctx context.Context, tx TTx, c fencing.Caller, resource, reservationID string) (fencing.Reservation, error)
	// Issue issues the permit of a reservation (R70).
	Issue func(ctx context.Context, tx TTx, c fencing.Caller, q fencing.PermitRequest) (fencing.Permit, error)
	// Fence ends the issuing of permits for a reservation (R72).
	Fence func(ctx context.Context, tx TTx, c fencing.Caller, resource string, l fencing.Lease) error
	// Release frees the resource, if the evidence allows it (R117).
	Release func(ctx context.Context, tx TTx, c fencing.Caller, resource string, l fencing.Lease, e fencing.Evidence) error
	// End tells c's agent that the reservation with this token was fenced or released (R73).
	End func(ctx context.Context, tx TTx, c fencing.Caller, resource string, token int64) error
	// Consume consumes a permit, at this time and while admission is open (R51).
	Consume func(ctx context.Context, tx TTx, c fencing.Caller, p fencing.Permit, now time.Time) error
}

// Gate is the register of a process's active calls, and whether another may begin: see [fencing.Gate], which is one.
type Gate interface {
	Enter(callID string) (leave func(), err error)
	Open(generation int64) error
	Close(generation int64) (active int64)
	Stop() (active int64)
	Drain(ctx context.Context) error
}
