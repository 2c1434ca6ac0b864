package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// The examples of this file need a server, which go test has none of for an example. So each says what it prints under "Prints:", and
// this test runs it on a database of its own and compares.
func TestExamplesOnAServer(t *testing.T) {
	source, err := os.ReadFile("server_example_test.go")
	require.NoError(t, err)
	examples := map[string]struct {
		database func(testing.TB) *pgtest.DB
		run      func()
	}{
		"ExampleMigrate":           {pgtest.NewEmpty, ExampleMigrate},
		"ExampleCheck":             {pgtest.NewEmpty, ExampleCheck},
		"ExampleNew":               {pgtest.New, ExampleNew},
		"ExampleMigrateDown":       {pgtest.New, ExampleMigrateDown},
		"ExampleEnableRowSecurity": {pgtest.NewEmpty, ExampleEnableRowSecurity},
	}
	require.Len(t, examples, strings.Count(string(source), "\n\t// Prints:\n"))
	for name, example := range examples {
		t.Run(name, func(t *testing.T) {
			db := example.database(t)
			t.Setenv("OWNER_URL", db.AdminDSN)
			t.Setenv("SERVICE_URL", db.AppDSN)
			_, body, found := strings.Cut(string(source), "\nfunc "+name+"() {\n")
			require.True(t, found)
			body, _, _ = strings.Cut(body, "\n}\n")
			_, prints, found := strings.Cut(body, "\n\t// Prints:\n")
			require.True(t, found)
			assert.Equal(t, strings.ReplaceAll("\n"+prints+"\n", "\n\t// ", "\n"), "\n"+printed(t, example.run))
		})
	}
}

// printed returns what a function prints.
func printed(t *testing.T, run func()) string {
	t.Helper()
	file, err := os.Create(t.TempDir() + "/printed")
	require.NoError(t, err)
	defer func(stdout *os.File) { os.Stdout = stdout }(os.Stdout)
	os.Stdout = file
	run()
	require.NoError(t, file.Close())
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	return string(text)
}

// The owner of the tables migrates, and lets the service's role use the table: at every start, if you like.
func ExampleMigrate() {
	ctx := context.Background()
	owner, err := pgxpool.New(ctx, os.Getenv("OWNER_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer owner.Close()
	service, err := pgx.ParseConfig(os.Getenv("SERVICE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println("migrated:", pgstore.Migrate(ctx, owner, nil))
	grants, err := pgstore.GrantSQL(nil, service.User)
	if err == nil {
		_, err = owner.Exec(ctx, grants)
	}
	fmt.Println("granted:", err)
	fmt.Println("migrated again:", pgstore.Migrate(ctx, owner, nil))
	// Prints:
	// migrated: <nil>
	// granted: <nil>
	// migrated again: <nil>
}

// A service does not start on a database that cannot keep the promises. Nobody has migrated this one.
func ExampleCheck() {
	ctx := context.Background()
	service, err := pgxpool.New(ctx, os.Getenv("SERVICE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer service.Close()
	err = pgstore.Check(ctx, service, nil)
	bad, ok := errors.AsType[*pgstore.CheckError](err)
	if !ok {
		fmt.Println("it may start, unless the database could not be looked at:", err)
		return
	}
	for _, f := range bad.Findings {
		if f.Kind != "durability" { // a server for tests may forget what it committed
			fmt.Printf("%s: %s: %s\n", f.Kind, f.Problem, f.Fix)
		}
	}
	// Prints:
	// schema: the claim table does not exist, or the role may not see its schema: run pgstore.Migrate and pgstore.GrantSQL
}

// A double tap on PostgreSQL: the effects ride in the transaction of the claim, so that the second confirm finds both or neither.
func ExampleNew() {
	ctx := context.Background()
	service, err := pgxpool.New(ctx, os.Getenv("SERVICE_URL")) // a plain role: see Check
	if err != nil {
		fmt.Println(err)
		return
	}
	defer service.Close()
	b, err := broker.New[pgx.Tx](pgstore.New(service), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	surface := contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}
	c, err := b.Propose(ctx, "firm-a", contract.OperationProposal{
		SurfaceKey: surface.SurfaceKey, ContractVersion: surface.ContractVersion,
		Items: []contract.Item{{ID: "1", Op: "add_forum", Params: json.RawMessage(`{"name":"NCLT Mumbai"}`)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	req := broker.TxRequest[pgx.Tx]{Request: broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface}}
	for range 2 {
		res, err := b.ExecuteAtomic(ctx, req, func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
			_, err := tx.Exec(ctx, `INSERT INTO effect (name) VALUES ($1)`, string(it.Params))
			return broker.Applied("forum/" + it.ID), err
		})
		fmt.Println(broker.AnswerOf(res, err))
	}
	var rows int
	err = service.QueryRow(ctx, `SELECT count(*) FROM effect`).Scan(&rows)
	fmt.Println(rows, "row", err)
	// Prints:
	// executed
	// replayed
	// 1 row <nil>
}

// The way out is shut while there are operations, because their keys could be executed again; somebody has to say that they may.
func ExampleMigrateDown() {
	ctx := context.Background()
	owner, err := pgxpool.New(ctx, os.Getenv("OWNER_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer owner.Close()
	b, err := broker.New[pgx.Tx](pgstore.New(owner), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	surface := contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}
	c, err := b.Propose(ctx, "firm-a", contract.OperationProposal{
		SurfaceKey: surface.SurfaceKey, ContractVersion: surface.ContractVersion,
		Items: []contract.Item{{ID: "1", Op: "add_forum", Params: json.RawMessage(`{"name":"NCLT Mumbai"}`)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := b.Execute(ctx, broker.Request{Tenant: "firm-a", Confirmation: c, Current: surface},
		func(_ context.Context, it broker.Item) (broker.Outcome, error) {
			return broker.Applied("forum/" + it.ID), nil
		})
	fmt.Println(broker.AnswerOf(res, err))
	fmt.Println("refused:", errors.Is(pgstore.MigrateDown(ctx, owner, nil), pgstore.ErrOperationsExist))
	fmt.Println("discarded:", pgstore.MigrateDownDiscarding(ctx, owner, nil))
	// Prints:
	// executed
	// refused: true
	// discarded: <nil>
}

// A table that was there before is extended, and its row security left as it was. Once every user of it binds its tenant, it is switched
// on for all of them.
func ExampleEnableRowSecurity() {
	ctx := context.Background()
	owner, err := pgxpool.New(ctx, os.Getenv("OWNER_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer owner.Close()
	_, err = owner.Exec(ctx, `CREATE SCHEMA agents;
		CREATE TABLE agents.agent_idempotency_key (firm_id text NOT NULL, boundary text NOT NULL, request_id text, step text, tool text, sha text)`)
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := &pgstore.Config{OtherBoundaries: []string{"registration"}} // whose rows stay
	secured := func() (on, forced bool) {
		_ = owner.QueryRow(ctx, `SELECT relrowsecurity, relforcerowsecurity FROM pg_class
			WHERE oid = 'agents.agent_idempotency_key'::regclass`).Scan(&on, &forced)
		return on, forced
	}

	fmt.Println(pgstore.Migrate(ctx, owner, cfg))
	fmt.Println(secured())
	fmt.Println(pgstore.EnableRowSecurity(ctx, owner, cfg))
	fmt.Println(secured())
	// Prints:
	// <nil>
	// false false
	// <nil>
	// true true
}
