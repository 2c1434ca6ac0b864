package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// What the person sees and confirms: the proposal with its key. Nothing has happened yet.
func ExampleBroker_Propose() {
	ctx, b := context.Background(), newBroker()
	c, err := b.Propose(ctx, "firm-a", contract.OperationProposal{
		SurfaceKey: "matter:7/forums", ContractVersion: "v1",
		Items: []contract.Item{{ID: "1", Op: "add_forum", Params: json.RawMessage(`{"name":"NCLT Mumbai"}`)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.SurfaceKey, c.Items[0].Op, string(c.Items[0].Params))
	fmt.Println("a key of version", int(c.IdempotencyKey.Version()))
	// Output:
	// matter:7/forums add_forum {"name":"NCLT Mumbai"}
	// a key of version 7
}

// Another service mints the keys; this one, which executes, has to be told so.
func ExampleMintKey() {
	ctx := context.Background()
	key, err := broker.MintKey()
	if err != nil {
		fmt.Println(err)
		return
	}
	p := forums("NCLT Mumbai")
	req := broker.Request{Tenant: "firm-a", Current: surface, Confirmation: contract.OperationConfirmation{
		IdempotencyKey: key, SurfaceKey: p.SurfaceKey, ContractVersion: p.ContractVersion, Items: p.Items,
	}}
	for _, accept := range []bool{false, true} {
		b, _ := broker.New(memstore.New(nil), &broker.Config{AcceptUnmintedKeys: accept})
		res, err := b.Execute(ctx, req, addForum)
		fmt.Println(broker.AnswerOf(res, err))
	}
	// Output:
	// not_minted
	// executed
}

// The key under which an item's target has to be asked, for whoever looks by hand.
func ExampleItemKey() {
	key := uuid.MustParse("0191d3a2-7c51-4c6e-9d2e-3a5b8c7d6e5f")
	fmt.Println(broker.ItemKey("firm-a", key, "forum-1"))
	fmt.Println(broker.ItemKey("firm-a", key, "forum-2"))
	// Output:
	// 7e65d72d-ab38-829a-a083-daaacee9d710
	// a874a789-81eb-89e9-b47d-ca626088ea80
}

// One error, with and without what the executor knows: only what certainly did not happen is failed.
func ExampleNotApplied() {
	ctx, b := context.Background(), newBroker()
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai", "NCLT Delhi"))
	res, _ := b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface},
		func(_ context.Context, it broker.Item) (broker.Outcome, error) {
			if it.ID == "1" {
				return broker.Outcome{}, broker.NotApplied(errors.New("no connection: nothing was sent"))
			}
			return broker.Outcome{}, errors.New("the reply was lost")
		})
	for _, o := range res.Outcomes {
		fmt.Println(o.ItemID, o.State)
	}
	// Output:
	// 1 failed
	// 2 ambiguous
}

// There may be nothing to do: that is no failure.
func ExampleSkipped() {
	ctx, b := context.Background(), newBroker()
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai"))
	res, err := b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface},
		func(context.Context, broker.Item) (broker.Outcome, error) {
			return broker.Skipped("the forum is there already"), nil
		})
	fmt.Println(res.Outcomes[0].State, "-", res.Outcomes[0].Detail, "-", res.Summary(), err)
	// Output: skipped - the forum is there already - 0 of 1 item applied, 1 skipped. <nil>
}

// unclear is a broker with a key that an executor left open.
func unclear(ctx context.Context) (*broker.Broker[*memstore.Tx], contract.OperationConfirmation) {
	b := newBroker()
	c, _ := b.Propose(ctx, "firm-a", forums("NCLT Mumbai"))
	_, _ = b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface},
		func(context.Context, broker.Item) (broker.Outcome, error) {
			return broker.Outcome{}, errors.New("the reply was lost")
		})
	return b, c
}

// What needs somebody is listed page by page, and stays listed until it is settled.
func ExampleBroker_ListUnresolved() {
	ctx := context.Background()
	b, c := unclear(ctx)
	page := broker.Page{Tenant: "firm-a", Limit: 10}
	for {
		keys, err := b.ListUnresolved(ctx, page)
		if err != nil || len(keys) == 0 {
			fmt.Println("the end:", err)
			return
		}
		for _, u := range keys {
			fmt.Println("it is the one from before:", u.Key == c.IdempotencyKey, "- completed:", u.Completed)
			page.After = u.Key
		}
	}
	// Output:
	// it is the one from before: true - completed: true
	// the end: <nil>
}

// A reader that looked and found nothing settles the item as failed. A late effect could still contradict that, unless the target
// refuses one: then the verdict is final.
func ExampleFoundAbsent() {
	ctx := context.Background()
	for _, refusesLater := range []bool{false, true} {
		b, c := unclear(ctx)
		res, err := b.Resolve(ctx, broker.Resolution{Tenant: "firm-a", Key: c.IdempotencyKey, By: "on-call"},
			func(context.Context, broker.Item) (broker.Verdict, error) {
				absent := broker.FoundAbsent("it is not in the registry")
				if refusesLater {
					absent = absent.Final()
				}
				return absent, nil
			})
		fmt.Println(res.Outcomes[0].State, "- provisional:", res.Outcomes[0].Provisional, err)
	}
	// Output:
	// failed - provisional: true <nil>
	// failed - provisional: false <nil>
}

// A reader that cannot tell says so: the item stays ambiguous, and may be resolved later.
func ExampleStillUnknown() {
	ctx := context.Background()
	b, c := unclear(ctx)
	res, err := b.Resolve(ctx, broker.Resolution{Tenant: "firm-a", Key: c.IdempotencyKey, By: "on-call"},
		func(context.Context, broker.Item) (broker.Verdict, error) {
			return broker.StillUnknown("the registry is down"), nil
		})
	fmt.Println(res.Outcomes[0].State, err)
	open, _ := b.ListUnresolved(ctx, broker.Page{Tenant: "firm-a"})
	fmt.Println(len(open), "open")
	// Output:
	// ambiguous <nil>
	// 1 open
}

// Mutations that need somebody: this one's reply was lost.
func ExampleBroker_ListUnresolvedMutations() {
	ctx, b := context.Background(), newBroker()
	_, _ = b.Mutate(ctx, broker.Mutation[*memstore.Tx]{
		Tenant: "cell-3", AgentID: "agent-7",
		Method: contract.Method{Name: "/agent.v1.AgentService/ExecuteAuthorized"},
		Meta:   contract.RequestMeta{OperationID: "op-41", IdempotencyKey: "k-41"},
		Digest: contract.NewContent("ExecuteAuthorized").Text("number", "+4930…").Digest(),
		Invoke: func(context.Context, broker.Call) (contract.Receipt, error) {
			return contract.Receipt{}, errors.New("connection reset")
		},
	})
	open, err := b.ListUnresolvedMutations(ctx, broker.Page{Tenant: "cell-3"})
	for _, u := range open {
		fmt.Println(u.AgentID, u.OperationID, u.Method, u.Result)
	}
	fmt.Println(err)
	// Output:
	// agent-7 op-41 /agent.v1.AgentService/ExecuteAuthorized UNKNOWN
	// <nil>
}
