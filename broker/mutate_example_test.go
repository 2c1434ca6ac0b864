package broker_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// An effect outside the database whose reply is lost: UNKNOWN, until evidence comes. Nothing is executed a second time.
func ExampleBroker_Mutate() {
	ctx, b := context.Background(), newBroker()
	m := broker.Mutation[*memstore.Tx]{
		Tenant: "cell-3", AgentID: "agent-7",
		Method:     contract.Method{Name: "/agent.v1.AgentService/ExecuteAuthorized"},
		Meta:       contract.RequestMeta{OperationID: "op-41", IdempotencyKey: "k-41"},
		Digest:     contract.NewContent("ExecuteAuthorized").Text("number", "+4930…").Digest(),
		Identities: []broker.Identity{{Kind: "execution", Value: "e-17"}},
		Invoke: func(context.Context, broker.Call) (contract.Receipt, error) {
			return contract.Receipt{}, errors.New("connection reset")
		},
	}
	first, _ := b.Mutate(ctx, m)
	again, _ := b.Mutate(ctx, m)
	fmt.Println(first.Result, again.Result, "replayed:", again.Replayed)

	execution := broker.MutationRef{Tenant: "cell-3", Identity: m.Identities[0]}
	settled, _ := b.ResolveMutation(ctx, execution, "reconciler", func(context.Context, broker.Call) (contract.Receipt, error) {
		return contract.Receipt{Result: contract.ResultApplied, Ref: "call/9"}, nil // as the adapter's ledger says
	})
	fmt.Println(settled.Result, settled.Ref, "by", settled.By)

	second := m
	second.Meta.OperationID = "op-42"
	_, err := b.Mutate(ctx, second)
	fmt.Println(errors.Is(err, contract.ErrSecondOperation))
	// Output:
	// UNKNOWN UNKNOWN replayed: true
	// APPLIED call/9 by reconciler
	// true
}

// The caller of a mutation whose reply was lost asks for the original, and seals it if it is missing.
func ExampleReconcile() {
	ctx, other := context.Background(), newBroker() // the other side, which the request has not reached
	op := broker.MutationRef{Tenant: "cell-3", AgentID: "agent-7", OperationID: "op-41"}
	r, err := broker.Reconcile(ctx, broker.Original{
		Query: func(ctx context.Context) (contract.Receipt, error) {
			st, err := other.QueryMutation(ctx, op)
			if err != nil {
				return contract.Receipt{}, err
			}
			return st.Receipt, nil
		},
		Seal: func(ctx context.Context) error {
			_, err := other.SealMutation(ctx, op, "dispatcher")
			return err
		},
	})
	fmt.Println(r.Result, err)
	// Output: NOT_APPLIED <nil>
}
