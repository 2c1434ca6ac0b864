package grpcerr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// R5, R7, R13, R27: what a caller may not send again survives its process where the call is the Invoke of a mutation of its own: the
// receipt is what the failure says, and the operation is over for every process after it.
func TestTheCallersOwnRecord(t *testing.T) {
	for name, c := range map[string]struct {
		refusal *contract.Failure
		want    contract.ResultCode
	}{
		"R5 a wrong request":      {contract.ErrInvalid, contract.ResultRefused},
		"R7 a denial":             {contract.ErrDenied, contract.ResultStopped},
		"R27 a key that is taken": {contract.ErrKeyReused, contract.ResultConflict},
		"R8 a stale state":        {contract.ErrStale, contract.ResultNotApplied},
		"R13 no answer in time":   {&contract.Failure{Code: contract.DeadlineExceeded}, contract.ResultUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, setup{})
			l.handle = func(context.Context, *request) (*answer, error) { return nil, c.refusal }
			st := memstore.New(nil)
			record := func() contract.Receipt {
				b, err := broker.New(st, nil)
				require.NoError(t, err)
				r, err := b.Mutate(l.ctx(), broker.Mutation[*memstore.Tx]{
					Tenant: "t", AgentID: "agent", Method: contract.Method{Name: change},
					Meta:   contract.RequestMeta{OperationID: "op", IdempotencyKey: "key"},
					Digest: contract.NewContent("Change").Text("operation", "op").Digest(),
					Invoke: func(ctx context.Context, _ broker.Call) (contract.Receipt, error) {
						f, failed := contract.FailureOf(l.mutate(ctx))
						if !failed {
							return contract.Receipt{Result: contract.ResultApplied, Ref: "thing/1"}, nil
						}
						return contract.Receipt{Result: f.Result(), Detail: f.Error(), Failure: f}, nil
					},
				})
				require.NoError(t, err)
				return r
			}
			first := record()
			assert.Equal(t, c.want, first.Result)
			assert.Error(t, first.Err())
			again := record() // another process, with no memory of the call
			assert.True(t, again.Replayed)
			assert.Equal(t, c.want, again.Result)
			assert.EqualValues(t, 1, l.runs.Load())
		})
	}
}
