package grpcerr

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/confirmexec/confirmexec/contract"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// everyReceipt is a receipt of each result that uses every field that it may.
func everyReceipt() []contract.Receipt {
	var all []contract.Receipt
	for _, result := range contract.ResultCodes() {
		r := contract.Receipt{
			Result: result, Method: "/agent.v1.AgentService/SetAdmissionState", OperationID: "op", Digest: contract.Digest{1, 31: 2},
			Before: 4, After: 5, Barrier: &contract.Barrier{ID: "b", Epoch: "e"}, Ref: "ref", Detail: "detail", By: "by",
			RecordedAt: 1_800_000_000_123, Replayed: true,
		}
		if !r.Applied() {
			r.Failure = &contract.Failure{Code: contract.Aborted, Reason: "r", Effect: contract.EffectNone, Message: "m", Current: 6}
			r.Barrier.ActiveCalls = 3
		}
		all = append(all, r, contract.Receipt{Result: result, Ref: "ref"})
	}
	return all
}

// sent takes a message through its bytes.
func sent[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	got := m.ProtoReflect().New().Interface()
	require.NoError(t, proto.Unmarshal(data, got))
	return got.(M)
}

// R2, R23: a receipt of each result arrives with every field.
func TestReceiptOnTheWire(t *testing.T) {
	used := map[string]bool{}
	for _, want := range everyReceipt() {
		require.NoError(t, want.Validate())
		got, err := ReceiptFromProto(sent(t, ReceiptToProto(want)))
		require.NoError(t, err)
		assert.Equal(t, want, got)
		for i, v := 0, reflect.ValueOf(got); i < v.NumField(); i++ {
			used[v.Type().Field(i).Name] = used[v.Type().Field(i).Name] || !v.Field(i).IsZero()
		}
	}
	for name, set := range used {
		assert.True(t, set, "no receipt of this test has %s", name)
	}
	// A text that could not be sent does not make the receipt unsendable.
	dirty := contract.Receipt{Result: contract.ResultApplied, Ref: "a\xff\n", Failure: nil, Detail: strings.Repeat("x", 5000)}
	got, err := ReceiptFromProto(sent(t, ReceiptToProto(dirty)))
	require.NoError(t, err)
	assert.Equal(t, dirty.Clean(), got)
	got, err = ReceiptFromProto(&pb.Receipt{Result: pb.ResultCode_RESULT_CODE_APPLIED, Digest: make([]byte, 32), Ref: "a\n"})
	require.NoError(t, err)
	assert.Equal(t, "a ", got.Ref)
}

// R2, R21: what is no receipt leaves the outcome unknown, and never says that nothing happened.
func TestNoReceipt(t *testing.T) {
	good := ReceiptToProto(contract.Receipt{Result: contract.ResultApplied, Before: 1, After: 2})
	for name, spoil := range map[string]func(*pb.Receipt){
		"unspecified":       func(p *pb.Receipt) { p.Result = 0 },
		"a later result":    func(p *pb.Receipt) { p.Result = 8 },
		"a negative result": func(p *pb.Receipt) { p.Result = -1 },
		"applied, failure":  func(p *pb.Receipt) { p.Failure = &pb.Failure{Code: pb.FailureCode_FAILURE_CODE_ABORTED} },
		"no evidence":       func(p *pb.Receipt) { p.After = p.Before },
		"calls running":     func(p *pb.Receipt) { p.Barrier = &pb.Barrier{Id: "b", ActiveCalls: 1} },
		"barrier, no id":    func(p *pb.Receipt) { p.Barrier = &pb.Barrier{} },
		"failure, no code":  func(p *pb.Receipt) { p.Result, p.Failure = pb.ResultCode_RESULT_CODE_REFUSED, &pb.Failure{} },
		"a later code":      func(p *pb.Receipt) { p.Result, p.Failure = pb.ResultCode_RESULT_CODE_REFUSED, &pb.Failure{Code: 17} },
		"no digest":         func(p *pb.Receipt) { p.Digest = nil },
		"short digest":      func(p *pb.Receipt) { p.Digest = p.Digest[1:] },
		"long digest":       func(p *pb.Receipt) { p.Digest = append(p.Digest, 0) },
		"everything":        func(p *pb.Receipt) { proto.Reset(p) },
	} {
		p := proto.CloneOf(good)
		spoil(p)
		r, err := ReceiptFromProto(p)
		assert.ErrorIs(t, err, contract.ErrOutcomeUnknown, name)
		f, ok := contract.FailureOf(err)
		require.True(t, ok)
		assert.False(t, f.KnownNoEffect(), name)
		assert.Zero(t, r, name)
	}
	_, err := ReceiptFromProto(nil)
	assert.ErrorIs(t, err, contract.ErrOutcomeUnknown)
	_, err = ReceiptFromProto(good)
	assert.NoError(t, err)
	assert.Equal(t, pb.ResultCode_RESULT_CODE_UNSPECIFIED, ReceiptToProto(contract.Receipt{Result: "DONE"}).GetResult())
}

// R1: a failure is its proto and back, for all ten codes and every effect.
func TestFailureOnTheWire(t *testing.T) {
	for _, rule := range contract.RetryTable() {
		for _, effect := range []contract.Effect{contract.EffectByCode, contract.EffectNone, contract.EffectUnknown} {
			want := &contract.Failure{Code: rule.Code, Reason: "r", Effect: effect, Message: "m", Current: 1 << 62}
			p := sent(t, FailureToProto(want))
			assert.Equal(t, rule.GRPC, uint32(p.GetCode()))
			assert.Equal(t, want, FailureFromProto(p))
		}
	}
	assert.Equal(t, "\ufffd ", sent(t, FailureToProto(&contract.Failure{Message: "\xff\n"})).GetMessage())
	assert.Nil(t, FailureToProto(nil))
	assert.Nil(t, FailureFromProto(nil))
	assert.Equal(t, pb.FailureCode_FAILURE_CODE_UNSPECIFIED, FailureToProto(&contract.Failure{Code: "INTERNAL"}).GetCode())
	assert.Equal(t, pb.Effect_EFFECT_UNKNOWN, FailureToProto(&contract.Failure{Effect: 9}).GetEffect())
	assert.Equal(t, &contract.Failure{Code: "17", Effect: contract.EffectUnknown}, FailureFromProto(&pb.Failure{Code: 17, Effect: -5}))
}

// The meta data arrives with every field, unchanged.
func TestMetaOnTheWire(t *testing.T) {
	want := contract.RequestMeta{
		ProtocolVersion: "1", OperationID: "op", IdempotencyKey: " Key ", AgentID: "agent", CellID: "cell", BootID: "boot",
		SessionGeneration: -7, DispatcherEpoch: "epoch",
	}
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		assert.False(t, v.Field(i).IsZero(), v.Type().Field(i).Name)
	}
	assert.Equal(t, want, MetaFromProto(sent(t, MetaToProto(want))))
	assert.Zero(t, MetaFromProto(nil))
}
