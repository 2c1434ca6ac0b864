package grpcerr

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/confirmexec/confirmexec/contract"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// vector is one reply as its trailers are on the wire, and what a reader in any language makes of it.
type vector struct {
	Name     string            `json:"name"`
	Status   uint32            `json:"grpc_status"`
	Message  string            `json:"grpc_message,omitempty"` // decoded
	Details  string            `json:"grpc_status_details_bin,omitempty"`
	Trailers map[string]string `json:"trailers,omitempty"`
	Failure  *vectorFailure    `json:"failure"` // null: no failure was told
}

type vectorFailure struct {
	Code    contract.FailureCode `json:"code"`
	Reason  contract.Reason      `json:"reason"`
	Effect  string               `json:"effect"`
	Message string               `json:"message"`
	Current int64                `json:"current"`
}

const vectorFile = "testdata/replies.json"

// R1, R3, R4: the committed replies, for readers in other languages too, are read as they say. CONFIRMEXEC_UPDATE=1 writes them
// anew.
func TestVectors(t *testing.T) {
	if os.Getenv("CONFIRMEXEC_UPDATE") != "" {
		writeVectors(t)
	}
	data, err := os.ReadFile(vectorFile)
	require.NoError(t, err)
	var all []vector
	require.NoError(t, json.Unmarshal(data, &all))
	whole := map[contract.FailureCode]bool{}
	for _, v := range all {
		assert.Equal(t, v.Failure, v.read(t), v.Name)
		if v.Details != "" && v.Failure != nil {
			whole[v.Failure.Code] = true
		}
	}
	assert.Len(t, whole, len(contract.RetryTable()))
}

// read reads the reply as a gRPC client does.
func (v vector) read(t *testing.T) *vectorFailure {
	t.Helper()
	st := &spb.Status{Code: int32(v.Status), Message: v.Message}
	if v.Details != "" {
		data, err := base64.RawStdEncoding.DecodeString(v.Details)
		require.NoError(t, err)
		require.NoError(t, proto.Unmarshal(data, st))
		require.Equal(t, int32(v.Status), st.GetCode())
	}
	f, ok := Codec{}.FromReply(status.ErrorProto(st), metadata.New(v.Trailers))
	if !ok {
		return nil
	}
	return &vectorFailure{f.Code, f.Reason, f.Effect.String(), f.Message, f.Current}
}

func writeVectors(t *testing.T) {
	t.Helper()
	var all []vector
	add := func(name string, st *spb.Status, trailers metadata.MD) {
		v := vector{Name: name, Status: uint32(st.GetCode()), Message: st.GetMessage(), Trailers: map[string]string{}}
		if len(st.GetDetails()) > 0 {
			data, err := proto.MarshalOptions{Deterministic: true}.Marshal(st)
			require.NoError(t, err)
			v.Details = base64.RawStdEncoding.EncodeToString(data)
		}
		for name := range trailers {
			v.Trailers[name] = trailers.Get(name)[0]
		}
		v.Failure = v.read(t)
		all = append(all, v)
	}
	of := func(code codes.Code, details ...proto.Message) *spb.Status {
		return status.Convert(reply(t, code, details...)).Proto()
	}
	for i, rule := range contract.RetryTable() {
		f := &contract.Failure{Code: rule.Code, Reason: "service.reason", Effect: contract.Effect(i % 3), Message: "100% of é", Current: int64(i)}
		add(string(rule.Code), ToStatus(f).Proto(), trailerOf(f))
		add(string(rule.Code)+", details stripped", &spb.Status{Code: int32(rule.GRPC), Message: f.Message}, trailerOf(f))
		add(string(rule.Code)+", all stripped", &spb.Status{Code: int32(rule.GRPC), Message: f.Message}, nil)
	}
	own := &pb.Failure{Code: pb.FailureCode_FAILURE_CODE_ABORTED, Effect: pb.Effect_EFFECT_NONE}
	add("ErrorInfo of another domain", of(codes.Aborted, info("stranger.example", map[string]string{"code": "ABORTED"})), nil)
	add("another status code", of(codes.Unknown, own), nil)
	add("two failures", of(codes.Aborted, own, &pb.Failure{Code: pb.FailureCode_FAILURE_CODE_ABORTED}), nil)
	add("a trailer of another failure", of(codes.Aborted, own), metadata.Pairs(TrailerCode, "NOT_FOUND"))
	add("a later code", of(codes.Aborted, &pb.Failure{Code: 99, Effect: pb.Effect_EFFECT_NONE}), nil)
	add("a later effect", of(codes.NotFound, &pb.Failure{Code: pb.FailureCode_FAILURE_CODE_NOT_FOUND, Effect: 99}), nil)
	for _, code := range []codes.Code{codes.Canceled, codes.Unknown, codes.OutOfRange, codes.Unimplemented, codes.Internal, codes.DataLoss} {
		add(code.String(), of(code), nil)
	}
	data, err := json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(vectorFile, append(data, '\n'), 0o600))
}
