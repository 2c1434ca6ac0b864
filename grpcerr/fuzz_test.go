package grpcerr

import (
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/confirmexec/confirmexec/contract"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// R3, R4: whatever a status holds, reading it does not panic, and what is read is the status's code or a contradiction, is clean,
// and is the same after it was sent once more.
func FuzzStatus(f *testing.F) {
	for _, rule := range contract.RetryTable() {
		failure := &contract.Failure{Code: rule.Code, Reason: "service.reason", Message: "message", Current: 7}
		for _, codec := range []Codec{{}, {Adapter: coded{}}} {
			data, err := proto.Marshal(codec.ToStatus(failure).Proto())
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, string(rule.Code), "none")
		}
	}
	foreign := &spb.Status{Code: 10}
	for _, m := range []proto.Message{
		&pb.Failure{Code: 17, Effect: 9}, &pb.Failure{Code: 10}, wrapperspb.String("ABORTED"), info(Domain, nil), info("x", nil),
	} {
		foreign.Details = append(foreign.Details, pack(m))
		data, err := proto.Marshal(foreign)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "", "")
	}
	f.Fuzz(func(t *testing.T, data []byte, code, effect string) {
		st := &spb.Status{}
		if proto.Unmarshal(data, st) != nil {
			return
		}
		trailer := metadata.Pairs(TrailerCode, code, TrailerEffect, effect)
		for _, codec := range []Codec{{}, {Adapter: coded{}}, {Adapter: unwritable{}}} {
			for _, md := range []metadata.MD{nil, trailer} {
				checkReply(t, codec, st, md)
			}
		}
	})
}

// R3, R4: the same for a detail of any bytes under any code, beside another one and alone.
func FuzzDetail(f *testing.F) {
	for _, rule := range contract.RetryTable() {
		failure := &contract.Failure{Code: rule.Code, Reason: "service.reason", Message: "message", Current: 7}
		for _, detail := range ToStatus(failure).Proto().GetDetails() {
			f.Add(detail.GetValue(), []byte(nil), int32(rule.GRPC))
			f.Add(detail.GetValue(), detail.GetValue(), int32(rule.GRPC%16+1))
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte, code int32) {
		own := func(b []byte) *anypb.Any { return &anypb.Any{TypeUrl: pack(&pb.Failure{}).GetTypeUrl(), Value: b} }
		copied := func(b []byte) *anypb.Any { return &anypb.Any{TypeUrl: pack(info("", nil)).GetTypeUrl(), Value: b} }
		for _, details := range [][]*anypb.Any{{own(first)}, {copied(first)}, {own(first), own(second)}, {copied(first), own(second)}} {
			checkReply(t, Codec{}, &spb.Status{Code: code, Details: details}, nil)
		}
	})
}

func checkReply(t *testing.T, codec Codec, st *spb.Status, md metadata.MD) {
	t.Helper()
	err := status.ErrorProto(st)
	got, ok := codec.FromReply(err, md)
	if ok != (got != nil) {
		t.Fatalf("%v, %v", got, ok)
	}
	if !ok {
		return
	}
	rule, known := got.Code.Rule()
	if !known || rule.GRPC != uint32(st.GetCode()) && !got.Is(ErrEnvelopeMismatch) {
		t.Fatalf("status %d is read as %v", st.GetCode(), got)
	}
	if known && codes.Code(st.GetCode()) == codes.OK {
		t.Fatal("a success holds a failure")
	}
	again := codec.ToStatus(got)
	if n := size(again.Proto()); n > maxMetadata {
		t.Fatalf("%d bytes", n)
	}
	back, ok := Codec{}.FromError(ToStatus(got).Err())
	if !ok || *back != *clean(got) {
		t.Fatalf("%#v became %#v", clean(got), back)
	}
}

// R2, R21: whatever a receipt holds, reading it does not panic, and what is read is a receipt that can stand and is the same after
// it was sent once more; else the outcome is unknown.
func FuzzReceipt(f *testing.F) {
	for _, r := range append(everyReceipt(), contract.Receipt{}) {
		data, err := proto.Marshal(ReceiptToProto(r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &pb.Receipt{}
		if proto.Unmarshal(data, p) != nil {
			return
		}
		r, err := ReceiptFromProto(p)
		if err != nil {
			if failure, ok := contract.FailureOf(err); !ok || failure.KnownNoEffect() {
				t.Fatalf("%v proves something", err)
			}
			return
		}
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(ReceiptToProto(r))
		if err != nil {
			t.Fatal(err)
		}
		q := &pb.Receipt{}
		if err := proto.Unmarshal(again, q); err != nil {
			t.Fatal(err)
		}
		back, err := ReceiptFromProto(q)
		if err != nil || !proto.Equal(ReceiptToProto(back), ReceiptToProto(r)) {
			t.Fatalf("%#v became %#v: %v", r, back, err)
		}
	})
}

// Whatever a failure's message holds, reading it does not panic, and reading it twice is reading it once.
func FuzzFailure(f *testing.F) {
	for number := range int32(18) {
		f.Add(number, "service.reason", number%4, "message", int64(number))
	}
	f.Add(int32(-1), "\xff\u202e", int32(-1), "a\nb", int64(-1)<<63)
	f.Fuzz(func(t *testing.T, code int32, reason string, effect int32, message string, current int64) {
		got := FailureFromProto(&pb.Failure{Code: pb.FailureCode(code), Reason: reason, Effect: pb.Effect(effect), Message: message, Current: current})
		p := FailureToProto(got)
		if _, err := proto.Marshal(p); err != nil {
			t.Fatal(err)
		}
		back := FailureFromProto(p)
		if got.KnownNoEffect() && (known(got.Code) == "" || effect != int32(pb.Effect_EFFECT_NONE) && effect != 0) {
			t.Fatalf("code %d with effect %d proves something", code, effect)
		}
		got.Code = known(got.Code)
		if *back != *got {
			t.Fatalf("%#v became %#v", got, back)
		}
	})
}
