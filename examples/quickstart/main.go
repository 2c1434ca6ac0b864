// Program quickstart is the program of README.md: propose, confirm, execute, and a double tap.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

func main() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "quickstart")
	check(err)
	defer os.RemoveAll(dir)
	st, err := sqlitestore.Open(ctx, dir+"/confirm.db", nil)
	check(err)
	defer st.Close()
	b, err := broker.New(st, nil)
	check(err)

	// The system proposes. The server mints the key; the client only echoes what it gets.
	confirmation, err := b.Propose(ctx, "firm-a", contract.OperationProposal{
		SurfaceKey:      "matter:7/forums",
		ContractVersion: "v1",
		Items:           []contract.Item{{ID: "1", Op: "add_forum", Params: json.RawMessage(`{"name":"NCLT Mumbai"}`)}},
	})
	check(err)

	// A person confirms, twice. The service reads the surface again and executes.
	current := contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}
	for range 2 {
		res, err := b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: confirmation, Current: current}, addForum)
		check(err)
		fmt.Printf("%s: %s\n", broker.AnswerOf(res, err), res.Summary())
	}
}

// addForum is the executor: it is called at most once per item and key. it.IdempotencyKey is for the target.
func addForum(_ context.Context, it broker.Item) (broker.Outcome, error) {
	fmt.Println("the registry is called for item", it.ID)
	return broker.Applied("forum/1"), nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
