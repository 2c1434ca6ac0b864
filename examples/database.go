package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// confirmer is the part of *broker.Broker[TTx] that does not know its database.
type confirmer interface {
	Propose(ctx context.Context, tenant string, p contract.OperationProposal) (contract.OperationConfirmation, error)
	Execute(ctx context.Context, req broker.Request, exec broker.Executor) (*contract.OperationResult, error)
	Lookup(ctx context.Context, tenant string, key uuid.UUID) (*broker.Status, error)
	Cancel(ctx context.Context, tenant string, key uuid.UUID) (*contract.OperationResult, error)
	Resolve(ctx context.Context, r broker.Resolution, read broker.StatusReader) (*contract.OperationResult, error)
	ListUnresolved(ctx context.Context, p broker.Page) ([]broker.UnresolvedKey, error)
	Purge(ctx context.Context, p broker.Page) (int, error)
}

// database is where the claims are.
type database interface {
	// broker returns a broker over the database; nil means the default configuration.
	broker(cfg *broker.Config) (confirmer, error)
	// executeTx confirms in one transaction, with effects in the same database, and then commits or rolls back.
	executeTx(ctx context.Context, req broker.Request, commit bool) (*contract.OperationResult, error)
	// executeAtomic does the same in a transaction of the broker's own.
	executeAtomic(ctx context.Context, req broker.Request) (*contract.OperationResult, error)
	// executePerItem confirms with one transaction per item, with effects in the same database; before is called in each.
	executePerItem(ctx context.Context, cfg *broker.Config, req broker.Request, before func(broker.Item) error) (
		*contract.OperationResult, error)
	// behindRelay opens the same database again, through a relay that loses the reply of one COMMIT; nil where there is no
	// way on which it could be lost.
	behindRelay(ctx context.Context) (*relayed, error)
	// forums counts the effects of a key that executeTx, executeAtomic and executePerItem made.
	forums(ctx context.Context, key uuid.UUID) (int, error)
	// url opens the same database again, as the same role.
	url() string
	// about says what it is, role whom it is used as ("" where there are no roles), and warnings what is not as it should be.
	about() string
	role() string
	warnings() []string
	close() error
}

// openDatabase makes the database ready and opens it.
func openDatabase(ctx context.Context, url string) (database, error) {
	if isPostgres(url) {
		plain, err := preparePostgres(ctx, url)
		if err != nil {
			return nil, err
		}
		url = plain
	}
	return connect(ctx, url)
}

// connect opens a database that was made ready before.
func connect(ctx context.Context, url string) (database, error) {
	if isPostgres(url) {
		return connectPostgres(ctx, url)
	}
	path, ok := strings.CutPrefix(url, "sqlite:")
	if !ok || path == "" {
		return nil, usageError("-database wants sqlite:PATH or postgres://USER@HOST/DB")
	}
	return openSQLite(ctx, path)
}

func isPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// txDatabase is a database over the transactions of its driver.
type txDatabase[TTx any] struct {
	store            store.Store[TTx]
	begin            func(ctx context.Context) (TTx, error)
	commit, rollback func(ctx context.Context, tx TTx) error
	exec             func(ctx context.Context, tx TTx, sql string, args ...any) error
	queryRow         func(ctx context.Context, tx TTx, sql string, args ...any) interface{ Scan(...any) error }
	shut             func() error
	sql              statements
	relay            func(ctx context.Context) (*relayed, error) // nil: there is no way to the database that could break
	address          string
	text, roleText   string
	warningTexts     []string
}

// statements are the example's own: a matter, whose row carries the surface's version, and its forums.
type statements struct {
	readVersion string // locks the row, so that the check of the surface and the write cannot be separated
	addForum    string
	countForums string
}

func (d *txDatabase[TTx]) url() string   { return d.address }
func (d *txDatabase[TTx]) about() string { return d.text }
func (d *txDatabase[TTx]) role() string  { return d.roleText }
func (d *txDatabase[TTx]) close() error  { return d.shut() }

func (d *txDatabase[TTx]) warnings() []string { return d.warningTexts }

func (d *txDatabase[TTx]) behindRelay(ctx context.Context) (*relayed, error) {
	if d.relay == nil {
		return nil, nil
	}
	return d.relay(ctx)
}

func (d *txDatabase[TTx]) broker(cfg *broker.Config) (confirmer, error) {
	return broker.New(d.store, cfg)
}

func (d *txDatabase[TTx]) executeTx(ctx context.Context, req broker.Request, commit bool) (
	*contract.OperationResult, error,
) {
	b, err := broker.New(d.store, nil)
	if err != nil {
		return nil, err
	}
	tx, err := d.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	res, err := b.ExecuteTx(ctx, tx, broker.TxRequest[TTx]{Request: req, ReadSurface: d.readSurface(req)}, d.executor(req))
	if err != nil || !commit {
		return res, errors.Join(err, d.rollback(ctx, tx))
	}
	if err := d.commit(ctx, tx); err != nil {
		return nil, fmt.Errorf("commit: %w", err) // the result was provisional
	}
	return res, nil
}

func (d *txDatabase[TTx]) executeAtomic(ctx context.Context, req broker.Request) (*contract.OperationResult, error) {
	b, err := broker.New(d.store, nil)
	if err != nil {
		return nil, err
	}
	return b.ExecuteAtomic(ctx, broker.TxRequest[TTx]{Request: req, ReadSurface: d.readSurface(req)}, d.executor(req))
}

func (d *txDatabase[TTx]) executePerItem(ctx context.Context, cfg *broker.Config, req broker.Request,
	before func(broker.Item) error,
) (*contract.OperationResult, error) {
	b, err := broker.New(d.store, cfg)
	if err != nil {
		return nil, err
	}
	add := d.executor(req)
	return b.ExecutePerItem(ctx, req, func(ctx context.Context, tx TTx, it broker.Item) (broker.Outcome, error) {
		if err := before(it); err != nil {
			return broker.Outcome{}, err
		}
		return add(ctx, tx, it)
	})
}

// readSurface reads the matter's version inside the transaction.
func (d *txDatabase[TTx]) readSurface(req broker.Request) func(context.Context, TTx) (
	contract.CurrentSurfaceState, error,
) {
	return func(ctx context.Context, tx TTx) (contract.CurrentSurfaceState, error) {
		now := contract.CurrentSurfaceState{SurfaceKey: req.Confirmation.SurfaceKey}
		row := d.queryRow(ctx, tx, d.sql.readVersion, req.Tenant, string(now.SurfaceKey))
		return now, row.Scan(&now.ContractVersion)
	}
}

// executor adds one forum in the transaction.
func (d *txDatabase[TTx]) executor(req broker.Request) broker.TxExecutor[TTx] {
	return func(ctx context.Context, tx TTx, it broker.Item) (broker.Outcome, error) {
		err := d.exec(ctx, tx, d.sql.addForum, it.Tenant, req.Confirmation.IdempotencyKey.String(), it.ID)
		return broker.Applied(it.ID), err // an error beats an outcome
	}
}

func (d *txDatabase[TTx]) forums(ctx context.Context, key uuid.UUID) (n int, err error) {
	tx, err := d.begin(ctx)
	if err != nil {
		return 0, fmt.Errorf("count the forums: %w", err)
	}
	err = d.queryRow(ctx, tx, d.sql.countForums, key.String()).Scan(&n)
	if err := errors.Join(err, d.rollback(ctx, tx)); err != nil {
		return 0, fmt.Errorf("count the forums: %w", err)
	}
	return n, nil
}
