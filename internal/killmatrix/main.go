// Command killmatrix kills the agent of examples/dispatch, and then its dispatcher, by SIGKILL right before and right after each of
// their commits, in every method, starts them again from their databases, and prints how often the adapter was invoked:
//
//	go run ./internal/killmatrix [-database postgres://…] [METHOD ...]
//
// Without methods it makes all thirteen, and what both do by themselves afterwards. Without a database each process has a SQLite
// file; that of -database is migrated. The exit status is 1 when anything is not as it must be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/examples/dispatch"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "killmatrix:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(args) == 1 && args[0] == dispatch.ProcessCommand {
		return dispatch.Process(ctx, os.Stdin, os.Stdout)
	}
	flags := flag.NewFlagSet("killmatrix", flag.ContinueOnError)
	database := flags.String("database", "", "postgres://…")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := migrate(ctx, *database); err != nil {
		return err
	}
	began := time.Now()
	_, err := dispatch.Matrix(ctx, dispatch.MatrixOptions{Methods: flags.Args(), Workers: 2, Database: *database, Out: os.Stdout})
	fmt.Printf("Took %s.\n", time.Since(began).Round(time.Second))
	return err
}

func migrate(ctx context.Context, database string) error {
	if database == "" {
		return nil
	}
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return errors.New("-database is not a URL that pgx takes") // err would show it
	}
	defer pool.Close()
	return pgstore.Migrate(ctx, pool, nil)
}
