package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/memstore"
)

var surface = contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}

func forums(names ...string) contract.OperationProposal {
	p := contract.OperationProposal{SurfaceKey: surface.SurfaceKey, ContractVersion: surface.ContractVersion}
	for i, name := range names {
		params, _ := json.Marshal(map[string]string{"name": name})
		p.Items = append(p.Items, contract.Item{ID: fmt.Sprint(i + 1), Op: "add_forum", Params: params})
	}
	return p
}

// newBroker is a broker for an example; a service has one over pgstore or sqlitestore.
func newBroker() *broker.Broker[*memstore.Tx] {
	b, err := broker.New(memstore.New(nil), nil)
	if err != nil {
		panic(err)
	}
	return b
}

// A batch in which one item fails: one result, from which the board and the prose are derived.
func ExampleBroker_Execute() {
	ctx, b := context.Background(), newBroker()
	c, err := b.Propose(ctx, "firm-a", forums("NCLT Mumbai", "NCLT Delhi", "High Court"))
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface},
		func(_ context.Context, it broker.Item) (broker.Outcome, error) {
			if it.ID == "2" {
				return broker.Outcome{}, broker.NotApplied(errors.New("the registry has that forum"))
			}
			return broker.Applied("forum/" + it.ID), nil
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%+v\n", res.Tally())
	fmt.Println(res.Summary())
	fmt.Println("needs attention:", res.Err() != nil)
	// Output:
	// {Applied:2 Failed:1 Skipped:0 Ambiguous:0}
	// 2 of 3 items applied, 1 failed (2).
	// needs attention: true
}

// The claim, the effects and the outcomes commit together, or not at all.
func ExampleBroker_ExecuteTx() {
	ctx, st := context.Background(), memstore.New(nil)
	b, _ := broker.New(st, nil)
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai"))
	req := broker.TxRequest[*memstore.Tx]{Request: broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface}}
	addForum := func(_ context.Context, _ *memstore.Tx, it broker.Item) (broker.Outcome, error) {
		return broker.Applied("forum/" + it.ID), nil // writes through the transaction
	}
	for _, commit := range []bool{false, true, true} {
		tx, _ := st.BeginTx(ctx)
		res, err := b.ExecuteTx(ctx, tx, req, addForum)
		if commit {
			_ = tx.Commit()
		} else {
			_ = tx.Rollback()
		}
		fmt.Println(broker.AnswerOf(res, err), "- committed:", commit)
	}
	// Output:
	// executed - committed: false
	// executed - committed: true
	// replayed - committed: true
}

// A failed item is undone alone, and the others stay. Where all items are wanted or none, the caller rolls back.
func ExampleBroker_ExecuteTx_allOrNone() {
	ctx, st := context.Background(), memstore.New(nil)
	b, _ := broker.New(st, nil)
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai", "NCLT Delhi"))
	req := broker.TxRequest[*memstore.Tx]{Request: broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface}}
	taken := true
	addForum := func(_ context.Context, _ *memstore.Tx, it broker.Item) (broker.Outcome, error) {
		if it.ID == "2" && taken {
			return broker.Outcome{}, errors.New("there is a forum of that name")
		}
		return broker.Applied("forum/" + it.ID), nil // writes through the transaction
	}
	for range 2 {
		tx, _ := st.BeginTx(ctx)
		res, err := b.ExecuteTx(ctx, tx, req, addForum)
		if err != nil || res.Err() != nil {
			_ = tx.Rollback()
		} else {
			_ = tx.Commit()
		}
		now, _ := b.Lookup(ctx, "firm-a", c.IdempotencyKey)
		fmt.Println(res.Summary(), "The key is", now.Phase)
		taken = false
	}
	// Output:
	// 1 of 2 items applied, 1 failed (2). The key is proposed
	// 2 of 2 items applied. The key is completed
}

// A confirm on a surface that has moved is refused before anything is claimed.
func ExampleBroker_Execute_stale() {
	ctx, b := context.Background(), newBroker()
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai"))
	now := contract.CurrentSurfaceState{SurfaceKey: surface.SurfaceKey, ContractVersion: "v2"}
	_, err := b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: c, Current: now}, addForum)
	if conflict, ok := errors.AsType[*contract.ConflictError](err); ok {
		fmt.Println(conflict.Failure.Reason)
		fmt.Println(conflict.Drift)
	}
	// Output:
	// pramaan.agent_operation.stale
	// contract_version was "v1", is "v2"
}

func ExampleBroker_Lookup() {
	ctx, b := context.Background(), newBroker()
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai"))
	st, err := b.Lookup(ctx, "firm-a", c.IdempotencyKey)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(st.Phase, len(st.Confirmation.Items))
	// Output: proposed 1
}

// After Cancel a confirm that is still on its way can never run.
func ExampleBroker_Cancel() {
	ctx, b := context.Background(), newBroker()
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai"))
	if _, err := b.Cancel(ctx, "firm-a", c.IdempotencyKey); err != nil {
		fmt.Println(err)
		return
	}
	res, err := b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface}, addForum)
	fmt.Println(broker.AnswerOf(res, err), "-", res.Summary())
	// Output: cancelled - Cancelled before it ran: 0 of 1 item applied, 1 skipped.
}

func ExampleNew() {
	_, err := broker.New(memstore.New(nil), &broker.Config{Lease: -1})
	fmt.Println(err)
	// Output: INVALID_ARGUMENT: /broker.Config/Lease: must not be negative; 0 means 5m0s
}

// addForum is the executor of the examples that need nothing of it.
func addForum(_ context.Context, it broker.Item) (broker.Outcome, error) {
	return broker.Applied("forum/" + it.ID), nil
}

// The broker owns the transaction; its result is final.
func ExampleBroker_ExecuteAtomic() {
	ctx, b := context.Background(), newBroker()
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai"))
	req := broker.TxRequest[*memstore.Tx]{Request: broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface}}
	res, err := b.ExecuteAtomic(ctx, req, func(_ context.Context, _ *memstore.Tx, it broker.Item) (broker.Outcome, error) {
		return broker.Applied("forum/" + it.ID), nil // writes through the transaction
	})
	fmt.Println(broker.AnswerOf(res, err), "-", res.Summary())
	// Output: executed - 1 of 1 item applied.
}

// Each item commits on its own: one that fails undoes nothing of the others.
func ExampleBroker_ExecutePerItem() {
	ctx, b := context.Background(), newBroker()
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai", "NCLT Delhi"))
	res, err := b.ExecutePerItem(ctx, broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface},
		func(_ context.Context, _ *memstore.Tx, it broker.Item) (broker.Outcome, error) {
			if it.ID == "2" {
				return broker.Outcome{}, errors.New("there is a forum of that name")
			}
			return broker.Applied("forum/" + it.ID), nil
		})
	fmt.Println(broker.AnswerOf(res, err), "-", res.Summary())
	// Output: executed - 1 of 2 items applied, 1 failed (2).
}

// What an executor left open is settled by reading: Resolve never runs one.
func ExampleBroker_Resolve() {
	ctx, b := context.Background(), newBroker()
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai"))
	res, err := b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface},
		func(context.Context, broker.Item) (broker.Outcome, error) {
			return broker.Outcome{}, errors.New("the connection was reset") // after the call, or before it?
		})
	fmt.Println(broker.AnswerOf(res, err))
	open, _ := b.ListUnresolved(ctx, broker.Page{Tenant: "firm-a"})
	for _, u := range open {
		res, err = b.Resolve(ctx, broker.Resolution{Tenant: "firm-a", Key: u.Key, By: "on-call"},
			func(_ context.Context, it broker.Item) (broker.Verdict, error) {
				return broker.FoundApplied("forum/"+it.ID, "it is in the registry"), nil
			})
		fmt.Println(err, res.Outcomes[0].State, "by", res.Outcomes[0].By)
	}
	// Output:
	// ambiguous
	// <nil> applied by on-call
}

// Purge forgets payloads, never keys.
func ExampleBroker_Purge() {
	ctx := context.Background()
	b, _ := broker.New(memstore.New(nil), &broker.Config{PayloadRetention: 1})
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai"))
	req := broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface}
	_, _ = b.Execute(ctx, req, addForum)
	n, err := b.Purge(ctx, broker.Page{Tenant: "firm-a"})
	fmt.Println(n, err)
	res, err := b.Execute(ctx, req, addForum)
	fmt.Println(broker.AnswerOf(res, err), "-", res.Summary())
	// Output:
	// 1 <nil>
	// pruned - It was settled before; the details are no longer kept.
}
