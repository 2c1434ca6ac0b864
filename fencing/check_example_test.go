package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// under runs do in a transaction of its own, under the fence that the checks make, and tells whether it was let.
func under(st *memstore.Store, space fencing.Space, do func(context.Context, fencing.Fence) error, checks ...fencing.Check) error {
	ctx := context.Background()
	tx, err := st.BeginTx(ctx)
	if err != nil {
		return err
	}
	fence, err := space.Hold(ctx, st.Values(tx), checks...)
	if err == nil {
		err = do(ctx, fence)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// inOffice is a store with a dispatcher in office, and the check that it still is.
func inOffice() (*memstore.Store, fencing.Space, fencing.Epoch, fencing.Check) {
	ctx, st, space := context.Background(), memstore.New(nil), fencing.Space{Tenant: "cell-3"}
	tx, _ := st.BeginTx(ctx)
	office, _ := space.TakeOffice(ctx, st.Values(tx), "dispatcher")
	_ = tx.Commit()
	return st, space, office.Epoch, fencing.EpochIs("dispatcher", office.Epoch)
}

// A request is from who its certificate says, and is compared with the session that stands for that identity: a process that was
// replaced by a newer one is kept out, whatever its request says.
func ExampleSessionIs() {
	const certified = "spiffe://agents.example/agent-7" // peer.IdentityOf tells it of a connection
	st, space, epoch, office := inOffice()
	activate := func(boot string) (s fencing.Session) {
		_ = under(st, space, func(ctx context.Context, f fencing.Fence) (err error) {
			if _, err = f.ApproveAgent(ctx, certified, "agent-7", "cell-3"); err != nil {
				return err
			}
			s, err = f.ActivateAgent(ctx, certified, fencing.Binding{AgentID: "agent-7", CellID: "cell-3", BootID: boot}, epoch)
			return err
		}, office)
		return s
	}
	request := func(s fencing.Session) fencing.Check { // with the meta data that the agent of that session sends
		return fencing.SessionIs(fencing.CallerOf(certified, contract.RequestMeta{
			AgentID: s.AgentID, CellID: s.CellID, BootID: s.BootID, SessionGeneration: s.Generation, DispatcherEpoch: string(s.Epoch),
		}))
	}
	write := func(context.Context, fencing.Fence) error { return nil } // a service's own rows, under the fence

	first := activate("boot-1")
	fmt.Println("first:", under(st, space, write, request(first)))
	second := activate("boot-2") // the agent was started again
	fmt.Println("second:", under(st, space, write, request(second)))
	fmt.Println("first again:", errors.Is(under(st, space, write, request(first)), fencing.ErrSessionFenced))
	// Output:
	// first: <nil>
	// second: <nil>
	// first again: true
}

// inSession is a store of an agent that was given a session, and the check that its dispatcher is still the one of that session.
func inSession() (*memstore.Store, fencing.Space, fencing.Epoch, fencing.Check) {
	const dispatcher = "spiffe://dispatchers.example/one"
	ctx, st, space := context.Background(), memstore.New(nil), fencing.Space{Tenant: "cell-3"}
	given := fencing.Session{
		Binding: fencing.Binding{AgentID: "agent-7", CellID: "cell-3", BootID: "boot-1", Generation: 1}, Epoch: "epoch-1",
	}
	tx, _ := st.BeginTx(ctx)
	_, _ = space.JoinSession(ctx, st.Values(tx), dispatcher, given)
	_ = tx.Commit()
	return st, space, given.Epoch, fencing.SessionIs(fencing.Caller{Peer: dispatcher, Says: given.Binding, Epoch: given.Epoch})
}

// New work begins only while admission is open, and what must come after the last call begins only when none is left.
func ExampleAdmissionOpen() {
	st, space, epoch, session := inSession()
	open, drained := fencing.AdmissionOpen("agent-7"), fencing.AdmissionDrained("agent-7", "barrier-2")
	work := func(context.Context, fencing.Fence) error { return nil }
	tell := func(when string) {
		fmt.Println(when, "- open:", under(st, space, work, open) == nil, "- drained:", under(st, space, work, drained) == nil)
	}
	set := func(barrier string, generation, active int64, target bool) error {
		return under(st, space, func(ctx context.Context, f fencing.Fence) error {
			_, err := f.SetAdmission(ctx, "agent-7", fencing.AdmissionRequest{
				BarrierID: barrier, ExpectedGeneration: generation, Open: target, Epoch: epoch,
			}, active)
			return err
		}, session)
	}

	fmt.Println(under(st, space, func(ctx context.Context, f fencing.Fence) error {
		_, err := f.StartAdmission(ctx, "agent-7")
		return err
	}, session))
	fmt.Println(set("barrier-1", 1, 0, true))
	tell("opened")
	fmt.Println(set("barrier-2", 2, 1, false)) // one call is still active
	tell("closed")
	fmt.Println(under(st, space, func(ctx context.Context, f fencing.Fence) error {
		_, err := f.DrainAdmission(ctx, "agent-7", "barrier-2", 0)
		return err
	}, session))
	tell("the last call has ended")
	// Output:
	// <nil>
	// <nil>
	// opened - open: true - drained: false
	// <nil>
	// closed - open: false - drained: false
	// <nil>
	// the last call has ended - open: false - drained: true
}

// At its deadline an authorization is over.
func ExampleBefore() {
	deadline := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	fmt.Println(fencing.Before(deadline.Add(-time.Second), deadline))
	fmt.Println(errors.Is(fencing.Before(deadline, deadline), fencing.ErrExpired))
	// Output:
	// <nil>
	// true
}
