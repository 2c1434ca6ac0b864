package grpcerr_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// answers makes the handler fail with each of these in turn, and then succeed.
func (l *link) answers(errs ...error) {
	var n atomic.Int64
	l.handle = func(context.Context, *request) (*answer, error) {
		if i := int(n.Add(1)); i <= len(errs) {
			return nil, errs[i-1]
		}
		return receipt(contract.ResultApplied), nil
	}
}

// enforced checks what may be done after the receiver answered with the code: the demanded action lets the same operation out once
// where again says so for the method, and nothing else ever does.
func enforced(t *testing.T, code contract.FailureCode, action contract.Action, again bool) {
	t.Helper()
	for _, method := range []string{change, apply} {
		l := newLink(t, setup{})
		l.answers(&contract.Failure{Code: code, Message: "no"})
		_, err := l.call(l.ctx(), method, operation("op"))
		e := failed(t, err)
		assert.Equal(t, contract.Answered, e.Delivery)
		assert.Equal(t, action, e.Decision.Action)
		assert.Equal(t, again && method == apply, e.Decision.SameOperation)
		l.refused(e)
		for _, other := range contract.RetryTable() {
			if other.Action != action {
				_, err := l.call(grpcerr.WithActionDone(l.ctx(), other.Action), method, operation("op"))
				assert.ErrorIs(t, err, grpcerr.ErrNotResent, "%s is not what was asked for", other.Action)
			}
		}
		assert.EqualValues(t, 1, l.runs.Load())
		_, err = l.call(grpcerr.WithActionDone(l.ctx(), action), method, operation("op"))
		if again && method == apply {
			require.NoError(t, err)
			assert.EqualValues(t, 2, l.runs.Load())
			continue
		}
		assert.ErrorIs(t, err, grpcerr.ErrNotResent)
		assert.EqualValues(t, 1, l.runs.Load())
	}
}

// R5: what was not valid is never sent unchanged; other content needs a new operation.
func TestInvalidArgumentIsNotResent(t *testing.T) {
	enforced(t, contract.InvalidArgument, contract.FixRequest, false)
	l := newLink(t, setup{})
	l.answers(contract.ErrInvalid)
	e := failed(t, l.mutate(l.ctx()))
	fixed := operation("op")
	fixed.CellId = "cell 2"
	_, err := l.call(l.ctx(), change, fixed)
	assert.ErrorIs(t, err, grpcerr.ErrContentChanged)
	assert.ErrorIs(t, err, grpcerr.ErrNotResent)
	assert.Equal(t, e.Decision, failed(t, err).Decision)
	fixed.OperationId = "op 2"
	_, err = l.call(l.ctx(), change, fixed)
	require.NoError(t, err)
}

// R6: a session that was established again does not bring business work back.
func TestUnauthenticatedIsNotResent(t *testing.T) {
	enforced(t, contract.Unauthenticated, contract.Reauthenticate, false)
}

// R7: what was denied is stopped.
func TestPermissionDeniedIsNotResent(t *testing.T) {
	enforced(t, contract.PermissionDenied, contract.StopAndAuthorize, false)
}

// R8: after a failed precondition the state is read again first, and the method has to allow the same operation.
func TestFailedPreconditionAsksForRefresh(t *testing.T) {
	enforced(t, contract.FailedPrecondition, contract.RefreshState, true)
}

// R9: an aborted operation is neither applied nor failed, and is not sent again.
func TestAbortedIsNotResent(t *testing.T) {
	enforced(t, contract.Aborted, contract.RereadRevision, false)
	l := newLink(t, setup{})
	l.answers(&contract.Failure{Code: contract.Aborted, Message: "moved"})
	assert.Equal(t, contract.EffectUnknown, failed(t, l.mutate(l.ctx())).Decision.Effect)
}

// R10: what lacked a resource waits for its release, which is an event and not a timer.
func TestResourceExhaustedAsksForRelease(t *testing.T) {
	enforced(t, contract.ResourceExhausted, contract.AwaitRelease, true)
}

// R11: without the receiver's envelope it is not known whose limit it was.
func TestBareResourceExhaustedIsUnknown(t *testing.T) {
	l := newLink(t, setup{plainServer: true})
	l.answers(status.Error(codes.ResourceExhausted, "quota"))
	e := failed(t, l.mutate(l.ctx()))
	assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, e.Decision)
	l.refused(e)
}

// R12: what was unavailable is reconciled first.
func TestUnavailableAsksForReconciliation(t *testing.T) {
	enforced(t, contract.Unavailable, contract.Reconcile, true)
}

// R13: a deadline that is over says nothing about the operation.
func TestDeadlineExceededIsUnknown(t *testing.T) {
	enforced(t, contract.DeadlineExceeded, contract.TreatAsUnknown, true)
}

// R14: nothing takes the place of what was not found.
func TestNotFoundIsNotResent(t *testing.T) {
	enforced(t, contract.NotFound, contract.DoNotSubstitute, false)
}

// R15: what exists is read, and no second one is made.
func TestAlreadyExistsIsNotResent(t *testing.T) {
	enforced(t, contract.AlreadyExists, contract.ReadExisting, false)
}

// An action that was done is good for one send, whichever layer sends.
func TestActionIsDoneOnce(t *testing.T) {
	l := newLink(t, setup{})
	l.answers(contract.ErrUnavailable, contract.ErrUnavailable)
	_, err := l.call(l.ctx(), apply, operation("op"))
	require.Error(t, err)
	ctx := grpcerr.WithActionDone(l.ctx(), contract.Reconcile)
	_, err = l.call(ctx, apply, operation("op"))
	assert.NotErrorIs(t, err, grpcerr.ErrNotResent)
	_, err = l.call(ctx, apply, operation("op"))
	assert.ErrorIs(t, err, grpcerr.ErrNotResent)
	assert.EqualValues(t, 2, l.runs.Load())
}

// An unknown outcome stays unknown whatever a later send is told: that nothing happened, is about the later one (couchdb#3569).
func TestUnknownStaysUnknown(t *testing.T) {
	reconcile := func(same bool) contract.Decision {
		return contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown, SameOperation: same}
	}
	for name, c := range map[string]struct {
		later error
		opts  []grpc.CallOption
		want  contract.Decision
	}{
		"a definite refusal that may be sent again": {later: contract.ErrStale, want: reconcile(true)},
		"a definite refusal that may not":           {later: contract.ErrInvalid, want: reconcile(false)},
		"an answer that nothing happened":           {later: &contract.Failure{Code: contract.Unavailable, Effect: contract.EffectNone}, want: reconcile(true)},
		"it was never sent":                         {opts: []grpc.CallOption{grpc.MaxCallSendMsgSize(8)}, want: reconcile(true)},
		"an answer that knows as little, and more about what to do": {later: contract.ErrInProgress,
			want: contract.Decision{Action: contract.ReadExisting, Effect: contract.EffectUnknown}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, setup{})
			l.answers(contract.ErrUnavailable, c.later)
			_, err := l.call(l.ctx(), apply, operation("op"))
			require.Equal(t, reconcile(true), failed(t, err).Decision)
			_, err = l.call(grpcerr.WithActionDone(l.ctx(), contract.Reconcile), apply, operation("op"), c.opts...)
			e := failed(t, err)
			assert.NotErrorIs(t, err, grpcerr.ErrNotResent)
			assert.Equal(t, c.want, e.Decision)
			f, ok := contract.FailureOf(err)
			assert.True(t, ok)
			assert.False(t, f.KnownNoEffect())
			l.refused(e)
		})
	}
}

// A receipt that is not terminal is a success of the call, and the operation is queried before it is sent again (R22); a terminal
// one ends what has to be remembered.
func TestReceiptsInTheBook(t *testing.T) {
	for _, result := range contract.ResultCodes() {
		l := newLink(t, setup{})
		l.handle = func(context.Context, *request) (*answer, error) { return receipt(result), nil }
		a, err := l.call(l.ctx(), apply, operation("op"))
		require.NoError(t, err)
		assert.Equal(t, "RESULT_CODE_"+string(result), a.GetResult().String())
		_, err = l.call(l.ctx(), apply, operation("op"))
		assert.Equal(t, !result.Terminal(), err != nil, "%s: %v", result, err)
		_, err = l.call(grpcerr.WithActionDone(l.ctx(), contract.Reconcile), apply, operation("op"))
		assert.NoError(t, err)
	}
}

// R29: of many sends of one operation at once, one goes out.
func TestConcurrentSends(t *testing.T) {
	l := newLink(t, setup{})
	hold := make(chan struct{})
	l.handle = func(context.Context, *request) (*answer, error) {
		<-hold
		return receipt(contract.ResultApplied), nil
	}
	var group sync.WaitGroup
	var refused atomic.Int64
	ctx := l.ctx()
	for range 50 {
		group.Go(func() {
			if err := l.mutate(ctx); err != nil {
				assert.ErrorIs(t, err, grpcerr.ErrNotResent)
				if refused.Add(1) == 49 {
					close(hold)
				}
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 49, refused.Load())
	assert.EqualValues(t, 1, l.runs.Load())
}

// R35, R98: a request that is sent again in another session is the same request; any other difference is other content.
func TestContent(t *testing.T) {
	for field, c := range map[string]struct {
		change func(m *pb.RequestMeta)
		same   bool
	}{
		"session_generation": {func(m *pb.RequestMeta) { m.SessionGeneration++ }, true},
		"dispatcher_epoch":   {func(m *pb.RequestMeta) { m.DispatcherEpoch = "epoch 2" }, true},
		"boot_id":            {func(m *pb.RequestMeta) { m.BootId = "boot 2" }, true},
		"cell_id":            {func(m *pb.RequestMeta) { m.CellId = "cell 2" }, false},
		"idempotency_key":    {func(m *pb.RequestMeta) { m.IdempotencyKey = "other" }, false},
		"protocol_version":   {func(m *pb.RequestMeta) { m.ProtocolVersion = "2" }, false},
		"an unknown field":   {func(m *pb.RequestMeta) { m.ProtoReflect().SetUnknown([]byte{0xa0, 0x06, 0x01}) }, false},
	} {
		l := newLink(t, setup{})
		_, err := l.call(l.ctx(), apply, operation("op"), grpc.MaxCallSendMsgSize(8))
		require.Equal(t, contract.NeverSent, failed(t, err).Delivery)
		other := operation("op")
		c.change(other.RequestMeta)
		_, err = l.call(l.ctx(), apply, other)
		if c.same {
			assert.NoError(t, err, field)
			continue
		}
		assert.ErrorIs(t, err, grpcerr.ErrContentChanged, field)
		assert.Zero(t, l.runs.Load())
	}
}

// An operation is its method, its agent and its id.
func TestOperationsAreApart(t *testing.T) {
	l := newLink(t, setup{})
	l.answers(contract.ErrUnavailable)
	require.Error(t, l.mutate(l.ctx()))
	_, err := l.call(l.ctx(), apply, operation("op"))
	assert.NoError(t, err)
	other := operation("op")
	other.AgentId = "agent 8"
	_, err = l.call(l.ctx(), change, other)
	assert.NoError(t, err)
	_, err = l.call(l.ctx(), change, operation("op 2"))
	assert.NoError(t, err)
	assert.ErrorIs(t, l.mutate(l.ctx()), grpcerr.ErrNotResent)
}

// R85: what is processed on every delivery and has no operation id is not remembered.
func TestRedeliveredWithoutOperation(t *testing.T) {
	l := newLink(t, setup{})
	l.answers(contract.ErrUnavailable)
	_, err := l.call(l.ctx(), redo, operation(""))
	require.Error(t, err)
	_, err = l.call(l.ctx(), redo, operation(""))
	require.NoError(t, err)
	assert.EqualValues(t, 2, l.runs.Load())
}

// The book is bounded: the operation that was used longest ago is forgotten.
func TestBookIsBounded(t *testing.T) {
	l := newLink(t, setup{client: &grpcerr.ClientConfig{Methods: methods(), Operations: 2}})
	l.handle = func(context.Context, *request) (*answer, error) { return nil, contract.ErrUnavailable }
	send := func(n int) error {
		_, err := l.call(l.ctx(), change, operation("op "+strconv.Itoa(n)))
		return err
	}
	for n := range 3 {
		assert.NotErrorIs(t, send(n), grpcerr.ErrNotResent)
	}
	assert.ErrorIs(t, send(2), grpcerr.ErrNotResent)
	assert.ErrorIs(t, send(1), grpcerr.ErrNotResent)
	assert.NotErrorIs(t, send(0), grpcerr.ErrNotResent)
	assert.ErrorIs(t, send(1), grpcerr.ErrNotResent)
	assert.NotErrorIs(t, send(2), grpcerr.ErrNotResent)
}

// Requests and replies of a service's own types are read by its own functions.
func TestOwnTypes(t *testing.T) {
	var content atomic.Value
	content.Store("a")
	l := newLink(t, setup{client: &grpcerr.ClientConfig{
		Methods: methods(),
		Meta:    func(any) (contract.RequestMeta, bool) { return contract.RequestMeta{OperationID: "own"}, true },
		Receipt: func(any) (contract.Receipt, bool) { return contract.Receipt{}, true },
		Content: func(any) (contract.Digest, bool) {
			return contract.NewContent(apply).Text("what", content.Load().(string)).Digest(), true
		},
	}})
	_, err := l.call(l.ctx(), apply, operation("op 1"))
	assert.ErrorIs(t, err, contract.ErrOutcomeUnknown)
	_, err = l.call(l.ctx(), apply, operation("op 2"))
	assert.ErrorIs(t, err, grpcerr.ErrNotResent)
	content.Store("b")
	_, err = l.call(grpcerr.WithActionDone(l.ctx(), contract.Reconcile), apply, operation("op 1"))
	assert.ErrorIs(t, err, grpcerr.ErrContentChanged)
	assert.EqualValues(t, 1, l.runs.Load())
}

// Where two sends of one operation are under way, what the later answer allows does not undo what the earlier one forbade.
func TestConcurrentAnswers(t *testing.T) {
	l := newLink(t, setup{})
	first, hold := make(chan struct{}), make(chan struct{})
	var n atomic.Int64
	l.handle = func(context.Context, *request) (*answer, error) {
		if n.Add(1) > 1 {
			return nil, contract.ErrInvalid
		}
		close(first)
		<-hold
		return nil, contract.ErrStale
	}
	ctx, ended := l.ctx(), make(chan error, 1)
	go func() {
		_, err := l.call(ctx, apply, operation("op"))
		ended <- err
	}()
	<-first
	_, err := l.call(grpcerr.WithActionDone(ctx, contract.Reconcile), apply, operation("op"))
	assert.ErrorIs(t, err, contract.ErrInvalid)
	assert.Equal(t, contract.Decision{Action: contract.Reconcile, Effect: contract.EffectUnknown}, failed(t, err).Decision)
	close(hold)
	e := failed(t, <-ended)
	assert.Equal(t, contract.EffectNone, e.Decision.Effect, "both have done nothing")
	assert.False(t, e.Decision.SameOperation)
	_, err = l.call(grpcerr.WithActionDone(ctx, e.Decision.Action), apply, operation("op"))
	assert.ErrorIs(t, err, grpcerr.ErrNotResent)
	assert.EqualValues(t, 2, l.runs.Load())
}

// R98: the same of a message that has the meta data in a field, made without generated code.
func TestContentOfMessageWithMeta(t *testing.T) {
	kind := dynamicRequest(t)
	l := newLink(t, setup{client: &grpcerr.ClientConfig{
		Meta: func(any) (contract.RequestMeta, bool) { return contract.RequestMeta{OperationID: "op"}, true },
	}})
	send := func(generation int64, what string) *grpcerr.CallError {
		m := dynamicpb.NewMessage(kind)
		fields := kind.Fields()
		meta := m.Mutable(fields.ByName("meta")).Message()
		meta.Set(meta.Descriptor().Fields().ByName("session_generation"), protoreflect.ValueOfInt64(generation))
		m.Set(fields.ByName("what"), protoreflect.ValueOfString(what))
		_, err := l.call(l.ctx(), apply, m, grpc.MaxCallSendMsgSize(1))
		return failed(t, err)
	}
	assert.Equal(t, contract.NeverSent, send(1, "this").Delivery)
	assert.NotErrorIs(t, send(2, "this"), grpcerr.ErrContentChanged)
	assert.ErrorIs(t, send(1, "that"), grpcerr.ErrContentChanged)
}

// The same message has many encodings, and one content.
func TestContentOfManyEncodings(t *testing.T) {
	l := newLink(t, setup{client: &grpcerr.ClientConfig{
		Meta: func(any) (contract.RequestMeta, bool) { return contract.RequestMeta{OperationID: "op"}, true },
	}})
	for range 3 {
		_, err := l.call(l.ctx(), apply, manyEncodings(t), grpc.MaxCallSendMsgSize(8))
		assert.Equal(t, contract.NeverSent, failed(t, err).Delivery)
		assert.NotErrorIs(t, err, grpcerr.ErrContentChanged)
	}
}

// dynamicRequest is a message with meta data and a text.
func dynamicRequest(t *testing.T) protoreflect.MessageDescriptor {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{
			Name: &name, Number: &number, Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}
	}
	meta := field("meta", 1, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	meta.TypeName = new("." + string((&pb.RequestMeta{}).ProtoReflect().Descriptor().FullName()))
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("desk.proto"), Package: new("desk.v1"), Syntax: new("proto3"),
		Dependency: []string{pb.File_confirmexec_v1_request_meta_proto.Path()},
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("Request"), Field: []*descriptorpb.FieldDescriptorProto{
			meta, field("what", 2, descriptorpb.FieldDescriptorProto_TYPE_STRING),
		}}},
	}, protoregistry.GlobalFiles)
	require.NoError(t, err)
	return file.Messages().Get(0)
}

// textRequest is not a message of protobuf's.
type textRequest string

func (textRequest) GetMeta() *pb.RequestMeta { return operation("op").RequestMeta }

// Of a request whose content cannot be read nobody knows that it is the same.
func TestContentThatCannotBeRead(t *testing.T) {
	l := newLink(t, setup{})
	_, err := l.call(l.ctx(), apply, textRequest("a"))
	assert.Equal(t, contract.NeverSent, failed(t, err).Delivery)
	_, err = l.call(l.ctx(), apply, textRequest("a"))
	assert.ErrorIs(t, err, grpcerr.ErrContentChanged)
}
