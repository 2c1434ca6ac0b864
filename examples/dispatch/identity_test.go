package dispatch

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/fencing/peer"
	"github.com/confirmexec/confirmexec/grpcerr"
)

// dialAs connects with these credentials.
func dialAs(t *testing.T, address string, c credentials.TransportCredentials) agentv1.AgentServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, append(grpcerr.DialOptions(&grpcerr.ClientConfig{Methods: methods, ReadAttempts: 1}),
		grpc.WithTransportCredentials(c))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return agentv1.NewAgentServiceClient(conn)
}

func filesOf(t *testing.T, s *set, name string) credentialFiles {
	t.Helper()
	files, err := readCredentials(s.authority.file(), s.certs[name])
	require.NoError(t, err)
	return files
}

func bootstrapRequest() *agentv1.GetBootstrapRequest {
	return &agentv1.GetBootstrapRequest{Meta: grpcerr.MetaToProto(contract.RequestMeta{ProtocolVersion: protocolVersion})}
}

// R66, R114: nothing is served without a certificate of the authority, over TLS 1.3, and a client calls the one identity alone.
func TestMutualTLS(t *testing.T) {
	set := newTestSet(t)
	s := newTestStage(t, set)
	s.dispatcher = s.begin(roleDispatcher, roleDispatcher)
	require.NoError(t, s.broken)
	own := filesOf(t, set, roleAgent)
	foreign, err := newAuthority(t.TempDir())
	require.NoError(t, err)
	file, err := foreign.issue("agent", agentURI)
	require.NoError(t, err)
	other, err := readCredentials(set.authority.file(), file)
	require.NoError(t, err)
	bare := own.client(dispatcherURI)
	bare.Certificates = nil
	old := own.client(dispatcherURI)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12

	for name, c := range map[string]struct {
		with credentials.TransportCredentials
		want codes.Code
	}{
		"the agent's":                {credentials.NewTLS(own.client(dispatcherURI)), codes.OK},
		"none":                       {credentials.NewTLS(bare), codes.Unavailable},
		"another authority's":        {credentials.NewTLS(other.client(dispatcherURI)), codes.Unavailable},
		"TLS 1.2":                    {credentials.NewTLS(old), codes.Unavailable},
		"no TLS":                     {insecure.NewCredentials(), codes.Unavailable},
		"a server of another name":   {credentials.NewTLS(own.client(agentURI)), codes.Unavailable},
		"another agent's, and reads": {credentials.NewTLS(filesOf(t, set, "stranger").client(dispatcherURI)), codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := dialAs(t, s.dispatcher.Address, c.with).GetBootstrap(ctx, bootstrapRequest())
			assert.Equal(t, c.want, status.Code(err), "%v", err)
		})
	}
	require.Equal(t, []string{"GetBootstrap", "GetBootstrap"}, s.ask(s.dispatcher, order{Do: "log"}).Lines, "two reached the handler")
}

// R40, R115: neither metadata nor what a request says of its sender makes somebody of a certificate that he is not.
func TestSaysIsNotIdentity(t *testing.T) {
	set := newTestSet(t)
	s := newTestStage(t, set)
	s.ready()
	require.NoError(t, s.broken)
	client := dialAs(t, s.dispatcher.Address, credentials.NewTLS(filesOf(t, set, "stranger").client(dispatcherURI)))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-client-cert", "URI="+agentURI, "agent-id", agentID)
	session := s.ask(s.agent, order{Do: "status"}).Status
	says := grpcerr.MetaToProto(contract.RequestMeta{
		ProtocolVersion: protocolVersion, OperationID: "f-1", IdempotencyKey: "f-1", AgentID: agentID, CellID: cellID, BootID: "boot-1",
		SessionGeneration: session.Generation, DispatcherEpoch: session.Epoch,
	})
	sum := [32]byte{0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41, 0xe4,
		0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55} // of nothing
	_, err := client.ReportExecutionEvent(ctx, &agentv1.ReportExecutionEventRequest{
		Meta: says, FactId: "f-1", Kind: "k", ContentSha256: sum[:],
	})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	says.AgentId, says.OperationId, says.IdempotencyKey = "agent-9", "f-2", "f-2"
	_, err = client.ReportExecutionEvent(ctx, &agentv1.ReportExecutionEventRequest{
		Meta: says, FactId: "f-2", Kind: "k", ContentSha256: sum[:],
	})
	require.ErrorIs(t, err, fencing.ErrNoSession)
	says.IdempotencyKey, says.OperationId = "act", "act"
	_, err = client.ActivateAgent(ctx, &agentv1.ActivateAgentRequest{Meta: says})
	require.ErrorIs(t, err, fencing.ErrNotApproved)
	_, err = client.GetAgentStatus(ctx, &agentv1.GetAgentStatusRequest{Meta: says})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)

	for name, agentServes := range map[string]func(agentv1.AgentServiceClient) error{
		"QueryExecution": func(c agentv1.AgentServiceClient) error {
			_, err := c.QueryExecution(ctx, &agentv1.QueryExecutionRequest{Meta: says, ExecutionId: "e-1"})
			return err
		},
		"GetAgentStatus": func(c agentv1.AgentServiceClient) error {
			_, err := c.GetAgentStatus(ctx, &agentv1.GetAgentStatusRequest{Meta: says})
			return err
		},
	} {
		stranger := dialAs(t, s.agent.Address, credentials.NewTLS(filesOf(t, set, "stranger").client(agentURI)))
		assert.Equal(t, codes.PermissionDenied, status.Code(agentServes(stranger)), name)
	}
	assert.Equal(t, "no_fact", s.ask(s.dispatcher, order{Do: "fact", Source: ofAgent, Fact: "f-1"}).word())
	assert.NotEqual(t, "error", s.ask(s.dispatcher, order{Do: "agent_status"}).word())
}

// R17, R30: a version that nobody speaks, and a mutation without a key, are refused before the handler. Each side serves its own
// part alone, and a caller is not told that the other part was not executed: UNIMPLEMENTED is anybody's word.
func TestRefusedBeforeHandlers(t *testing.T) {
	set := newTestSet(t)
	s := newTestStage(t, set)
	s.ready()
	require.NoError(t, s.broken)
	client := dialAs(t, s.agent.Address, credentials.NewTLS(filesOf(t, set, roleDispatcher).client(agentURI)))
	meta := contract.RequestMeta{ProtocolVersion: "agent.v1", OperationID: "op", IdempotencyKey: "op"}
	_, err := client.Execute(t.Context(), &agentv1.ExecuteRequest{Meta: grpcerr.MetaToProto(meta)})
	require.ErrorIs(t, err, contract.ErrUnsupportedVersion)
	meta.ProtocolVersion, meta.IdempotencyKey, meta.OperationID = protocolVersion, "", "op-2"
	_, err = client.Execute(t.Context(), &agentv1.ExecuteRequest{Meta: grpcerr.MetaToProto(meta)})
	require.ErrorIs(t, err, contract.ErrInvalid)
	_, err = client.GetBootstrap(t.Context(), bootstrapRequest())
	require.Equal(t, codes.Unimplemented, status.Code(err))
	require.NotErrorIs(t, err, contract.ErrInvalid)
}

// R30, A7: the two keys of an activation are one, and so are a fact's id and its operation's.
func TestTwoKeysAreOne(t *testing.T) {
	set := newTestSet(t)
	s := newTestStage(t, set)
	s.ready()
	session := s.ask(s.agent, order{Do: "status"}).Status
	require.NoError(t, s.broken)
	client := dialAs(t, s.dispatcher.Address, credentials.NewTLS(filesOf(t, set, roleAgent).client(dispatcherURI)))
	meta := contract.RequestMeta{
		ProtocolVersion: protocolVersion, OperationID: "op-1", IdempotencyKey: "key-1", AgentID: agentID, CellID: cellID, BootID: "boot-1",
		SessionGeneration: session.Generation, DispatcherEpoch: session.Epoch,
	}
	refused := func(err error, path string) {
		t.Helper()
		require.ErrorIs(t, err, contract.ErrInvalid)
		require.Contains(t, fmt.Sprint(contract.FailureOf(err)), path)
	}
	_, err := client.ActivateAgent(t.Context(), &agentv1.ActivateAgentRequest{Meta: grpcerr.MetaToProto(meta)})
	refused(err, "/meta/idempotency_key")
	sum := sha256.Sum256(nil)
	fact := &agentv1.ReportExecutionEventRequest{Meta: grpcerr.MetaToProto(meta), FactId: "f-1", Kind: "k", ContentSha256: sum[:]}
	_, err = client.ReportExecutionEvent(t.Context(), fact)
	refused(err, "/meta/operation_id")
	assert.Equal(t, "no_fact", s.ask(s.dispatcher, order{Do: "fact", Source: ofAgent, Fact: "f-1"}).word())
	assert.Equal(t, int64(1), s.ask(s.agent, order{Do: "status"}).Status.Generation)

	fact.Meta.OperationId = "f-1"
	_, err = client.ReportExecutionEvent(t.Context(), fact)
	require.NoError(t, err, "the same with an operation of its own id")
	meta.OperationID = meta.IdempotencyKey
	_, err = client.ActivateAgent(t.Context(), &agentv1.ActivateAgentRequest{Meta: grpcerr.MetaToProto(meta)})
	require.NoError(t, err, "the same with one key")
}

// R19: the receipt of a close that is ACCEPTED was committed before the reply: the agent dies between the two, and its database has
// it. The calls have ended with the process, so that the next session applies it, under the same operation. When it dies before the
// commit, there is nothing.
func TestAcceptedBeforeReply(t *testing.T) {
	set := newTestSet(t)
	for when, want := range map[string][2]string{before: {"no_mutation", "applied"}, after: {"accepted, replayed", "applied, replayed"}} {
		t.Run(when, func(t *testing.T) {
			s := newTestStage(t, set)
			s.ready()
			s.applied("a call that lasts", s.issue("e-1", "+49301hold"))
			closing := order{Do: "admission", Op: "op-c", Barrier: "b-c", Expected: 2, Raw: true}
			s.ask(s.agent, order{Do: "arm", At: 1, When: when})
			s.dying = s.agent
			told := s.ask(s.dispatcher, closing)
			s.expect(told.Receipt == nil && told.Failure != nil && told.Failure.Effect == contract.EffectUnknown.String(),
				"the dispatcher was told %+v", told)
			s.expect(s.diesOf(1, 1000), "the agent did not die")
			s.restartAgent()
			s.want("what its database has", want[0], s.ask(s.agent, order{Do: "barrier", Barrier: "b-c"}))
			s.applied("a new session", s.activate())
			s.want("the same again", want[1], s.ask(s.dispatcher, closing))
			require.NoError(t, s.broken)
			assert.Empty(t, s.differences)
		})
	}
}

// R115: a context without a verified connection has no identity, whatever else is in it.
func TestNoPeerNoIdentity(t *testing.T) {
	for name, ctx := range map[string]context.Context{
		"no peer":  context.Background(),
		"no TLS":   grpcpeer.NewContext(context.Background(), &grpcpeer.Peer{}),
		"metadata": metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-forwarded-client-cert", "URI="+agentURI)),
		"no chain": grpcpeer.NewContext(context.Background(), &grpcpeer.Peer{AuthInfo: credentials.TLSInfo{}}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := authenticated(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, nil })
			require.ErrorIs(t, err, peer.ErrUnverified)
			assert.Empty(t, caller(ctx).URI)
		})
	}
}

// R24, R31: the same operation and key of another approved agent are another operation: it gets nothing of the first one's.
func TestAgentsAreApart(t *testing.T) {
	set := newTestSet(t)
	s := newTestStage(t, set)
	cfg := s.config(roleDispatcher, roleDispatcher)
	cfg.Approved = []string{agentURI, strangerURI}
	d, err := start(t.Context(), roleDispatcher, cfg)
	require.NoError(t, err)
	s.dispatcher, s.children = d, append(s.children, d)
	s.agent = s.begin(roleAgent, roleAgent)
	s.introduce()
	s.applied("activation", s.activate())
	second := s.config(roleAgent, "stranger")
	second.Tenant, second.Database = second.Tenant+"-9", second.Database+"-9"
	other, err := start(t.Context(), "stranger", second)
	require.NoError(t, err)
	s.children = append(s.children, other)
	s.ask(other, order{Do: "connect", Address: d.Address})
	s.applied("the same operation of another agent", s.ask(other, order{Do: "activate", Op: "activate-1"}))

	s.ask(d, order{Do: "connect", Address: s.agent.Address})
	s.applied("opening", s.ask(d, order{Do: "admission", Op: "op-open", Barrier: "b-open", Expected: 1, Open: true}))
	s.applied("issued", s.issue("e-7", "+49301"))
	granted := s.applied("a grant", s.ask(s.agent, order{
		Do: "request_upload", Op: "u-1", Execution: "e-7", Content: "audio", Target: set.target.prefix,
	}))
	complete := order{Do: "complete_upload", Op: "d-1", Upload: granted.receipt().Ref, Content: "audio", Raw: true}
	s.want("the other's upload", "no_upload", s.ask(other, complete))
	put := order{Do: "put", Target: granted.Text, Content: "audio"}
	s.expect(s.ask(other, put).Count == 403, "the other agent could put to the place")
	s.expect(s.ask(s.agent, put).Count == 201, "the agent could not put to the place that it was granted")
	s.applied("by its own agent", s.ask(s.agent, complete))
	s.want("the other's, when it is completed", "no_upload", s.ask(other, complete))
	complete.Op = "d-2"
	s.want("under another operation", "no_upload", s.ask(other, complete))

	s.want("reserve", "ok", s.ask(d, order{Do: "reserve", Reservation: "line-1/1"}))
	permit := order{Do: "permit", Op: "p-1", Reservation: "line-1/1", Execution: "e-1", Expected: 1, Raw: true}
	first := s.applied("a permit", s.ask(s.agent, permit))
	told := s.want("the same request of another agent", "permit_issued", s.ask(other, permit))
	permit.Op, permit.Execution, permit.Expected = "p-2", "e-2", 2
	s.want("its own execution, with the other's reservation", "not_approved", s.ask(other, permit))
	require.NoError(t, s.broken)
	assert.Empty(t, s.differences)
	assert.NotEmpty(t, first.Text)
	assert.Empty(t, told.Text)
	assert.Nil(t, told.Receipt)
}
