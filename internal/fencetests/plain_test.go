package fencetests

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/fencing/fencetest"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
)

// plain is an implementation that shares nothing with package fencing: offices, sessions and tokens in tables and statements of its
// own, as a service may have them.
type plain struct{ lock string }

const plainSchema = `
CREATE TABLE plain_office (one boolean PRIMARY KEY DEFAULT true CHECK (one), epoch text NOT NULL, number bigint NOT NULL);
CREATE TABLE plain_session (peer text PRIMARY KEY, agent text NOT NULL, cell text NOT NULL, boot text NOT NULL DEFAULT '',
    generation bigint NOT NULL DEFAULT 0, epoch text NOT NULL DEFAULT '');
CREATE TABLE plain_token (resource text PRIMARY KEY, token bigint NOT NULL, holder text NOT NULL);
CREATE TABLE plain_log (one boolean PRIMARY KEY DEFAULT true CHECK (one), lines text[] NOT NULL);
INSERT INTO plain_log (lines) VALUES ('{}');
`

// R118: an implementation of a service's own keeps the rules, if its checks lock what they read.
func TestPlain(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Harness[pgx.Tx] { return onPlain(pgtest.New(t).Pool(t), "FOR SHARE") })
}

func onPlain(pool *pgxpool.Pool, lock string) fencetest.Harness[pgx.Tx] {
	p := plain{lock}
	return fencetest.Harness[pgx.Tx]{
		Offices:  fencetest.Offices[pgx.Tx]{TakeOffice: p.takeOffice, HoldOffice: p.holdOffice},
		Sessions: fencetest.Sessions[pgx.Tx]{Approve: p.approve, Activate: p.activate, Hold: p.hold},
		Tokens:   &fencetest.Tokens[pgx.Tx]{Show: p.show},
		Begin:    pool.Begin,
		Commit:   func(ctx context.Context, tx pgx.Tx) error { return retried(tx.Commit(ctx)) },
		Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		Append: func(ctx context.Context, tx pgx.Tx, line string) error {
			_, err := tx.Exec(ctx, `UPDATE plain_log SET lines = lines || $1::text`, line)
			return retried(err)
		},
		Lines: func(ctx context.Context) (lines []string, err error) {
			return lines, pool.QueryRow(ctx, `SELECT lines FROM plain_log`).Scan(&lines)
		},
		Snapshot: func(ctx context.Context) (string, error) { return dumpPlain(ctx, pool) },
		Restart: func(*testing.T) fencetest.Harness[pgx.Tx] {
			pool.Reset()
			return onPlain(pool, lock)
		},
	}
}

func dumpPlain(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	rows, err := pool.Query(ctx, `SELECT t::text || xmin::text FROM plain_office t UNION ALL SELECT t::text || xmin::text FROM plain_session t
    UNION ALL SELECT t::text || xmin::text FROM plain_token t ORDER BY 1`)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(lines, "\n"), err
}

// retried says of a deadlock that the transaction must be run again.
func retried(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && (e.Code == "40P01" || e.Code == "40001") {
		return errors.Join(store.ErrRetryTx, err)
	}
	return err
}

func refusal(code contract.FailureCode, current int64) error {
	return &contract.Failure{Code: code, Effect: contract.EffectNone, Message: "refused", Current: current}
}

func (plain) takeOffice(ctx context.Context, tx pgx.Tx) (o fencing.Office, err error) {
	err = tx.QueryRow(ctx, `INSERT INTO plain_office (epoch, number) VALUES ($1, 1)
    ON CONFLICT (one) DO UPDATE SET epoch = EXCLUDED.epoch, number = plain_office.number + 1 RETURNING epoch, number`, rand.Text()).
		Scan(&o.Epoch, &o.Number)
	return o, retried(err)
}

func (p plain) holdOffice(ctx context.Context, tx pgx.Tx, e fencing.Epoch) error {
	var o fencing.Office
	err := tx.QueryRow(ctx, `SELECT epoch, number FROM plain_office `+p.lock).Scan(&o.Epoch, &o.Number)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refusal(contract.Aborted, 0)
	case err != nil:
		return retried(err)
	case e == "" || e != o.Epoch:
		return refusal(contract.Aborted, o.Number)
	}
	return nil
}

func (p plain) approve(ctx context.Context, tx pgx.Tx, e fencing.Epoch, peer, agentID, cellID string) error {
	if err := p.holdOffice(ctx, tx, e); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO plain_session AS s (peer, agent, cell) VALUES ($1, $2, $3)
    ON CONFLICT (peer) DO UPDATE SET agent = $2, cell = $3, boot = '', epoch = '' WHERE s.agent <> $2 OR s.cell <> $3`, peer, agentID, cellID)
	return retried(err)
}

func (p plain) activate(ctx context.Context, tx pgx.Tx, e fencing.Epoch, peer string, says fencing.Binding) (g int64, err error) {
	if err := p.holdOffice(ctx, tx, e); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `UPDATE plain_session SET boot = $4, generation = generation + 1, epoch = $5
    WHERE peer = $1 AND agent = $2 AND cell = $3 RETURNING generation`, peer, says.AgentID, says.CellID, says.BootID, e).Scan(&g)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, refusal(contract.PermissionDenied, 0)
	}
	return g, retried(err)
}

func (p plain) hold(ctx context.Context, tx pgx.Tx, c fencing.Caller) error {
	officeErr := p.holdOffice(ctx, tx, c.Epoch)
	if _, refused := contract.FailureOf(officeErr); officeErr != nil && !refused {
		return officeErr
	}
	var s fencing.Session
	err := tx.QueryRow(ctx, `SELECT agent, cell, boot, generation, epoch FROM plain_session WHERE peer = $1 `+p.lock, c.Peer).
		Scan(&s.AgentID, &s.CellID, &s.BootID, &s.Generation, &s.Epoch)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return refusal(contract.Unauthenticated, 0)
	case err != nil:
		return retried(err)
	case c.Says.AgentID != s.AgentID || c.Says.CellID != s.CellID:
		return refusal(contract.PermissionDenied, 0)
	case s.BootID == "" || c.Says.BootID != s.BootID || c.Says.Generation != s.Generation:
		return refusal(contract.Unauthenticated, s.Generation)
	case c.Epoch != s.Epoch:
		return refusal(contract.Aborted, 0)
	}
	return officeErr
}

func (p plain) show(ctx context.Context, tx pgx.Tx, c fencing.Caller, resource string, token int64, holder string) error {
	if err := p.hold(ctx, tx, c); err != nil {
		return err
	}
	if token <= 0 {
		return refusal(contract.InvalidArgument, 0)
	}
	tag, err := tx.Exec(ctx, `INSERT INTO plain_token AS t (resource, token, holder) VALUES ($1, $2, $3)
    ON CONFLICT (resource) DO UPDATE SET token = $2, holder = $3 WHERE t.token < $2 OR t.token = $2 AND t.holder = $3`, resource, token, holder)
	if err != nil || tag.RowsAffected() > 0 {
		return retried(err)
	}
	var current int64
	if err := tx.QueryRow(ctx, `SELECT token FROM plain_token WHERE resource = $1`, resource).Scan(&current); err != nil {
		return retried(err)
	}
	return refusal(contract.Aborted, current)
}
