package contract

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/google/uuid"
)

// SchemaVersion is the value of schema_version in every document of this package's wire contract.
const SchemaVersion = "operation_recovery.v1"

// OperationProposal is what a system proposes to a person: some items on one surface. The broker's Propose turns it
// into an [OperationConfirmation].
type OperationProposal struct {
	SurfaceKey      SurfaceKey // the surface that the items change, as the product names it
	ContractVersion string     // the surface's version that the proposal was built on
	Items           []Item     // at least one, with unique ids
}

// OperationConfirmation is what a person confirms: the proposal and the key that the server minted for it. The client
// echoes it unchanged; other content under the same key is a conflict (S20).
type OperationConfirmation struct {
	IdempotencyKey  uuid.UUID // minted by the server, never by a client (S11)
	SurfaceKey      SurfaceKey
	ContractVersion string
	Items           []Item
}

// Item is one change of an operation.
type Item struct {
	ID     string          // unique within the operation
	Op     string          // what to do, in the product's own words, for example "add_forum"
	Params json.RawMessage // a JSON object: the arguments
}

// Proposal returns c without its key.
func (c OperationConfirmation) Proposal() OperationProposal {
	return OperationProposal{SurfaceKey: c.SurfaceKey, ContractVersion: c.ContractVersion, Items: c.Items}
}

// Confirmation returns p with its key.
func (p OperationProposal) Confirmation(key uuid.UUID) OperationConfirmation {
	return OperationConfirmation{
		IdempotencyKey: key, SurfaceKey: p.SurfaceKey, ContractVersion: p.ContractVersion, Items: p.Items,
	}
}

// Validate checks c against the limits (zero fields mean the defaults). The error is an *[InvalidError] with the path
// of the first thing wrong (S2-S4).
func (c OperationConfirmation) Validate(l Limits) error {
	_, err := c.wire(l)
	return err
}

// Validate checks p against the limits (zero fields mean the defaults). The error is an *[InvalidError] with the path
// of the first thing wrong (S3, S4). A proposal that is valid fits a confirmation that is valid.
func (p OperationProposal) Validate(l Limits) error {
	_, err := p.wire(l)
	return err
}

func (p OperationProposal) validate(l Limits) error {
	if err := p.SurfaceKey.Validate(l); err != nil {
		return err
	}
	if err := checkText("/contract_version", p.ContractVersion, l.ContractVersion); err != nil {
		return err
	}
	if len(p.Items) == 0 {
		return invalid("/items", "must hold at least one item")
	}
	if len(p.Items) > l.Items {
		return invalid("/items", fmt.Sprintf("holds %d items, the limit is %d", len(p.Items), l.Items))
	}
	seen := make(map[string]bool, len(p.Items))
	for i, it := range p.Items {
		path := "/items/" + strconv.Itoa(i)
		if err := it.validate(path, l); err != nil {
			return err
		}
		if seen[it.ID] {
			return invalid(path+"/item_id", "repeats the id of an earlier item")
		}
		seen[it.ID] = true
	}
	return nil
}

func (it Item) validate(path string, l Limits) error {
	if err := checkText(path+"/item_id", it.ID, l.ItemID); err != nil {
		return err
	}
	if err := checkText(path+"/op", it.Op, l.Op); err != nil {
		return err
	}
	return checkParams(path+"/params", it.Params, l)
}
