package sqlitestore_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

// What was executed stays in the file: after a restart the same confirm is answered, and nothing runs again.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "confirmexec")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	surface := contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}
	var confirmation contract.OperationConfirmation
	for _, process := range []string{"first process", "second process"} {
		st, err := sqlitestore.Open(ctx, filepath.Join(dir, "claims.db"), nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		b, err := broker.New[*sql.Tx](st, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		if confirmation.Items == nil {
			confirmation, err = b.Propose(ctx, "firm-a", contract.OperationProposal{
				SurfaceKey: surface.SurfaceKey, ContractVersion: surface.ContractVersion,
				Items: []contract.Item{{ID: "1", Op: "add_forum", Params: json.RawMessage(`{"name":"NCLT Mumbai"}`)}},
			})
			if err != nil {
				fmt.Println(err)
				return
			}
		}
		res, err := b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: confirmation, Current: surface},
			func(_ context.Context, it broker.Item) (broker.Outcome, error) {
				fmt.Println("adding", string(it.Params))
				return broker.Applied("forum/" + it.ID), nil
			})
		fmt.Println(process+":", broker.AnswerOf(res, err))
		if err := st.Close(); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// adding {"name":"NCLT Mumbai"}
	// first process: executed
	// second process: replayed
}
