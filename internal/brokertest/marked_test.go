package brokertest

import (
	"context"
	"strings"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// marker is planted in everything that must not be told: tenants, item ids, operations, params, outcomes, panics, causes.
const marker = "plantedmarker"

// marked is a name that must not be told.
func marked(name string) string { return name + "-" + marker }

// The bench's calls are the broker's, whose errors everything hears. They hand executors and readers items under the names that
// the test gave them.

func (b *bench[TTx]) Execute(ctx context.Context, req broker.Request, exec broker.Executor) (*contract.OperationResult, error) {
	return heardOf(b.Broker.Execute(ctx, req, named(exec)))
}

func (b *bench[TTx]) ExecutePerItem(ctx context.Context, req broker.Request, exec broker.TxExecutor[TTx]) (*contract.OperationResult, error) {
	return heardOf(b.Broker.ExecutePerItem(ctx, req, namedTx(exec)))
}

func (b *bench[TTx]) ExecuteTx(ctx context.Context, tx TTx, req broker.TxRequest[TTx], exec broker.TxExecutor[TTx]) (
	*contract.OperationResult, error,
) {
	return heardOf(b.Broker.ExecuteTx(ctx, tx, req, namedTx(exec)))
}

func (b *bench[TTx]) ExecuteAtomic(ctx context.Context, req broker.TxRequest[TTx], exec broker.TxExecutor[TTx]) (
	*contract.OperationResult, error,
) {
	return heardOf(b.Broker.ExecuteAtomic(ctx, req, namedTx(exec)))
}

func (b *bench[TTx]) Resolve(ctx context.Context, r broker.Resolution, read broker.StatusReader) (*contract.OperationResult, error) {
	return heardOf(b.Broker.Resolve(ctx, r, named(read)))
}

// heardOf is an answer that everything has heard.
func heardOf(res *contract.OperationResult, err error) (*contract.OperationResult, error) {
	everything.answer(res, err)
	return res, err
}

func named[V any, F ~func(context.Context, broker.Item) (V, error)](fn F) F {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, it broker.Item) (V, error) { return fn(ctx, plain(it)) }
}

func namedTx[TTx any](fn broker.TxExecutor[TTx]) broker.TxExecutor[TTx] {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, tx TTx, it broker.Item) (broker.Outcome, error) {
		return fn(ctx, tx, plain(it))
	}
}

// plain is the item under its name without the mark.
func plain(it broker.Item) broker.Item {
	it.ID = strings.TrimSuffix(it.ID, "-"+marker)
	return it
}
