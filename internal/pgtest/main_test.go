package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// What a test process that these tests start again is told through its environment.
const (
	childBare     = "PGTEST_CHILD_BARE"     // forget the usual folders of server programs
	childTemplate = "PGTEST_CHILD_TEMPLATE" // fail to build the template
	childHold     = "PGTEST_CHILD_HOLD"     // hold a server until the process is ended
	childHelper   = "CHILD_OF_PGTEST"       // be a helper program of this kind; helpers get no variable PG…
)

var templateRuns atomic.Int32

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && filepath.IsAbs(os.Args[1]) { // started as a helper: never run the tests again
		os.Exit(beHelper(os.Getenv(childHelper)))
	}
	if os.Getenv(childBare) != "" {
		usualFolders = nil
	}
	code := Run(m, testTemplate)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testTemplate(ctx context.Context, adminDSN, appRole string) error {
	templateRuns.Add(1)
	if os.Getenv(childTemplate) != "" {
		return errors.New("the template is broken")
	}
	conn, err := pgx.Connect(ctx, adminDSN)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "CREATE TABLE note (body text); GRANT SELECT, INSERT ON note TO "+appRole)
	return err
}
