package contracttest

import (
	"encoding/json"
	"errors"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
)

// documentTopics are about proposals, confirmations and the surface that they are for.
var documentTopics = []topic{
	newTopic("confirmations", gotConfirmation, "DecodeConfirmation"),
	newTopic("proposals", gotProposal, "DecodeProposal"),
	newTopic("limits", gotLimits, "DecodeConfirmation"),
	newTopic("encoding", gotEncoding, "EncodeConfirmation", "EncodeProposal"),
	newTopic("surface_keys", gotSurfaceKey, "CheckSurfaceKey"),
	newTopic("staleness", gotStaleness, "IsStale", "DriftOf"),
}

type documentIn struct {
	Document raw    `json:"document"`
	Limits   limits `json:"limits"`
}

type limits struct {
	Body            int `json:"body"`
	Items           int `json:"items"`
	ItemID          int `json:"item_id"`
	Op              int `json:"op"`
	Params          int `json:"params"`
	Depth           int `json:"depth"`
	SurfaceKey      int `json:"surface_key"`
	ContractVersion int `json:"contract_version"`
}

// operation is a confirmation, or, without a key, a proposal.
type operation struct {
	IdempotencyKey  string `json:"idempotency_key,omitempty"`
	SurfaceKey      string `json:"surface_key"`
	ContractVersion string `json:"contract_version"`
	Items           []item `json:"items"`
}

type item struct {
	ItemID string `json:"item_id"`
	Op     string `json:"op"`
	Params raw    `json:"params"`
}

func (o operation) proposal() contract.OperationProposal {
	p := contract.OperationProposal{SurfaceKey: contract.SurfaceKey(o.SurfaceKey), ContractVersion: o.ContractVersion}
	for _, it := range o.Items {
		p.Items = append(p.Items, contract.Item{ID: it.ItemID, Op: it.Op, Params: json.RawMessage(it.Params)})
	}
	return p
}

type operationWant struct {
	refusal
	operation
}

// operationOf tells a decoded operation. Params are told in their canonical form, since a reader may keep them as it likes.
func operationOf(p contract.OperationProposal, key string) operationWant {
	o := operation{key, string(p.SurfaceKey), p.ContractVersion, nil}
	for _, it := range p.Items {
		params, err := contract.CanonicalJSON(it.Params)
		if err != nil {
			return operationWant{refusal: refusal{Other: "the decoded params are no JSON: " + err.Error()}}
		}
		o.Items = append(o.Items, item{it.ID, it.Op, params})
	}
	return operationWant{operation: o}
}

func gotConfirmation(i Implementation, in documentIn, want operationWant) operationWant {
	c, err := i.DecodeConfirmation(in.Document, contract.Limits(in.Limits))
	if err != nil {
		return operationWant{refusal: refusalOf(err, want.refusal)}
	}
	return operationOf(c.Proposal(), c.IdempotencyKey.String())
}

func gotProposal(i Implementation, in documentIn, want operationWant) operationWant {
	p, err := i.DecodeProposal(in.Document, contract.Limits(in.Limits))
	if err != nil {
		return operationWant{refusal: refusalOf(err, want.refusal)}
	}
	return operationOf(p, "")
}

// acceptance is all that is wanted where only the rule matters.
type acceptance struct {
	refusal
	Accepted bool `json:"accepted"`
}

func acceptanceOf(err error, want refusal) acceptance {
	return acceptance{refusalOf(err, want), err == nil}
}

func gotLimits(i Implementation, in documentIn, want acceptance) acceptance {
	_, err := i.DecodeConfirmation(in.Document, contract.Limits(in.Limits))
	return acceptanceOf(err, want.refusal)
}

type documentWant struct {
	refusal
	Document raw `json:"document,omitempty"`
}

func documentOf(data []byte, err error) documentWant {
	if err != nil {
		return documentWant{refusal: refusalOf(err, refusal{})}
	}
	return documentWant{Document: data}
}

func gotEncoding(i Implementation, in operation, _ documentWant) documentWant {
	if in.IdempotencyKey == "" {
		return documentOf(i.EncodeProposal(in.proposal()))
	}
	key, err := uuid.Parse(in.IdempotencyKey)
	if err != nil {
		return documentOf(nil, err)
	}
	return documentOf(i.EncodeConfirmation(in.proposal().Confirmation(key)))
}

type surfaceKeyIn struct {
	SurfaceKey raw `json:"surface_key"`
}

func gotSurfaceKey(i Implementation, in surfaceKeyIn, _ acceptance) acceptance {
	err := i.CheckSurfaceKey(string(in.SurfaceKey))
	if invalid, ok := errors.AsType[*contract.InvalidError](err); ok && invalid.Path == "/surface_key" {
		return acceptance{}
	}
	return acceptanceOf(err, refusal{})
}

type surface struct {
	SurfaceKey      string `json:"surface_key"`
	ContractVersion string `json:"contract_version"`
}

type stalenessIn struct {
	Confirmation surface `json:"confirmation"`
	Current      surface `json:"current"`
}

type stalenessWant struct {
	Stale bool   `json:"stale"`
	Drift []axis `json:"drift"`
}

type axis struct {
	Axis     string `json:"axis"`
	Proposed string `json:"proposed"`
	Current  string `json:"current"`
}

func gotStaleness(i Implementation, in stalenessIn, _ stalenessWant) stalenessWant {
	c := operation{SurfaceKey: in.Confirmation.SurfaceKey, ContractVersion: in.Confirmation.ContractVersion}.proposal().Confirmation(uuid.Nil)
	current := contract.CurrentSurfaceState{
		SurfaceKey: contract.SurfaceKey(in.Current.SurfaceKey), ContractVersion: in.Current.ContractVersion,
	}
	got := stalenessWant{Stale: i.IsStale(c, current), Drift: []axis{}}
	for _, d := range i.DriftOf(c, current) {
		got.Drift = append(got.Drift, axis(d))
	}
	return got
}
