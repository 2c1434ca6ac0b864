package contract_test

import (
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
)

// What a service was sent is read strictly: a member that nobody knows is an error, not a surprise later.
func ExampleDecodeProposal() {
	p, err := contract.DecodeProposal([]byte(`{
	  "schema_version": "operation_recovery.v1",
	  "surface_key": "matter:123/forums",
	  "contract_version": "v7",
	  "items": [{"item_id": "a", "op": "add_forum", "params": {"forum": "SDNY"}}]
	}`), contract.Limits{})
	fmt.Println(p.SurfaceKey, len(p.Items), p.Items[0].Op, err)
	_, err = contract.DecodeProposal([]byte(`{"schema_version": "operation_recovery.v1", "force": true}`), contract.Limits{})
	fmt.Println(err)
	// Output:
	// matter:123/forums 1 add_forum <nil>
	// INVALID_ARGUMENT: /…: is not a member of this document
}

// A service that wants less than the defaults lowers them.
func ExampleDefaultLimits() {
	l := contract.DefaultLimits()
	fmt.Println(l.Items, "items of", l.Params, "bytes each,", l.Body, "bytes in all")
	l.Items = 1
	_, err := contract.DecodeProposal([]byte(`{
	  "schema_version": "operation_recovery.v1", "surface_key": "matter:123/forums", "contract_version": "v7",
	  "items": [{"item_id": "a", "op": "add_forum", "params": {}}, {"item_id": "b", "op": "add_forum", "params": {}}]
	}`), l)
	fmt.Println(err)
	// Output:
	// 1000 items of 65536 bytes each, 1048576 bytes in all
	// INVALID_ARGUMENT: /items: holds 2 items, the limit is 1
}

// A surface key is a name in the product's own words, and never an address.
func ExampleParseSurfaceKey() {
	k, err := contract.ParseSurfaceKey("matter:123/forums")
	fmt.Println(k, err)
	_, err = contract.ParseSurfaceKey("https://example.com/matter/123")
	fmt.Println(err)
	// Output:
	// matter:123/forums <nil>
	// INVALID_ARGUMENT: /surface_key: must be the product's name for the surface, not a URL and without one
}

// The surface is read again at the moment of the confirm; what was confirmed on another one is stale.
func ExampleIsStale() {
	c := contract.OperationConfirmation{IdempotencyKey: key, SurfaceKey: "matter:123/forums", ContractVersion: "v7"}
	fmt.Println(contract.IsStale(c, contract.CurrentSurfaceState{SurfaceKey: "matter:123/forums", ContractVersion: "v7"}))
	fmt.Println(contract.IsStale(c, contract.CurrentSurfaceState{SurfaceKey: "matter:123/forums", ContractVersion: "v8"}))
	fmt.Println(contract.IsStale(c, contract.CurrentSurfaceState{})) // it could not be read
	// Output:
	// false
	// true
	// true
}

// What a store keeps of a batch, and reads back.
func ExampleEncodeOutcomes() {
	stored := contract.EncodeOutcomes([]contract.OperationItemOutcome{
		{ItemID: "a", State: contract.Applied, Ref: "forum/7"},
		{ItemID: "b", State: contract.Ambiguous, Reason: contract.ReasonTimeout},
	})
	fmt.Println(string(stored))
	// Output: {"schema_version":"operation_recovery.v1","outcomes":[{"item_id":"a","state":"applied","ref":"forum/7"},{"item_id":"b","state":"ambiguous","reason":"timeout"}]}
}

// Bytes that are not what EncodeOutcomes wrote are refused, so that no result is made up from them.
func ExampleDecodeOutcomes() {
	outcomes, err := contract.DecodeOutcomes([]byte(
		`{"schema_version":"operation_recovery.v1","outcomes":[{"item_id":"a","state":"applied","ref":"forum/7"}]}`))
	fmt.Printf("%+v %v\n", outcomes, err)
	_, err = contract.DecodeOutcomes([]byte(
		`{"schema_version":"operation_recovery.v1","outcomes":[{"item_id":"a","state":"probably"}]}`))
	fmt.Println(err)
	// Output:
	// [{ItemID:a State:applied Ref:forum/7 Reason: Detail: By: Provisional:false}] <nil>
	// INVALID_ARGUMENT: /outcomes/0/state: must be applied, failed, skipped or ambiguous
}

func ExampleValidateTenant() {
	fmt.Println(contract.ValidateTenant("firm-a"))
	fmt.Println(contract.ValidateTenant(" firm-a"))
	// Output:
	// <nil>
	// INVALID_ARGUMENT: /tenant: must not begin or end with white space
}

// A service's own names can be held to the rules that the library's names keep.
func ExampleValidateText() {
	fmt.Println(contract.ValidateText("/agent_id", "agent-7", contract.MaxMetaText))
	fmt.Println(contract.ValidateText("/agent_id", "agent\n7", contract.MaxMetaText))
	// Output:
	// <nil>
	// INVALID_ARGUMENT: /agent_id: must not hold control or format characters
}
