package broker

import (
	"context"
	"errors"

	"github.com/confirmexec/confirmexec/contract"
)

// Original is the remote side of a mutation whose reply was lost, as its caller reaches it: its query and, where there is one, its
// seal. It carries the original operation's names; nothing here makes new ones.
type Original struct {
	// Query asks what became of the operation, as [Broker.QueryMutation] does on the other side. A NOT_FOUND says that nothing is
	// recorded, contract.ErrSealed that nothing ever will be. Required.
	Query func(ctx context.Context) (contract.Receipt, error)

	// Seal, if set, makes sure that an operation that is missing never runs, as [Broker.SealMutation] does on the other side. It
	// is called only after a query that found nothing.
	Seal func(ctx context.Context) error
}

// Reconcile finds out what became of a mutation whose result is unknown to its caller: it queries the original operation first,
// and never makes another operation, execution or permit (R52, R63, R120). Only a query that found nothing leads to the seal, and
// the query is then asked again, since the request may have arrived between the two.
//
// The receipt says UNKNOWN, with a nil error, when evidence is absent: record that. NOT_APPLIED is told only on the seal's
// evidence, since an operation that is not found may still be on its way (R14, A21). An error, with an UNKNOWN receipt, is that of
// the side that could not be asked.
func Reconcile(ctx context.Context, o Original) (contract.Receipt, error) {
	if o.Query == nil {
		return contract.Receipt{Result: contract.ResultUnknown}, &contract.InvalidError{Path: "/query", Problem: "must not be nil"}
	}
	r, err := query(ctx, o)
	if !isMissing(err) || o.Seal == nil {
		return r, absent(err)
	}
	if err := o.Seal(ctx); err != nil && !errors.Is(err, contract.ErrSealed) {
		return r, err
	}
	r, err = query(ctx, o)
	return r, absent(err)
}

// query asks once. What has no receipt is UNKNOWN, but for what is sealed.
func query(ctx context.Context, o Original) (contract.Receipt, error) {
	r, err := o.Query(ctx)
	switch {
	case errors.Is(err, contract.ErrSealed):
		return contract.Receipt{Result: contract.ResultNotApplied, Failure: contract.ErrSealed, Detail: "sealed"}, nil
	case err != nil || !r.Result.Valid():
		return contract.Receipt{Result: contract.ResultUnknown}, err
	}
	return r, nil
}

func isMissing(err error) bool {
	code, ok := contract.CodeOf(err)
	return ok && code == contract.NotFound
}

// absent keeps the errors of a side that could not be asked: that nothing was found is an answer.
func absent(err error) error {
	if isMissing(err) {
		return nil
	}
	return err
}
