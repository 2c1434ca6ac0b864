package dispatch

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

// Process is a dispatcher or an agent. The first line of in is its config; it says on out where it listens, and then answers one line
// for each, until in ends.
func Process(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() {
		return errors.New("nobody said what to be")
	}
	var cfg config
	if err := json.Unmarshal(lines.Bytes(), &cfg); err != nil {
		return fmt.Errorf("read the config: %w", err)
	}
	if strings.HasPrefix(cfg.Database, "postgres") {
		pool, err := pgxpool.New(ctx, cfg.Database)
		if err != nil {
			return errors.New("the database's URL is not one that pgx takes") // the error would show it
		}
		defer pool.Close()
		return play[pgx.Tx](ctx, cfg, pgstore.New(pool), lines, out)
	}
	st, err := sqlitestore.Open(ctx, strings.TrimPrefix(cfg.Database, "sqlite:"), nil)
	if err != nil {
		return err
	}
	return errors.Join(play[*sql.Tx](ctx, cfg, st, lines, out), st.Close())
}

// hello is what a process says first.
type hello struct {
	Address string
	PID     int
}

// play is a process over its database.
func play[TTx any](ctx context.Context, cfg config, st store.Store[TTx], lines *bufio.Scanner, out io.Writer) error {
	n, self, end, err := cast(ctx, cfg, st)
	if err != nil {
		return err
	}
	defer end()
	address, stop, err := n.serve(ctx, self)
	if err != nil {
		return err
	}
	defer stop()
	says := json.NewEncoder(out)
	if err := says.Encode(hello{address, os.Getpid()}); err != nil {
		return err
	}
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		told, err := self.(doer).do(ctx, o)
		if told.Receipt != nil && !told.Receipt.Result.Valid() {
			told.Receipt = nil
		}
		if err != nil {
			told.Failure = failureOf(err)
		}
		if err := says.Encode(told); err != nil {
			return err
		}
	}
	return lines.Err()
}

// cast makes the process that the config asks for.
func cast[TTx any](ctx context.Context, cfg config, st store.Store[TTx]) (*node[TTx], agentv1.AgentServiceServer, func(), error) {
	if cfg.Role == roleDispatcher {
		d, err := newDispatcher(ctx, cfg, st)
		if err != nil {
			return nil, nil, nil, err
		}
		return d.node, d, d.publishers, nil
	}
	a, err := newAgent(ctx, cfg, st)
	if err != nil {
		return nil, nil, nil, err
	}
	return a.node, a, func() {}, nil
}
