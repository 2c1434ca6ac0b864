package faultnet

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/confirmexec/confirmexec/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Run(m, testTemplate)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func testTemplate(ctx context.Context, adminDSN, appRole string) error {
	conn, err := pgx.Connect(ctx, adminDSN)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "CREATE TABLE note (id int, body text); GRANT SELECT, INSERT ON note TO "+appRole)
	return err
}
