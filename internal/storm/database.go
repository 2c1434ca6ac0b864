package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Everyone waits long enough for most losers to see the winner's result. The store's timeout is longer than that of the
// locks, as the broker asks for.
const (
	lockTimeout  = 30 * time.Second
	replayWait   = 30 * time.Second
	storeTimeout = time.Minute
)

// tenant owns all keys.
const tenant = "storm"

// effect is what an executor does once: an item of a key.
type effect struct{ key, item string }

// counts are how often each effect happened.
type counts map[effect]int

// database is where the claims are.
type database interface {
	target
	propose(ctx context.Context, p contract.OperationProposal) (contract.OperationConfirmation, error)
	// rows counts the effects of a run that are in the table.
	rows(ctx context.Context, run string) (counts, error)
	// about says what it is, for the reader.
	about() string
	close() error
}

// place is what a process needs to know to take part in a run.
type place struct {
	Database    string // as prepare returned it
	Connections int    // at most, in each process; SQLite has its own rule
	Run         string // tells the effects of this run from others in the same table
	Ledger      string // the file of the effects outside the database
}

func isPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

func isSQLite(url string) bool {
	return strings.HasPrefix(url, sqlitePrefix) && url != sqlitePrefix
}

// prepare makes the database ready for the processes, and fills in how they get there.
func prepare(ctx context.Context, o *options, p *place) error {
	if isPostgres(p.Database) {
		return preparePostgres(ctx, o, p)
	}
	return prepareSQLite(ctx, p)
}

// open opens a database that was prepared. Only processes that confirm need a ledger.
func open(ctx context.Context, p place, l *ledger) (database, error) {
	if isPostgres(p.Database) {
		return openPostgres(ctx, p, l)
	}
	return openSQLite(ctx, p, l)
}

// txDatabase is a database over the transactions of its driver.
type txDatabase[TTx any] struct {
	broker           *broker.Broker[TTx]
	begin            func(ctx context.Context) (TTx, error)
	commit, rollback func(ctx context.Context, tx TTx) error
	add              func(ctx context.Context, tx TTx, e effect, pid int) error
	count            func(ctx context.Context, run string) (counts, error)
	text             string
	shut             func() error
	ledger           *ledger
}

func newBroker[TTx any](st store.Store[TTx]) (*broker.Broker[TTx], error) {
	return broker.New(st, &broker.Config{ReplayWait: replayWait, StoreTimeout: storeTimeout})
}

func (d *txDatabase[TTx]) about() string { return d.text }
func (d *txDatabase[TTx]) close() error  { return d.shut() }

func (d *txDatabase[TTx]) propose(ctx context.Context, p contract.OperationProposal) (
	contract.OperationConfirmation, error,
) {
	return d.broker.Propose(ctx, tenant, p)
}

func (d *txDatabase[TTx]) rows(ctx context.Context, run string) (counts, error) {
	n, err := d.count(ctx, run)
	if err != nil {
		return nil, fmt.Errorf("count the effects: %w", err)
	}
	return n, nil
}

func (d *txDatabase[TTx]) execute(ctx context.Context, req broker.Request) (*contract.OperationResult, error) {
	return d.broker.Execute(ctx, req, d.enter)
}

// enter is the executor with effects outside the database. Its reference names the attempt, so that every replay shows
// whose outcomes it tells.
func (d *txDatabase[TTx]) enter(_ context.Context, it broker.Item) (broker.Outcome, error) {
	return broker.Applied(it.Attempt.String()), d.ledger.enter(effectOf(it)) // an error beats an outcome
}

func (d *txDatabase[TTx]) executePerItem(ctx context.Context, req broker.Request) (*contract.OperationResult, error) {
	return d.broker.ExecutePerItem(ctx, req, d.insert)
}

func (d *txDatabase[TTx]) executeAtomic(ctx context.Context, req broker.Request) (*contract.OperationResult, error) {
	return d.broker.ExecuteAtomic(ctx, broker.TxRequest[TTx]{Request: req}, d.insert)
}

func (d *txDatabase[TTx]) executeTx(ctx context.Context, req broker.Request) (*contract.OperationResult, error) {
	tx, err := d.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	res, err := d.broker.ExecuteTx(ctx, tx, broker.TxRequest[TTx]{Request: req}, d.insert)
	if err != nil {
		return nil, errors.Join(err, d.rollback(ctx, tx))
	}
	if err := d.commit(ctx, tx); err != nil {
		return nil, fmt.Errorf("commit: %w", err) // the result was provisional
	}
	return res, nil
}

// insert is the executor with effects in the transaction.
func (d *txDatabase[TTx]) insert(ctx context.Context, tx TTx, it broker.Item) (broker.Outcome, error) {
	return broker.Applied(it.Attempt.String()), d.add(ctx, tx, effectOf(it), os.Getpid())
}

func effectOf(it broker.Item) effect { return effect{it.OperationKey.String(), it.ID} }

// rows is what both drivers' results have in common.
type rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}

// readCounts reads rows of key, item and number.
func readCounts(r rows) (counts, error) {
	all := counts{}
	for r.Next() {
		var e effect
		var n int
		if err := r.Scan(&e.key, &e.item, &n); err != nil {
			return nil, err
		}
		all[e] = n
	}
	return all, r.Err()
}
