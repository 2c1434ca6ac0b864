package dispatch

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/store"
)

// ErrTarget is the refusal of a target that is not approved (R106).
var ErrTarget = &contract.Failure{
	Code: contract.PermissionDenied, Reason: "example.dispatch.target", Effect: contract.EffectNone,
	Message: "the target is not an approved one; nothing was granted",
}

// ErrChecksum is the refusal of a completion whose asset is not the one that the upload is for (R103).
var ErrChecksum = &contract.Failure{
	Code: contract.Aborted, Reason: "example.dispatch.checksum", Effect: contract.EffectNone,
	Message: "the upload is for another asset; nothing was done",
}

// ErrNoUpload is the answer about an upload that was never requested, and about another agent's (R31).
var ErrNoUpload = &contract.Failure{
	Code: contract.NotFound, Reason: "example.dispatch.no_upload", Effect: contract.EffectNone, Message: "no such upload was requested",
}

// upload is what the dispatcher knows of an asset: never a byte of it (R104).
type upload struct {
	AgentID     string `json:"agent_id"` // who was granted it
	ExecutionID string `json:"execution_id"`
	AssetSHA256 string `json:"asset_sha256"`
	AssetSize   int64  `json:"asset_size"`
	URL         string `json:"url"`
	Queued      bool   `json:"queued"` // its recording.uploaded is in the outbox
}

func (d *dispatcher[TTx]) uploadID(id string) store.ValueID {
	return store.ValueID{Tenant: d.cfg.Tenant, Name: "upload/" + id}
}

// RequestUpload grants one place at an approved target for an asset of an execution that the agent was given. Upload id and checksum
// are durable, and a repeated request is told the same ones (R99, R106).
func (d *dispatcher[TTx]) RequestUpload(ctx context.Context, q *agentv1.RequestUploadRequest) (*agentv1.RequestUploadResponse, error) {
	if len(q.GetAssetSha256()) != 32 || q.GetAssetSize() <= 0 {
		return nil, &contract.InvalidError{Path: "/asset_sha256", Problem: "must be 32 bytes, of an asset of some size"}
	}
	sum := hex.EncodeToString(q.GetAssetSha256())
	m, _ := d.mutation(ctx, "RequestUpload", metaOf(q), contract.NewContent("RequestUpload").Text("execution_id", q.GetExecutionId()).
		Text("asset_sha256", sum).Int("asset_size", q.GetAssetSize()).Text("target", q.GetTarget()))
	m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
		values := d.store.Values(tx)
		made, err := d.decided(ctx, values, q.GetExecutionId())
		switch {
		case err != nil:
			return contract.Receipt{}, err
		case made.Verdict != issued || made.AgentID != m.AgentID:
			return contract.Receipt{}, fencing.ErrNotApproved
		case !slices.Contains(d.cfg.Targets, q.GetTarget()):
			return contract.Receipt{}, ErrTarget
		}
		id := rand.Text()
		u := upload{AgentID: m.AgentID, ExecutionID: q.GetExecutionId(), AssetSHA256: sum, AssetSize: q.GetAssetSize()}
		u.URL = q.GetTarget() + id
		after, err := d.putUpload(ctx, values, id, 0, u)
		return contract.Receipt{Result: contract.ResultApplied, After: after, Ref: id}, err
	}
	r, err := d.broker.Mutate(ctx, *m)
	receipt, err := answered(r, err)
	if err != nil {
		return nil, err
	}
	grant := &agentv1.UploadGrant{UploadId: r.Ref}
	err = d.look(ctx, func(ctx context.Context, values store.Values) error {
		u, _, err := d.getUpload(ctx, values, m.AgentID, r.Ref)
		grant.Url = u.URL + grantQuery + grantOf(d.cfg.GrantKey, u.AgentID, r.Ref, u.AssetSHA256)
		return err
	})
	return &agentv1.RequestUploadResponse{Receipt: receipt, Grant: grant}, err
}

// CompleteUpload succeeds only with the fact recording.uploaded queued in the same transaction: a PUT that went well is no such fact
// (R100-R103). It makes no session with anybody, invents no id, and waits for no verification (R105).
func (d *dispatcher[TTx]) CompleteUpload(ctx context.Context, q *agentv1.CompleteUploadRequest) (*agentv1.CompleteUploadResponse, error) {
	sum := hex.EncodeToString(q.GetAssetSha256())
	m, _ := d.mutation(ctx, "CompleteUpload", metaOf(q), contract.NewContent("CompleteUpload").
		Text("upload_id", q.GetUploadId()).Text("asset_sha256", sum))
	m.Identities = []broker.Identity{{Kind: "completion", Value: m.AgentID + "/" + q.GetUploadId()}}
	m.Apply = func(ctx context.Context, tx TTx) (contract.Receipt, error) {
		values := d.store.Values(tx)
		u, revision, err := d.getUpload(ctx, values, m.AgentID, q.GetUploadId())
		switch {
		case err != nil:
			return contract.Receipt{}, err
		case u.AssetSHA256 != sum:
			return contract.Receipt{}, ErrChecksum
		}
		u.Queued = true
		content, err := json.Marshal(u)
		if err != nil {
			return contract.Receipt{}, err
		}
		f := broker.Fact{Source: ofDispatcher, ID: uploaded + "/" + q.GetUploadId(), Kind: uploaded, Content: content}
		if err := d.queue(ctx, tx, f); err != nil {
			return contract.Receipt{}, err
		}
		after, err := d.putUpload(ctx, values, q.GetUploadId(), revision, u)
		return contract.Receipt{Result: contract.ResultApplied, Before: revision, After: after, Ref: f.ID}, err
	}
	receipt, err := answered(d.broker.Mutate(ctx, *m))
	d.queued(ofDispatcher)
	return &agentv1.CompleteUploadResponse{Receipt: receipt}, err
}

// grantQuery is what stands before a grant in the place's URL. The grant is for the agent alone: it is not in what is stored or
// handed on.
const grantQuery = "?grant="

// grantOf is the proof that the dispatcher has granted a place to an agent, for one asset: the target has the same key.
func grantOf(key []byte, agent, id, sum string) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(strings.Join([]string{agent, id, sum}, "\n"))) // it does not fail
	return hex.EncodeToString(mac.Sum(nil))
}

// getUpload reads an upload of this very agent: to everybody else there is none.
func (d *dispatcher[TTx]) getUpload(ctx context.Context, values store.Values, agent, id string) (u upload, revision int64, err error) {
	v, err := values.Load(ctx, d.uploadID(id))
	if err == nil && v.Revision > 0 {
		err = json.Unmarshal(v.Content, &u)
	}
	if err == nil && (v.Revision == 0 || u.AgentID != agent) {
		err = ErrNoUpload
	}
	if err != nil {
		return upload{}, 0, err
	}
	return u, v.Revision, nil
}

func (d *dispatcher[TTx]) putUpload(ctx context.Context, values store.Values, id string, revision int64, u upload) (int64, error) {
	content, err := json.Marshal(u)
	if err != nil {
		return 0, err
	}
	v, err := values.Swap(ctx, store.SwapParams{ValueID: d.uploadID(id), Revision: revision, Content: content})
	return v.Revision, err
}
