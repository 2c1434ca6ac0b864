package grpcerr

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/confirmexec/confirmexec/contract"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// reply is the error of a status with these details, as a client gets it.
func reply(t *testing.T, code codes.Code, details ...proto.Message) error {
	t.Helper()
	st := &spb.Status{Code: int32(code), Message: "status text"}
	for _, d := range details {
		packed, err := anypb.New(d)
		require.NoError(t, err)
		st.Details = append(st.Details, packed)
	}
	return status.FromProto(st).Err()
}

func info(domain string, m map[string]string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Reason: "SERVICE_REASON", Domain: domain, Metadata: m}
}

// R17: the numbers on the wire are those of gRPC, and stay.
func TestCodeNumbers(t *testing.T) {
	want := map[int32]string{0: "FAILURE_CODE_UNSPECIFIED"}
	for _, rule := range contract.RetryTable() {
		want[int32(rule.GRPC)] = codePrefix + string(rule.Code)
	}
	assert.Equal(t, want, pb.FailureCode_name)
	assert.Equal(t, map[int32]string{0: "EFFECT_UNSPECIFIED", 1: "EFFECT_NONE", 2: "EFFECT_UNKNOWN"}, pb.Effect_name)
	assert.Equal(t, map[int32]string{
		0: "RESULT_CODE_UNSPECIFIED", 1: "RESULT_CODE_ACCEPTED", 2: "RESULT_CODE_APPLIED", 3: "RESULT_CODE_UNKNOWN",
		4: "RESULT_CODE_CONFLICT", 5: "RESULT_CODE_REFUSED", 6: "RESULT_CODE_STOPPED", 7: "RESULT_CODE_NOT_APPLIED",
	}, pb.ResultCode_name)
	for _, code := range contract.ResultCodes() {
		assert.Contains(t, pb.ResultCode_value, resultPrefix+string(code))
	}
}

// R17: the committed image, which later changes are compared with, is of the code that is linked here.
func TestImage(t *testing.T) {
	data, err := os.ReadFile("../proto/confirmexec.binpb")
	require.NoError(t, err)
	image := &descriptorpb.FileDescriptorSet{}
	require.NoError(t, proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, image))
	linked := []protoreflect.FileDescriptor{
		pb.File_confirmexec_v1_failure_proto, pb.File_confirmexec_v1_receipt_proto, pb.File_confirmexec_v1_request_meta_proto,
	}
	own := slices.DeleteFunc(image.GetFile(), func(f *descriptorpb.FileDescriptorProto) bool { return f.GetPackage() != "confirmexec.v1" })
	require.Len(t, own, len(linked))
	for i, file := range linked {
		assert.True(t, proto.Equal(protodesc.ToFileDescriptorProto(file), own[i]), file.Path())
	}
}

// R1, R3: a failure's status has exactly one Failure and one ErrorInfo, which say the same.
func TestStatusOfFailure(t *testing.T) {
	f := contract.ErrInProgress.With(errors.New("canary"))
	f.Current, f.Effect = 12, contract.EffectNone
	st := ToStatus(f)
	assert.Equal(t, codes.AlreadyExists, st.Code())
	details := st.Details()
	require.Len(t, details, 2)
	own, ok := details[0].(*pb.Failure)
	require.True(t, ok)
	assert.True(t, proto.Equal(&pb.Failure{
		Code: pb.FailureCode_FAILURE_CODE_ALREADY_EXISTS, Reason: "pramaan.agent_operation.in_progress",
		Effect: pb.Effect_EFFECT_NONE, Message: f.Message, Current: 12,
	}, own))
	told, ok := details[1].(*errdetails.ErrorInfo)
	require.True(t, ok)
	assert.True(t, proto.Equal(&errdetails.ErrorInfo{
		Reason: "PRAMAAN_AGENT_OPERATION_IN_PROGRESS", Domain: "confirmexec.v1",
		Metadata: map[string]string{"code": "ALREADY_EXISTS", "reason": "pramaan.agent_operation.in_progress", "effect": "none", "current": "12"},
	}, told))
}

// ErrorInfo's reason is UPPER_SNAKE and short; a reason that cannot be made so gives way to the code.
func TestErrorReason(t *testing.T) {
	for reason, want := range map[contract.Reason]string{
		"":            "ABORTED",
		"a.b-c d":     "A_B_C_D",
		"..stale..":   "STALE",
		"9lives":      "ABORTED",
		"x":           "ABORTED",
		"करण":         "ABORTED",
		"ünder.score": "NDER_SCORE",
		contract.Reason(strings.Repeat("ab.", 40)): strings.TrimRight(strings.Repeat("AB_", 21), "_"),
	} {
		got := errorReason(&contract.Failure{Code: contract.Aborted, Reason: reason})
		assert.Equal(t, want, got, reason)
		assert.Regexp(t, `^[A-Z][A-Z0-9_]*[A-Z0-9]$`, got)
		assert.LessOrEqual(t, len(got), 63)
	}
}

// The two typed errors of contract are found as their failures; an InvalidError tells where and what.
func TestTypedErrors(t *testing.T) {
	_, invalid := contract.DecodeConfirmation([]byte(`{}`), contract.Limits{})
	require.Error(t, invalid)
	st := ToStatus(fmt.Errorf("canary: %w", invalid))
	assert.Equal(t, codes.InvalidArgument, st.Code())
	assert.Equal(t, invalid.Error(), "INVALID_ARGUMENT: "+st.Message())
	f, ok := FromError(st.Err())
	require.True(t, ok)
	assert.ErrorIs(t, f, contract.ErrInvalid)
	assert.True(t, f.KnownNoEffect())

	conflict := &contract.ConflictError{Failure: *contract.ErrStale, Drift: contract.Drift{{Axis: "contract_version", Proposed: "canary"}}}
	st = ToStatus(conflict)
	assert.Equal(t, codes.FailedPrecondition, st.Code())
	assert.NotContains(t, st.Proto().String(), "canary")
	f, ok = FromError(st.Err())
	require.True(t, ok)
	assert.ErrorIs(t, f, contract.ErrStale)

	// A failure whose cause is an invalid document is that failure.
	st = ToStatus(contract.ErrOutcomeUnknown.With(invalid))
	assert.Equal(t, contract.ErrOutcomeUnknown.Message, st.Message())
	assert.NotPanics(t, func() { ToStatus((*contract.InvalidError)(nil)) })
}

// R18: of errors that are joined all must prove that nothing happened, whichever is first: the code of the first one is told.
func TestJoinedErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		none bool
	}{
		"refusals":                  {errors.Join(contract.ErrDenied, contract.ErrStale, &contract.InvalidError{Problem: "p"}), true},
		"with one of the commit":    {errors.Join(contract.ErrDenied, errors.New("connection reset")), false},
		"with an unknown outcome":   {errors.Join(contract.ErrDenied, contract.ErrOutcomeUnknown), false},
		"with a deadline, wrapped":  {fmt.Errorf("a: %w, b: %w", contract.ErrDenied, context.DeadlineExceeded), false},
		"with another's status":     {errors.Join(contract.ErrDenied, reply(t, codes.Aborted)), false},
		"as causes of a failure":    {contract.ErrDenied.With(errors.Join(contract.ErrStale, io.EOF)), true},
		"of a carrier of its own":   {&carrier{inner: errors.Join(contract.ErrDenied, io.EOF)}, false},
		"the failure is not first":  {errors.Join(io.EOF, fmt.Errorf("a: %w", contract.ErrDenied)), false},
		"with a nil pointer to one": {errors.Join(contract.ErrDenied, (*contract.ConflictError)(nil)), false},
	} {
		st := ToStatus(c.err)
		f, ok := FromError(st.Err())
		require.True(t, ok, name)
		assert.Equal(t, codes.PermissionDenied, st.Code(), name)
		assert.ErrorIs(t, f, contract.ErrDenied, name)
		assert.Equal(t, c.none, f.KnownNoEffect(), name)
		assert.Equal(t, c.none, strings.Contains(st.Message(), "nothing was done"), name)
	}
}

// A status that the handler made stays as it is, without the texts around it; a failure beside it goes first.
func TestForeignStatusStays(t *testing.T) {
	made := reply(t, codes.DataLoss, wrapperspb.String("detail"))
	for _, err := range []error{made, fmt.Errorf("canary: %w", made), errors.Join(context.DeadlineExceeded, made)} {
		assert.True(t, proto.Equal(status.Convert(made).Proto(), ToStatus(err).Proto()))
	}
	// A refusal by another server does not say that nothing was done here.
	other := ToStatus(contract.ErrNotMinted).Err()
	f, ok := FromError(other)
	require.True(t, ok)
	assert.True(t, f.KnownNoEffect())
	f, ok = FromError(ToStatus(fmt.Errorf("canary: %w", other)).Err())
	require.True(t, ok)
	assert.ErrorIs(t, f, contract.ErrNotMinted)
	assert.Equal(t, contract.EffectUnknown, f.Effect)
	assert.NotContains(t, f.Message, "canary")
	assert.Equal(t, codes.Aborted, ToStatus(errors.Join(made, contract.ErrFenced)).Code())
	assert.Equal(t, codes.Aborted, ToStatus(contract.ErrFenced.With(made)).Code())
	assert.Equal(t, codes.OK, ToStatus(nil).Code())
}

// R4, R18: none of gRPC's 17 codes is a failure without an envelope; nor is an error that no status holds.
func TestBareCodes(t *testing.T) {
	believed := map[codes.Code]contract.FailureCode{
		codes.InvalidArgument: contract.InvalidArgument, codes.NotFound: contract.NotFound, codes.AlreadyExists: contract.AlreadyExists,
		codes.FailedPrecondition: contract.FailedPrecondition, codes.Aborted: contract.Aborted,
	}
	for code := range codes.Code(20) {
		err := reply(t, code)
		_, ok := FromError(err)
		assert.False(t, ok, code)
		f, ok := BareFailure(err)
		assert.Equal(t, believed[code] != "", ok, code)
		if ok {
			assert.Equal(t, believed[code], f.Code)
			assert.False(t, f.KnownNoEffect())
			assert.NotContains(t, f.Message, "status text")
		}
	}
	for _, err := range []error{nil, errors.New("x"), contract.ErrStale, context.DeadlineExceeded, okStatus{}, nilStatus{}} {
		_, ok := FromError(err)
		assert.False(t, ok)
		_, ok = BareFailure(err)
		assert.False(t, ok)
	}
}

// R3, R4: the decoder's order, and what it passes over.
func TestDecoderOrder(t *testing.T) {
	own := &pb.Failure{Code: pb.FailureCode_FAILURE_CODE_ABORTED, Effect: pb.Effect_EFFECT_NONE, Reason: "r", Message: "m", Current: 3}
	whole := map[string]string{"code": "ABORTED", "effect": "none", "reason": "r", "current": "3"}
	fromOwn := &contract.Failure{Code: contract.Aborted, Effect: contract.EffectNone, Reason: "r", Message: "m", Current: 3}
	fromCopy := fromOwn.With(nil)
	fromCopy.Message = "status text"
	unknown := &contract.Failure{Code: contract.Aborted, Effect: contract.EffectUnknown, Message: "status text"}
	trailer := metadata.Pairs(TrailerCode, "ABORTED", TrailerEffect, "none", TrailerReason, "r", TrailerCurrent, "3")
	broken := &anypb.Any{TypeUrl: "type.googleapis.com/confirmexec.v1.Failure", Value: []byte{0xff}}
	brokenInfo := &anypb.Any{TypeUrl: "type.googleapis.com/google.rpc.ErrorInfo", Value: []byte{0xff}}
	stranger := &anypb.Any{TypeUrl: "type.googleapis.com/stranger.v1.Failure", Value: []byte{1}}
	for name, c := range map[string]struct {
		details []proto.Message
		trailer metadata.MD
		want    *contract.Failure
	}{
		"all three":               {[]proto.Message{own, info(Domain, whole)}, trailer, fromOwn},
		"detail alone":            {[]proto.Message{own}, nil, fromOwn},
		"in any order":            {[]proto.Message{info(Domain, whole), wrapperspb.Bool(true), own}, nil, fromOwn},
		"ErrorInfo alone":         {[]proto.Message{info(Domain, whole)}, nil, fromCopy},
		"trailer alone":           {nil, trailer, fromCopy},
		"ErrorInfo, no metadata":  {[]proto.Message{info(Domain, nil)}, nil, unknown},
		"detail, effect alone":    {[]proto.Message{own, info(Domain, map[string]string{"effect": "none"})}, nil, fromOwn},
		"detail, no metadata":     {[]proto.Message{own, info(Domain, nil)}, nil, fromOwn},
		"trailer, code alone":     {nil, metadata.Pairs(TrailerCode, "ABORTED"), unknown},
		"foreign domain":          {[]proto.Message{info("stranger.example", whole)}, nil, nil},
		"foreign domain and ours": {[]proto.Message{info("stranger.example", map[string]string{"code": "NOT_FOUND"}), own}, nil, fromOwn},
		"trailer without a code":  {nil, metadata.Pairs(TrailerEffect, "none"), nil},
		"the same twice":          {[]proto.Message{own, own}, nil, fromOwn},
		"trailer twice the same":  {nil, metadata.Join(trailer, trailer), fromCopy},
	} {
		f, ok := Codec{}.FromReply(reply(t, codes.Aborted, c.details...), c.trailer)
		assert.Equal(t, c.want != nil, ok, name)
		assert.Equal(t, c.want, f, name)
	}
	for name, raw := range map[string][]*anypb.Any{"broken": {broken}, "broken ErrorInfo": {brokenInfo}, "unknown type": {stranger}, "nil": {nil}, "empty": {{}}} {
		st := &spb.Status{Code: int32(codes.Aborted), Details: raw}
		_, ok := FromError(status.ErrorProto(st))
		assert.False(t, ok, name)
		st.Details = append(st.Details, pack(own))
		f, ok := FromError(status.ErrorProto(st))
		assert.True(t, ok, name)
		assert.Equal(t, fromOwn, f, name)
	}
}

// R3, R18: a reply that contradicts itself proves nothing.
func TestMismatch(t *testing.T) {
	own := &pb.Failure{Code: pb.FailureCode_FAILURE_CODE_NOT_FOUND, Effect: pb.Effect_EFFECT_NONE, Reason: "r", Current: 3}
	with := func(key, value string) map[string]string {
		m := map[string]string{"code": "NOT_FOUND", "effect": "none", "reason": "r", "current": "3"}
		m[key] = value
		return m
	}
	bare := &pb.Failure{Code: own.GetCode()}
	second := proto.CloneOf(own)
	second.Current = 4
	for name, c := range map[string]struct {
		code    codes.Code
		details []proto.Message
		trailer metadata.MD
	}{
		"another failure code's status": {codes.Aborted, []proto.Message{own}, nil},
		"a status without failure code": {codes.Unknown, []proto.Message{own}, nil},
		"two details":                   {codes.NotFound, []proto.Message{own, second}, nil},
		"ErrorInfo of another code":     {codes.NotFound, []proto.Message{own, info(Domain, with("code", "ABORTED"))}, nil},
		"ErrorInfo of an unknown code":  {codes.NotFound, []proto.Message{own, info(Domain, with("code", "NEW"))}, nil},
		"ErrorInfo of another effect":   {codes.NotFound, []proto.Message{own, info(Domain, with("effect", "unknown"))}, nil},
		"ErrorInfo of another reason":   {codes.NotFound, []proto.Message{own, info(Domain, with("reason", "s"))}, nil},
		"ErrorInfo of another revision": {codes.NotFound, []proto.Message{own, info(Domain, with("current", "4"))}, nil},
		"effect in the copy alone":      {codes.NotFound, []proto.Message{bare, info(Domain, map[string]string{"effect": "none"})}, nil},
		"reason in the copy alone":      {codes.NotFound, []proto.Message{bare, info(Domain, map[string]string{"reason": "r"})}, nil},
		"two ErrorInfos":                {codes.NotFound, []proto.Message{info(Domain, with("", "")), info(Domain, with("effect", "by_code"))}, nil},
		"trailer of another code":       {codes.NotFound, []proto.Message{own}, metadata.Pairs(TrailerCode, "ABORTED")},
		"trailer and status":            {codes.Internal, nil, metadata.Pairs(TrailerCode, "NOT_FOUND", TrailerEffect, "none")},
		"trailer twice":                 {codes.NotFound, nil, metadata.Pairs(TrailerCode, "NOT_FOUND", TrailerCode, "ABORTED")},
		"trailer's effect, twice":       {codes.NotFound, []proto.Message{own}, metadata.Pairs(TrailerCode, "NOT_FOUND", TrailerEffect, "unknown", TrailerEffect, "none")},
		"trailer's effect twice":        {codes.NotFound, []proto.Message{own}, metadata.Pairs(TrailerCode, "NOT_FOUND", TrailerEffect, "none", TrailerEffect, "unknown")},
		"an unknown detail and a copy":  {codes.NotFound, []proto.Message{&pb.Failure{Code: 17}, info(Domain, with("", ""))}, nil},
	} {
		f, ok := Codec{}.FromReply(reply(t, c.code, c.details...), c.trailer)
		require.True(t, ok, name)
		assert.ErrorIs(t, f, ErrEnvelopeMismatch, name)
		assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown},
			contract.Decide(contract.Method{}, f, contract.Answered), name)
	}
	f, ok := fromTrailer(metadata.Pairs(TrailerCode, "NOT_FOUND", TrailerCode, "ABORTED"))
	assert.True(t, ok)
	assert.ErrorIs(t, f, ErrEnvelopeMismatch)
	_, ok = fromTrailer(metadata.Pairs(TrailerEffect, "none"))
	assert.False(t, ok)
}

// R17, R18: a code or an effect of a later version acts as the status's code, and proves nothing of the effect.
func TestLaterVersions(t *testing.T) {
	for name, details := range map[string][]proto.Message{
		"code":                   {&pb.Failure{Code: 17, Effect: pb.Effect_EFFECT_NONE}},
		"code, negative":         {&pb.Failure{Code: -1, Effect: pb.Effect_EFFECT_NONE}},
		"code, effect by code":   {&pb.Failure{Code: 17}},
		"effect by code, copied": {&pb.Failure{Code: 17}, info(Domain, map[string]string{"code": "NEW", "effect": "by_code"})},
		"copy, effect by code":   {info(Domain, map[string]string{"code": "NEW", "effect": "by_code"})},
		"no code":                {&pb.Failure{Effect: pb.Effect_EFFECT_NONE}},
		"code that gRPC has":     {&pb.Failure{Code: pb.FailureCode(codes.OutOfRange), Effect: pb.Effect_EFFECT_NONE}},
		"code and its copy":      {&pb.Failure{Code: 17, Effect: pb.Effect_EFFECT_NONE}, info(Domain, map[string]string{"code": "NEW", "effect": "none"})},
		"code in the copy alone": {info(Domain, map[string]string{"code": "NEW", "effect": "none"})},
		"effect":                 {&pb.Failure{Code: pb.FailureCode_FAILURE_CODE_NOT_FOUND, Effect: 3}},
		"effect and its copy":    {&pb.Failure{Code: pb.FailureCode_FAILURE_CODE_NOT_FOUND, Effect: 3}, info(Domain, map[string]string{"effect": "applied"})},
		"effect in a copy alone": {info(Domain, map[string]string{"code": "NOT_FOUND", "effect": "applied"})},
	} {
		f, ok := FromError(reply(t, codes.NotFound, details...))
		require.True(t, ok, name)
		assert.Equal(t, contract.NotFound, f.Code, name)
		assert.Equal(t, contract.EffectUnknown, f.Effect, name)
		if _, known := details[0].(*pb.Failure); known && details[0].(*pb.Failure).GetEffect() == pb.Effect_EFFECT_NONE {
			_, ok = FromError(reply(t, codes.Internal, details...))
			assert.False(t, ok, name)
		}
	}
	f, ok := fromTrailer(metadata.Pairs(TrailerCode, "NEW", TrailerEffect, "none"))
	require.True(t, ok)
	assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown},
		contract.Decide(contract.Method{}, f, contract.Answered))
}

// A failure of any size keeps everything but some of its status text, and stays within the cap with its trailers.
func TestSizeCap(t *testing.T) {
	for _, letter := range []string{"a", "%", "é", "म", "\xff", "\n"} {
		for n := range contract.MaxDetail + 100 {
			f := &contract.Failure{Code: contract.FailedPrecondition, Effect: contract.EffectUnknown, Message: strings.Repeat(letter, n),
				Reason: contract.Reason(strings.Repeat("r", 500)), Current: -1 << 63}
			st := ToStatus(f)
			plain := 0
			for _, b := range []byte(st.Message()) {
				if b >= ' ' && b <= '~' && b != '%' {
					plain++
				}
			}
			onWire := len("grpc-message") + 3*len(st.Message()) - 2*plain + 32 +
				len("grpc-status-details-bin") + base64.RawStdEncoding.EncodedLen(proto.Size(st.Proto())) + 32
			for name, values := range trailerOf(clean(f)) {
				onWire += len(name) + len(values[0]) + 32
			}
			require.LessOrEqual(t, onWire, 4096, "%d of %q", n, letter)
			got, ok := FromError(st.Err())
			require.True(t, ok)
			require.Equal(t, *clean(f), *got)
		}
	}
	short := &contract.Failure{Code: contract.Aborted, Message: strings.Repeat("a", 500)}
	assert.Equal(t, short.Message, ToStatus(short).Message())
}

// A status of the handler's own is cut when it is too large; its code stays.
func TestForeignSizeCap(t *testing.T) {
	st := &spb.Status{Code: int32(codes.OutOfRange), Message: strings.Repeat("é", 3000)}
	for _, n := range []int{100, 6000, 50} {
		st.Details = append(st.Details, pack(wrapperspb.String(strings.Repeat("x", n))))
	}
	got := ToStatus(status.ErrorProto(st))
	assert.Equal(t, codes.OutOfRange, got.Code())
	assert.LessOrEqual(t, size(got.Proto()), maxMetadata)
	assert.Len(t, got.Details(), 1)
	assert.True(t, strings.HasSuffix(got.Message(), "é…"))
}

// coded is a service's own failure message that has a code, and may have an effect.
type coded struct{}

func (coded) ToDetail(f *contract.Failure) proto.Message { return wrapperspb.String(string(f.Code)) }

func (coded) FromDetail(m proto.Message) (*contract.Failure, bool) {
	s, ok := m.(*wrapperspb.StringValue)
	code, effect, told := strings.Cut(s.GetValue(), " ")
	f := &contract.Failure{Code: contract.FailureCode(code), Cause: errors.New("dropped")}
	if told {
		f.Effect = effectOf(effect)
	}
	return f, ok
}

// padded is one that is far too large.
type padded struct{ coded }

func (padded) ToDetail(*contract.Failure) proto.Message {
	return structpb.NewStringValue(strings.Repeat("x", 20<<10))
}

// unwritable is one that cannot be written, and claims everything.
type unwritable struct{ coded }

func (unwritable) ToDetail(*contract.Failure) proto.Message { return wrapperspb.String("\xff") }

func (unwritable) FromDetail(proto.Message) (*contract.Failure, bool) { return nil, true }

// absent has no message for anything.
type absent struct{ coded }

func (absent) ToDetail(*contract.Failure) proto.Message { return nil }

// R3: a service keeps its own failure message; what that has no field for comes from the copies, and so does everything for a
// reader without the adapter.
func TestAdapter(t *testing.T) {
	sent := contract.ErrRetryTx.With(nil)
	sent.Current = 9
	codec := Codec{Adapter: coded{}}
	st := codec.ToStatus(sent)
	details := st.Details()
	require.Len(t, details, 2)
	assert.IsType(t, &wrapperspb.StringValue{}, details[0])
	f, ok := codec.FromError(st.Err())
	require.True(t, ok)
	assert.Equal(t, &contract.Failure{Code: sent.Code, Reason: sent.Reason, Effect: sent.Effect, Current: 9}, f)
	f, ok = FromError(st.Err())
	require.True(t, ok)
	assert.Equal(t, sent, f)

	f, ok = codec.FromError(ToStatus(sent).Err()) // a peer without the adapter
	require.True(t, ok)
	assert.Equal(t, sent, f)
	f, ok = codec.FromError(reply(t, codes.Aborted, wrapperspb.String("NOT_FOUND")))
	require.True(t, ok)
	assert.ErrorIs(t, f, ErrEnvelopeMismatch)
	f, ok = codec.FromError(reply(t, codes.Aborted, wrapperspb.String("ABORTED"), info(Domain, map[string]string{"code": "NOT_FOUND"})))
	require.True(t, ok)
	assert.ErrorIs(t, f, ErrEnvelopeMismatch)
	f, ok = codec.FromError(reply(t, codes.Aborted, wrapperspb.String("ABORTED unknown"), info(Domain, map[string]string{"effect": "none"})))
	require.True(t, ok)
	assert.ErrorIs(t, f, ErrEnvelopeMismatch)
	_, ok = codec.FromError(reply(t, codes.Aborted, &anypb.Any{TypeUrl: "x/stranger.v1.Failure"}))
	assert.False(t, ok)

	for name, a := range map[string]Adapter{"padded": padded{}, "unwritable": unwritable{}, "absent": absent{}} {
		st := Codec{Adapter: a}.ToStatus(sent)
		assert.Equal(t, codes.Aborted, st.Code(), name)
		assert.IsType(t, &pb.Failure{}, st.Details()[0], name)
		f, ok := Codec{Adapter: a}.FromError(st.Err())
		require.True(t, ok, name)
		assert.Equal(t, sent, f, name)
	}
}

// What a reply tells is clean, from wherever it was read: texts of a peer are logged and shown.
func TestTextsAreCleaned(t *testing.T) {
	dirty := &spb.Status{Code: int32(codes.Aborted), Message: "a\nb\x1b", Details: []*anypb.Any{
		pack(info(Domain, map[string]string{"code": "ABORTED", "effect": "none", "reason": "r\x00"})),
	}}
	f, ok := FromError(status.ErrorProto(dirty))
	require.True(t, ok)
	assert.Equal(t, &contract.Failure{Code: contract.Aborted, Effect: contract.EffectNone, Reason: "r\ufffd", Message: "a b\ufffd"}, f)
	dirty.Details = []*anypb.Any{pack(&pb.Failure{Code: pb.FailureCode_FAILURE_CODE_ABORTED, Reason: "r\x00", Message: "a\nb\x1b"})}
	f, ok = FromError(status.ErrorProto(dirty))
	require.True(t, ok)
	assert.Equal(t, &contract.Failure{Code: contract.Aborted, Reason: "r\ufffd", Message: "a b\ufffd"}, f)
	f, ok = fromTrailer(metadata.Pairs(TrailerCode, "ABORTED", TrailerReason, "r\x00"))
	require.True(t, ok)
	assert.Equal(t, contract.Reason("r\ufffd"), f.Reason)
}

// The trailers are plain ASCII, and what is not stays out of them.
func TestTrailers(t *testing.T) {
	f := &contract.Failure{Code: contract.Aborted, Reason: "service.reason", Effect: contract.EffectNone, Current: 5}
	assert.Equal(t, metadata.Pairs("x-confirmexec-failure-code", "ABORTED", "x-confirmexec-failure-reason", "service.reason",
		"x-confirmexec-failure-effect", "none", "x-confirmexec-failure-current", "5"), trailerOf(f))
	for _, reason := range []contract.Reason{"", "दोष", " a", "a b", "a\x7f", "a\n"} {
		md := trailerOf(&contract.Failure{Code: contract.Aborted, Reason: reason})
		assert.Equal(t, []string{TrailerCode, TrailerEffect}, slices.Sorted(maps.Keys(md)), reason)
	}
	assert.Len(t, trailers, 4)
}
