package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// orderVariable makes a process of this test's binary a worker.
const orderVariable = "CONFIRMEXEC_FAULTS_ORDER"

// workOrder is what a worker is told.
type workOrder struct {
	Database     string
	Tenant       string
	Confirmation contract.OperationConfirmation
	Lease        time.Duration
	Paper        string // where its effects go
}

// workReport is what a worker that was not killed tells in the end.
type workReport struct {
	Answer string `json:"answer"`
	States string `json:"states"`
}

// work is the worker: it executes as ordered, and writes into the ledger what it starts and what it has done. Each item asks the
// database something before its effect, so that it has boundaries too.
func work(order string) int {
	var o workOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return fail(err)
	}
	paper, err := os.OpenFile(o.Paper, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fail(err)
	}
	pool, err := pgxpool.New(context.Background(), o.Database)
	if err != nil {
		return fail(err)
	}
	b, err := broker.New(pgstore.New(pool), &broker.Config{Lease: o.Lease, ReplayWait: -1})
	if err != nil {
		return fail(err)
	}
	req := broker.Request{Tenant: o.Tenant, Confirmation: o.Confirmation, Current: fresh}
	var ended atomic.Int64 // when the end of the executor's context was noticed
	res, err := b.Execute(context.Background(), req, func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
		defer context.AfterFunc(ctx, func() { ended.Store(time.Now().UnixNano()) })()
		if _, err := fmt.Fprintf(paper, "start %s %s\n", it.ID, it.Attempt); err != nil {
			return broker.Outcome{}, err
		}
		_, _ = pool.Exec(context.Background(), "SELECT 'it is looked up'") // whatever becomes of it, the effect follows
		if it.ID == "b" {
			return broker.Outcome{}, broker.NotApplied(errRefused)
		}
		if _, err := fmt.Fprintf(paper, "done %s %s\n", it.ID, it.Attempt); err != nil {
			return broker.Outcome{}, err
		}
		if at := ended.Load(); at != 0 && time.Since(time.Unix(0, at)) > tooSlow {
			_, _ = fmt.Fprintf(paper, "slow %s %s\n", it.ID, it.Attempt)
		}
		return broker.Applied("ref/" + it.ID), nil
	})
	a := answer{res: res, err: err}
	if err := json.NewEncoder(os.Stdout).Encode(workReport{a.word(), a.states()}); err != nil {
		return fail(err)
	}
	return 0
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
	if c.paper == "" {
		return nil
	}
	content, err := os.ReadFile(c.paper)
	if err != nil {
		c.Fatalf("read the ledger: %v", err)
	}
	for line := range strings.Lines(string(content)) {
		if words := strings.Fields(line); words[0] == word {
			lines = append(lines, effect{words[1], uuid.MustParse(words[2])})
		}
	}
	return lines
}
