package contract

import (
	"encoding/json"
	"fmt"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// wireOperation is a proposal (without a key) or a confirmation as JSON. A nil member is one that the document lacks.
type wireOperation struct {
	SchemaVersion   *string    `json:"schema_version"`
	IdempotencyKey  *string    `json:"idempotency_key,omitzero"`
	SurfaceKey      *string    `json:"surface_key"`
	ContractVersion *string    `json:"contract_version"`
	Items           []wireItem `json:"items"`
}

type wireItem struct {
	ID     *string        `json:"item_id"`
	Op     *string        `json:"op"`
	Params jsontext.Value `json:"params"`
}

// DecodeConfirmation reads a confirmation in its wire form, operation_recovery.v1, and validates it under the limits
// (zero fields mean the defaults). It is strict: unknown, missing, repeated and null members, other types, another
// schema version and trailing bytes are refused, wherever they are (S1). The error is an *[InvalidError].
func DecodeConfirmation(data []byte, l Limits) (OperationConfirmation, error) {
	w, err := decodeOperation(data, l, true)
	if err != nil {
		return OperationConfirmation{}, err
	}
	key, err := parseKey("/idempotency_key", *w.IdempotencyKey)
	if err != nil {
		return OperationConfirmation{}, err
	}
	c := w.proposal().Confirmation(key)
	if err := c.Validate(l); err != nil {
		return OperationConfirmation{}, err
	}
	return c, nil
}

// DecodeProposal reads a proposal: a confirmation's wire form without idempotency_key, as strictly as
// [DecodeConfirmation].
func DecodeProposal(data []byte, l Limits) (OperationProposal, error) {
	w, err := decodeOperation(data, l, false)
	if err != nil {
		return OperationProposal{}, err
	}
	p := w.proposal()
	if err := p.Validate(l); err != nil {
		return OperationProposal{}, err
	}
	return p, nil
}

// MarshalJSON writes the wire form, members in the contract's order and params as given but compact. It fails with an
// *[InvalidError] for a confirmation that [DecodeConfirmation] would refuse.
func (c OperationConfirmation) MarshalJSON() ([]byte, error) { return c.wire(Limits{}) }

// MarshalJSON writes the wire form as [OperationConfirmation.MarshalJSON] does, without a key.
func (p OperationProposal) MarshalJSON() ([]byte, error) { return p.wire(Limits{}) }

// UnmarshalJSON is [DecodeConfirmation] with the default limits.
func (c *OperationConfirmation) UnmarshalJSON(data []byte) error {
	decoded, err := DecodeConfirmation(data, Limits{})
	if err == nil {
		*c = decoded
	}
	return err
}

// UnmarshalJSON is [DecodeProposal] with the default limits.
func (p *OperationProposal) UnmarshalJSON(data []byte) error {
	decoded, err := DecodeProposal(data, Limits{})
	if err == nil {
		*p = decoded
	}
	return err
}

func (c OperationConfirmation) wire(l Limits) ([]byte, error) {
	if c.IdempotencyKey == uuid.Nil {
		return nil, invalid("/idempotency_key", problemKey)
	}
	return c.Proposal().encode(new(c.IdempotencyKey.String()), l.orDefault())
}

func (p OperationProposal) wire(l Limits) ([]byte, error) {
	l = l.orDefault()
	l.Body -= len(`"idempotency_key":"00000000-0000-0000-0000-000000000000",`) // of the confirmation to come
	return p.encode(nil, l)
}

// encode validates p and returns its wire form, with the key if there is one.
func (p OperationProposal) encode(key *string, l Limits) ([]byte, error) {
	if err := p.validate(l); err != nil {
		return nil, err
	}
	w := wireOperation{new(SchemaVersion), key, new(string(p.SurfaceKey)), &p.ContractVersion, nil}
	for _, it := range p.Items {
		w.Items = append(w.Items, wireItem{&it.ID, &it.Op, jsontext.Value(it.Params)})
	}
	data, err := jsonv2.Marshal(w, jsontext.PreserveRawStrings(true))
	if err != nil {
		return nil, decodeError(err)
	}
	if err := checkBody(data, l); err != nil {
		return nil, err
	}
	return data, nil
}

func (w wireOperation) proposal() OperationProposal {
	p := OperationProposal{SurfaceKey: SurfaceKey(*w.SurfaceKey), ContractVersion: *w.ContractVersion}
	for _, it := range w.Items {
		p.Items = append(p.Items, Item{*it.ID, *it.Op, json.RawMessage(it.Params)})
	}
	return p
}

// decodeOperation returns a document that has every member that it must have and no other.
func decodeOperation(data []byte, l Limits, keyed bool) (w wireOperation, err error) {
	if err := checkBody(data, l.orDefault()); err != nil {
		return w, err
	}
	if err := decode(data, &w); err != nil {
		return w, err
	}
	if err := checkVersion(w.SchemaVersion); err != nil {
		return w, err
	}
	if !keyed && w.IdempotencyKey != nil {
		return w, invalid("/idempotency_key", problemUnknown)
	}
	return w, w.checkPresent(keyed)
}

func (w wireOperation) checkPresent(keyed bool) error {
	err := checkPresent("",
		member{"idempotency_key", w.IdempotencyKey != nil || !keyed},
		member{"surface_key", w.SurfaceKey != nil},
		member{"contract_version", w.ContractVersion != nil},
		member{"items", w.Items != nil})
	for i := 0; i < len(w.Items) && err == nil; i++ {
		it := w.Items[i]
		err = checkPresent("/items/"+strconv.Itoa(i),
			member{"item_id", it.ID != nil}, member{"op", it.Op != nil}, member{"params", it.Params != nil})
	}
	return err
}

func checkBody(data []byte, l Limits) error {
	if len(data) > l.Body {
		return invalid("", fmt.Sprintf("is %d bytes long, the limit is %d", len(data), l.Body))
	}
	return nil
}
