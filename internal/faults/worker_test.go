package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// orderVariable makes a process of this test's binary a worker.
const orderVariable = "CONFIRMEXEC_FAULTS_ORDER"

// What a worker may be told to do.
const (
	confirming = "confirm"
	resolving  = "resolve"
	cancelling = "cancel"
	purging    = "purge"
)

// workOrder is what a worker is told.
type workOrder struct {
	Call         string
	Mode         string // of the confirm
	Database     string
	Tenant       string
	Confirmation contract.OperationConfirmation
	Lease        time.Duration
	Paper        string   // where it writes what it does
	There        []string // the items whose effect the reader of a Resolve finds
}

// workReport is what a worker that was not killed tells in the end.
type workReport struct {
	Answer string `json:"answer"`
	States string `json:"states"`
}

// hand is what a worker works with.
type hand struct {
	workOrder
	paper *os.File
	pool  *pgxpool.Pool
	b     *broker.Broker[pgx.Tx]
	ended atomic.Int64 // when the end of the executor's context was noticed
}

// work is the worker: it does as ordered, and tells the answer.
func work(order string) int {
	var h hand
	err := json.Unmarshal([]byte(order), &h.workOrder)
	if err != nil {
		return fail(err)
	}
	if h.paper, err = os.OpenFile(h.Paper, os.O_APPEND|os.O_WRONLY, 0); err != nil {
		return fail(err)
	}
	if h.pool, err = pgxpool.New(context.Background(), h.Database); err != nil {
		return fail(err)
	}
	h.b, err = broker.New(pgstore.New(h.pool), &broker.Config{Lease: h.Lease, ReplayWait: -1, PayloadRetention: time.Microsecond})
	if err != nil {
		return fail(err)
	}
	a := h.call(context.Background())
	if err := json.NewEncoder(os.Stdout).Encode(workReport{a.word(), a.states()}); err != nil {
		return fail(err)
	}
	return 0
}

// call does as ordered.
func (h *hand) call(ctx context.Context) (a answer) {
	req := broker.Request{Tenant: h.Tenant, Confirmation: h.Confirmation, Current: fresh}
	switch {
	case h.Call == resolving:
		a.res, a.err = h.b.Resolve(ctx, broker.Resolution{Tenant: h.Tenant, Key: h.Confirmation.IdempotencyKey, By: "the worker"}, h.read)
	case h.Call == cancelling:
		a.res, a.err = h.b.Cancel(ctx, h.Tenant, h.Confirmation.IdempotencyKey)
	case h.Call == purging:
		_, a.err = h.b.Purge(ctx, broker.Page{Tenant: h.Tenant})
	case h.Mode == perItem:
		a.res, a.err = h.b.ExecutePerItem(ctx, req, h.inTransaction)
	case h.Mode == atomically:
		a.res, a.err = h.b.ExecuteAtomic(ctx, broker.TxRequest[pgx.Tx]{Request: req}, h.inTransaction)
	default:
		a.res, a.err = h.b.Execute(ctx, req, h.external)
	}
	return a
}

// write writes down what the worker does.
func (h *hand) write(word string, it broker.Item, more string) error {
	_, err := fmt.Fprintf(h.paper, "%s %s %s %s\n", word, it.ID, it.Attempt, more)
	return err
}

// external is an executor whose effects are on the paper. Each item asks the database something before its effect, so that it has
// boundaries too.
func (h *hand) external(ctx context.Context, it broker.Item) (broker.Outcome, error) {
	defer context.AfterFunc(ctx, func() { h.ended.Store(time.Now().UnixNano()) })()
	if err := h.write("start", it, ""); err != nil {
		return broker.Outcome{}, err
	}
	_, _ = h.pool.Exec(context.Background(), "SELECT 'it is looked up'") // whatever becomes of it, the effect follows
	if it.ID == "b" {
		return broker.Outcome{}, broker.NotApplied(errRefused)
	}
	if err := h.write("done", it, ""); err != nil {
		return broker.Outcome{}, err
	}
	if at := h.ended.Load(); at != 0 && time.Since(time.Unix(0, at)) > tooSlow {
		_ = h.write("slow", it, "")
	}
	return broker.Applied("ref/" + it.ID), nil
}

// inTransaction is an executor whose effects are rows.
func (h *hand) inTransaction(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
	if err := h.write("start", it, ""); err != nil {
		return broker.Outcome{}, err
	}
	xid, err := writeEffect(ctx, tx, it)
	if err != nil {
		return broker.Outcome{}, err
	}
	if err := h.write("in", it, xid); err != nil {
		return broker.Outcome{}, err
	}
	if it.ID == "b" {
		return broker.Outcome{}, errRefused
	}
	return broker.Applied("ref/" + it.ID), nil
}

// read is the reader of a Resolve.
func (h *hand) read(_ context.Context, it broker.Item) (broker.Verdict, error) {
	if slices.Contains(h.There, it.ID) {
		return broker.FoundApplied("ref/"+it.ID, "the order says so"), nil
	}
	return broker.FoundAbsent("the order does not say so"), nil
}

// tooSlow is how long after the end of its context an executor may take to return, on a machine that is not too busy, and still be
// heard: a part of what the broker grants.
const tooSlow = 50 * time.Millisecond

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// read returns the effects of another process.
func (c *trial) read() []effect { return c.written("done") }

// written returns the lines of another process that begin with a word.
func (c *trial) written(word string) (lines []effect) {
	for _, words := range c.papers() {
		if words[0] == word {
			lines = append(lines, effect{words[1], uuid.MustParse(words[2])})
		}
	}
	return lines
}

// papers returns the words of each line of another process.
func (c *trial) papers() (lines [][]string) {
	if c.paper == "" {
		return nil
	}
	content, err := os.ReadFile(c.paper)
	if err != nil {
		c.Fatalf("read the ledger: %v", err)
	}
	for line := range strings.Lines(string(content)) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// begun are the calls on the executor of another process, with the transactions of those that are known to have written.
func (c *trial) begun() (calls []invocation) {
	for _, words := range c.papers() {
		e := effect{words[1], uuid.MustParse(words[2])}
		switch words[0] {
		case "start":
			calls = append(calls, invocation{confirm: elsewhere, item: e.item, attempt: e.attempt})
		case "in":
			calls[len(calls)-1].xid = words[3]
		}
	}
	return calls
}

// elsewhere is the number of a confirm in another process.
const elsewhere = -1
