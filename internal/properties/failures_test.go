package properties

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// anyText is any text that an executor may write, a long one and one that is not UTF-8 included.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(text(), bytesAsText(), rapid.Map(rapid.IntRange(0, 3000), func(n int) string { return strings.Repeat("é", n) }))
}

// failure is a failure of one of the ten codes, with any texts.
func failure() *rapid.Generator[*contract.Failure] {
	return rapid.Custom(func(t *rapid.T) *contract.Failure {
		return &contract.Failure{
			Code:    rapid.SampledFrom(contract.RetryTable()).Draw(t, "rule").Code,
			Reason:  contract.Reason(anyText().Draw(t, "reason")),
			Effect:  contract.Effect(rapid.IntRange(0, 2).Draw(t, "effect")),
			Message: anyText().Draw(t, "message"),
			Current: rapid.Int64().Draw(t, "current"),
			Cause:   errors.New("canary-cause"),
		}
	})
}

// R1, R3: a failure that was sent in a status is the failure as it is cleaned, whatever error it was in, but that beside another
// error it proves nothing; it and its copies are small, and nothing of the errors around it is sent.
func TestFailureInStatus(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := failure().Draw(t, "failure")
		var err error = f
		for range rapid.IntRange(0, 3).Draw(t, "wraps") {
			if rapid.Bool().Draw(t, "join") {
				err = errors.Join(errors.New("canary-other"), err)
			} else {
				err = fmt.Errorf("canary-text: %w", err)
			}
		}
		st := grpcerr.ToStatus(err)
		if !contract.KnownNoEffect(err) && f.KnownNoEffect() {
			f = f.WithUnknownEffect()
		}
		rule, _ := f.Code.Rule()
		require.Equal(t, codes.Code(rule.GRPC), st.Code())
		data, err := proto.Marshal(st.Proto())
		require.NoError(t, err)
		require.LessOrEqual(t, len(data), 3<<10)
		require.NotContains(t, string(data), "canary")
		got, ok := grpcerr.FromError(status.ErrorProto(st.Proto()))
		require.True(t, ok)
		require.Equal(t, contract.Receipt{Failure: f}.Clean().Failure, got)
	})
}

// R2, R21, R23: a receipt that was sent is the receipt as it is cleaned if it can stand, and else none, with an unknown outcome.
func TestReceiptInReply(t *testing.T) {
	results := append(contract.ResultCodes(), "", "DONE")
	small := rapid.Int64Range(-1, 3)
	rapid.Check(t, func(t *rapid.T) {
		r := contract.Receipt{
			Result: rapid.SampledFrom(results).Draw(t, "result"), Method: anyText().Draw(t, "method"), OperationID: anyText().Draw(t, "id"),
			Before: small.Draw(t, "before"), After: small.Draw(t, "after"), Ref: anyText().Draw(t, "ref"), Detail: anyText().Draw(t, "detail"),
			By: anyText().Draw(t, "by"), RecordedAt: rapid.Int64Range(0, math.MaxInt64).Draw(t, "time"), Replayed: rapid.Bool().Draw(t, "replayed"),
		}
		copy(r.Digest[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
		if rapid.Bool().Draw(t, "barrier") {
			r.Barrier = &contract.Barrier{ID: anyText().Draw(t, "barrier id"), ActiveCalls: small.Draw(t, "calls"), Epoch: anyText().Draw(t, "epoch")}
		}
		if rapid.Bool().Draw(t, "failed") {
			r.Failure = failure().Draw(t, "failure")
		}
		data, err := proto.Marshal(grpcerr.ReceiptToProto(r))
		require.NoError(t, err)
		p := &pb.Receipt{}
		require.NoError(t, proto.Unmarshal(data, p))
		got, err := grpcerr.ReceiptFromProto(p)
		if r.Clean().Validate() != nil {
			require.ErrorIs(t, err, contract.ErrOutcomeUnknown)
			require.Zero(t, got)
			return
		}
		require.NoError(t, err)
		require.Equal(t, r.Clean(), got)
	})
}
