package faults

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/internal/pgtest/claims"
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

// schema makes the claim table and the table of the effects, which has no unique constraint: it can show what happened twice. A
// surface remembers what there was when it was moved. That the claim table itself refuses illegal rows (I17) is shown by
// pgstore's TestSchemaRefusesIllegalRows.
var schema = claims.Schema(`CREATE TABLE public.effect (key uuid NOT NULL, item text NOT NULL, attempt uuid NOT NULL);
		CREATE INDEX ON public.effect (key);
		GRANT SELECT, INSERT ON public.effect TO {role};
		CREATE TABLE public.surface (key uuid PRIMARY KEY, version text NOT NULL, claims bigint, effects bigint);
		GRANT SELECT, INSERT, UPDATE ON public.surface TO {role}`)

// short says whether a thin slice of every enumeration is enough, as it is beside all the other tests. The whole has the machine to
// itself: CONFIRMEXEC_FAULTS=all go test ./internal/faults, which the gate does as a step of its own.
func short() bool { return testing.Short() || os.Getenv("CONFIRMEXEC_FAULTS") != "all" }
