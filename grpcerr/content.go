package grpcerr

import (
	"crypto/sha256"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/confirmexec/confirmexec/contract"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// content stands for what a request asks for. It is compared within one process only, and is not the receiver's digest.
type content struct {
	digest contract.Digest
	known  bool
}

// same is false for what is not known.
func (c content) same(other content) bool { return c.known && c == other }

// metaOf returns a request's meta data; false for a request that has none.
func metaOf(own func(any) (contract.RequestMeta, bool), req any) (contract.RequestMeta, bool) {
	if own != nil {
		return own(req)
	}
	if m, ok := req.(interface{ GetMeta() *pb.RequestMeta }); ok {
		return MetaFromProto(m.GetMeta()), true
	}
	return contract.RequestMeta{}, false
}

// receiptOf returns a reply's receipt, the zero one if it is missing or cannot stand; false for a reply that has no place for one.
func receiptOf(own func(any) (contract.Receipt, bool), reply any) (contract.Receipt, bool) {
	if own != nil && reply != nil {
		return own(reply)
	}
	if m, ok := reply.(interface{ GetReceipt() *pb.Receipt }); ok {
		r, _ := ReceiptFromProto(m.GetReceipt())
		return r, true
	}
	return contract.Receipt{}, false
}

// contentOf is the content of a request: its bytes but for what binds it to a session, since a request that is sent again in
// another session is the same request (R35, R98).
func contentOf(own func(any) (contract.Digest, bool), req any) content {
	if own != nil {
		digest, ok := own(req)
		return content{digest, ok}
	}
	m, ok := req.(proto.Message)
	if !ok {
		return content{}
	}
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(withoutSession(m))
	return content{sha256.Sum256(bytes), err == nil}
}

var metaName = (&pb.RequestMeta{}).ProtoReflect().Descriptor().FullName()

// withoutSession returns a copy of a message without the boot, the session's generation and the epoch in its meta data.
func withoutSession(m proto.Message) proto.Message {
	top := proto.Clone(m).ProtoReflect()
	clearSession(top)
	fields := top.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Kind() == protoreflect.MessageKind && f.Cardinality() != protoreflect.Repeated && top.Has(f) {
			clearSession(top.Mutable(f).Message())
		}
	}
	return top.Interface()
}

func clearSession(m protoreflect.Message) {
	if meta, ok := m.Interface().(*pb.RequestMeta); ok {
		meta.BootId, meta.SessionGeneration, meta.DispatcherEpoch = "", 0, ""
		return
	}
	if d := m.Descriptor(); d.FullName() == metaName { // a message that was made without the generated type
		for _, name := range []protoreflect.Name{"boot_id", "session_generation", "dispatcher_epoch"} {
			m.Clear(d.Fields().ByName(name))
		}
	}
}
