// Package claims is what a test database on PostgreSQL begins with: the claim table for the plain application role, and tables of the
// tests' own.
package claims

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/store/pgstore"
)

// Schema returns the schema for pgtest.Main: the claim table with its grants, and then what more says, in which {role} is the
// application role.
func Schema(more string) func(ctx context.Context, adminDSN, appRole string) error {
	return func(ctx context.Context, adminDSN, appRole string) error {
		pool, err := pgxpool.New(ctx, adminDSN)
		if err != nil {
			return err
		}
		defer pool.Close()
		if err := pgstore.Migrate(ctx, pool, nil); err != nil {
			return err
		}
		grants, err := pgstore.GrantSQL(nil, appRole)
		if err != nil {
			return err
		}
		_, err = pool.Exec(ctx, grants+strings.ReplaceAll(more, "{role}", pgx.Identifier{appRole}.Sanitize()))
		return err
	}
}
