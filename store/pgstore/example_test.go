package pgstore_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/store/pgstore"
)

// A team that runs migrations with a tool of its own gets them as SQL, with its names in it.
func ExampleMigrations() {
	files, err := pgstore.Migrations(&pgstore.Config{Schema: "desk", Table: "claims"})
	if err != nil {
		fmt.Println(err)
		return
	}
	names, err := fs.Glob(files, "*.up.sql")
	fmt.Println(names, err)
	up, err := fs.ReadFile(files, names[0])
	fmt.Println(strings.Contains(string(up), `CREATE TABLE IF NOT EXISTS "desk"."claims"`), err)
	// Output:
	// [0001_claims.up.sql] <nil>
	// true <nil>
}

// What the service's role needs, to be run by the table's owner: it may not delete, so no key is ever free again.
func ExampleGrantSQL() {
	grants, err := pgstore.GrantSQL(nil, "desk_service")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(grants)
	// Output:
	// GRANT USAGE ON SCHEMA "agents" TO "desk_service";
	// GRANT SELECT, INSERT, UPDATE ON "agents"."agent_idempotency_key" TO "desk_service";
}

// A store for other names than the defaults. A name that cannot be one is found here, and not by the first query.
func ExampleNewWithConfig() {
	pool, err := pgxpool.New(context.Background(), "postgres://desk_service@localhost/desk") // it connects when it is used
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	_, err = pgstore.NewWithConfig(pool, pgstore.Config{Schema: "desk", TenantColumn: "tenant", TenantSetting: "desk.tenant"})
	fmt.Println(err)
	_, err = pgstore.NewWithConfig(pool, pgstore.Config{TenantSetting: "tenant"})
	fmt.Println(err)
	// Output:
	// <nil>
	// INVALID_ARGUMENT: /pgstore.Config/TenantSetting: must be lower-case letters, digits and _, not starting with a digit, at most 63 characters, as prefix.name
}
