package dispatch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/grpcerr"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// meta is that of a request to the dispatcher: the operation, and the session that this process believes to have.
func (a *agent[TTx]) meta(operation string) *pb.RequestMeta {
	s := a.dispatcher()
	return grpcerr.MetaToProto(contract.RequestMeta{
		ProtocolVersion: protocolVersion, OperationID: operation, IdempotencyKey: operation,
		AgentID: agentOf(a.files.identity()), CellID: cellID, BootID: a.cfg.Boot, SessionGeneration: s.Says.Generation,
		DispatcherEpoch: string(s.Epoch),
	})
}

// activate asks for a session and joins it, unless it is history (R36, R37, R39).
func (a *agent[TTx]) activate(ctx context.Context, o order) (answer, error) {
	remote, done, err := a.remote(o.Raw)
	if err != nil {
		return answer{}, err
	}
	defer done()
	q := &agentv1.ActivateAgentRequest{Meta: a.meta(o.Op)}
	if o.Boot != "" {
		q.Meta.BootId = o.Boot
	}
	if o.Cell != "" {
		q.Meta.CellId = o.Cell
	}
	reply, err := remote.ActivateAgent(again(ctx, o), q)
	if err != nil {
		return answer{}, err
	}
	told, err := received(reply.GetReceipt())
	told.Flag, told.Text = reply.GetSuperseded(), reply.GetDispatcherEpoch()
	if err != nil || reply.GetSuperseded() {
		return told, err
	}
	given := fencing.Session{
		Binding: fencing.Binding{AgentID: agentID, CellID: cellID, BootID: q.GetMeta().GetBootId(), Generation: told.Receipt.After},
		Epoch:   fencing.Epoch(reply.GetDispatcherEpoch()),
	}
	return told, a.join(ctx, given)
}

// permit asks for the permit of an execution, and keeps what it is told of those before it.
func (a *agent[TTx]) permit(ctx context.Context, o order) (answer, error) {
	remote, done, err := a.remote(o.Raw)
	if err != nil {
		return answer{}, err
	}
	defer done()
	reply, err := remote.GetExecutionPermit(again(ctx, o), &agentv1.GetExecutionPermitRequest{
		Meta: a.meta(o.Op), ReservationId: o.Reservation, ExecutionId: o.Execution, ExpectedRevision: o.Expected,
	})
	if err != nil {
		return answer{}, err
	}
	if err := a.endPermits(ctx, reply.GetPermit()); err != nil {
		return answer{}, err
	}
	told, err := received(reply.GetReceipt())
	told.Text, told.Count, told.Flag = reply.GetPermit().GetPermitId(), reply.GetPermit().GetFencingToken(), reply.GetVoid()
	return told, err
}

// report queues a fact of the agent's own, and publishes what is queued. Its id is the same in whatever session it is sent (R98).
func (a *agent[TTx]) report(ctx context.Context, o order) (answer, error) {
	err := a.tx(ctx, func(ctx context.Context, tx TTx) error {
		_, err := a.broker.QueueFact(ctx, tx, broker.Fact{
			Tenant: a.cfg.Tenant, Source: agentID, ID: o.Fact, Kind: o.Kind, Content: []byte(o.Content),
		})
		return err
	})
	if err != nil {
		return answer{}, err
	}
	return a.publish(ctx, o)
}

// publish sends what is queued, in order, at least once each. The dispatcher's receipt is the confirmation.
func (a *agent[TTx]) publish(ctx context.Context, o order) (told answer, err error) {
	n, err := a.broker.PublishFacts(ctx, a.cfg.Tenant, agentID, func(ctx context.Context, f broker.QueuedFact) (err error) {
		sent := o
		sent.Fact, sent.Kind, sent.Content = f.ID, f.Kind, string(f.Content)
		told, err = a.sendFact(ctx, sent)
		if err == nil {
			err = told.Receipt.Err()
		}
		return err
	})
	told.Count = int64(n)
	return told, err
}

// sendFact sends one fact, past the outbox.
func (a *agent[TTx]) sendFact(ctx context.Context, o order) (answer, error) {
	remote, done, err := a.remote(true) // a fact may be sent any number of times
	if err != nil {
		return answer{}, err
	}
	defer done()
	sum := sha256.Sum256([]byte(o.Content))
	if o.Sum != "" {
		sum = sha256.Sum256([]byte(o.Sum))
	}
	reply, err := remote.ReportExecutionEvent(ctx, &agentv1.ReportExecutionEventRequest{
		Meta: a.meta(o.Fact), FactId: o.Fact, Kind: o.Kind, Content: []byte(o.Content), ContentSha256: sum[:],
	})
	if err != nil {
		return answer{}, err
	}
	return received(reply.GetReceipt())
}

// requestUpload asks where to put an asset, and tells its size and checksum alone (R104).
func (a *agent[TTx]) requestUpload(ctx context.Context, o order) (answer, error) {
	remote, done, err := a.remote(o.Raw)
	if err != nil {
		return answer{}, err
	}
	defer done()
	sum := sha256.Sum256([]byte(o.Content))
	reply, err := remote.RequestUpload(again(ctx, o), &agentv1.RequestUploadRequest{
		Meta: a.meta(o.Op), ExecutionId: o.Execution, AssetSha256: sum[:], AssetSize: int64(len(o.Content)), Target: o.Target,
	})
	if err != nil {
		return answer{}, err
	}
	told, err := received(reply.GetReceipt())
	told.Text = reply.GetGrant().GetUrl()
	return told, err
}

// put puts an asset straight to the target, by the grant. Its success is no recording.uploaded.
func (a *agent[TTx]) put(ctx context.Context, o order) (answer, error) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: a.files.client(dispatcherURI + "/uploads")}}
	defer client.CloseIdleConnections()
	q, err := http.NewRequestWithContext(ctx, http.MethodPut, o.Target, bytes.NewReader([]byte(o.Content)))
	if err != nil {
		return answer{}, fmt.Errorf("put: %w", err)
	}
	begun := time.Now()
	reply, err := client.Do(q)
	if err != nil {
		return answer{}, fmt.Errorf("put: %w", err)
	}
	a.cfg.Trace.call(event{From: roleAgent, To: "target", What: "PUT", Said: reply.Status}, begun)
	return answer{Count: int64(reply.StatusCode)}, reply.Body.Close()
}

// completeUpload says that the asset is where it was to be put.
func (a *agent[TTx]) completeUpload(ctx context.Context, o order) (answer, error) {
	remote, done, err := a.remote(o.Raw)
	if err != nil {
		return answer{}, err
	}
	defer done()
	sum := sha256.Sum256([]byte(o.Content))
	reply, err := remote.CompleteUpload(again(ctx, o), &agentv1.CompleteUploadRequest{
		Meta: a.meta(o.Op), UploadId: o.Upload, AssetSha256: sum[:],
	})
	if err != nil {
		return answer{}, err
	}
	return received(reply.GetReceipt())
}

// bootstrap asks what to begin with; it needs no session.
func (a *agent[TTx]) bootstrap(ctx context.Context, _ order) (answer, error) {
	remote, done, err := a.remote(false)
	if err != nil {
		return answer{}, err
	}
	defer done()
	reply, err := remote.GetBootstrap(ctx, &agentv1.GetBootstrapRequest{Meta: a.meta("")})
	return answer{Text: reply.GetDispatcherEpoch(), Lines: reply.GetProtocolVersions()}, err
}

// status asks the dispatcher how the agent's session stands.
func (a *agent[TTx]) status(ctx context.Context, _ order) (answer, error) {
	remote, done, err := a.remote(false)
	if err != nil {
		return answer{}, err
	}
	defer done()
	reply, err := remote.GetAgentStatus(ctx, &agentv1.GetAgentStatusRequest{Meta: a.meta("")})
	return answer{Status: standsAs(reply)}, err
}
