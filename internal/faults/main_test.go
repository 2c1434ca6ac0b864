package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(orderVariable); order != "" {
		os.Exit(work(order))
	}
	flag.Parse()
	code := pgtest.Run(m, schema)
	if err := goleak.Find(); err != nil && code == 0 { // I14
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// schema makes the claim table and the table of the effects, which has no unique constraint: it can show what happened twice.
func schema(ctx context.Context, adminDSN, appRole string) error {
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
	_, err = pool.Exec(ctx, grants+`CREATE TABLE public.effect (key uuid NOT NULL, item text NOT NULL, attempt uuid NOT NULL);
		CREATE INDEX ON public.effect (key);
		GRANT SELECT, INSERT ON public.effect TO `+pgx.Identifier{appRole}.Sanitize())
	return err
}

// short says whether a thin slice of every enumeration is enough, as it is beside all the other tests. The whole has the machine to
// itself: CONFIRMEXEC_FAULTS=all go test ./internal/faults, which the gate does as a step of its own.
func short() bool { return testing.Short() || os.Getenv("CONFIRMEXEC_FAULTS") != "all" }
