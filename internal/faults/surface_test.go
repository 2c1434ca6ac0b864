package faults

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// movedVersion is that of a surface that has moved. It never moves back.
const movedVersion = "v2"

// surfaceScenarios are those in which the surface moves: it is read inside the transaction, or the caller reads it while a first
// confirm is under way.
func surfaceScenarios() []scenario {
	var all []scenario
	for _, mode := range []string{inTx, atomically} {
		all = append(all,
			scenario{name: "confirm, surface read inside", mode: mode, prepare: layOut, want: allRun, read: true,
				run: func(ctx context.Context, c *trial) answer {
					return c.confirm(ctx, "confirm, faulted", c.br, c.shaky)
				},
				after: func(_ context.Context, c *trial) { c.surface.moves(c) }},
			scenario{name: "stale confirm, surface read inside", mode: mode, refused: "stale", read: true,
				prepare: func(ctx context.Context, c *trial) {
					layOut(ctx, c)
					c.surface.moves(c)
				},
				run: func(ctx context.Context, c *trial) answer {
					return c.confirm(ctx, "stale confirm, faulted", c.br, c.shaky)
				}})
	}
	for _, mode := range modes {
		all = append(all, scenario{name: "stale confirm beside a first one", mode: mode, prepare: func(context.Context, *trial) {},
			run: staleBesideFirst, want: allRun, refused: "in_progress", taps: true})
	}
	return all
}

// surface is a row, and somebody else who moves it once.
type surface struct {
	pool  *pgxpool.Pool // the mover's own
	begin sync.Once
	moved chan struct{} // closed when it has moved
}

// layOut makes the surface, as it was proposed for.
func layOut(ctx context.Context, c *trial) {
	c.surface = &surface{pool: c.aside(), moved: make(chan struct{})}
	_, err := c.pool.Exec(ctx, `INSERT INTO public.surface (key, version) VALUES ($1, $2)`, c.c.IdempotencyKey, fresh.ContractVersion)
	require.NoError(c, err)
}

// aside are connections of the trial's own on the calm way: what holds a lock for long does not keep the world's.
func (c *trial) aside() *pgxpool.Pool {
	dsn, err := pgtest.WithDSN(c.db.AppDSN, "application_name", c.besideApplication())
	require.NoError(c, err)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(c, err)
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(c, err)
	c.Cleanup(pool.Close)
	return pool
}

func (c *trial) besideApplication() string { return c.application() + "/beside" }

// readSurface reads the surface and locks it. Once it has, somebody else wants to move it, who has to wait then until the
// transaction is over.
func (c *trial) readSurface(ctx context.Context, tx pgx.Tx) (contract.CurrentSurfaceState, error) {
	current := fresh
	err := tx.QueryRow(ctx, `SELECT version FROM public.surface WHERE key = $1 FOR SHARE`, c.c.IdempotencyKey).Scan(&current.ContractVersion)
	if err == nil && current == fresh {
		c.surface.start(c)
		c.eventually("somebody else waits to move the surface", func() bool {
			select {
			case <-c.surface.moved: // the transaction is gone already
				return true
			default:
			}
			waits, err := c.blocks(context.WithoutCancel(ctx), c.application())
			return err == nil && waits
		})
	}
	return current, err
}

// moves moves the surface, unless that was begun before, and waits until it has moved.
func (s *surface) moves(c *trial) {
	s.start(c)
	<-s.moved
}

func (s *surface) start(c *trial) {
	s.begin.Do(func() {
		ctx, cancel := c.bounded(2 * patience)
		c.Cleanup(cancel)
		go func() {
			defer close(s.moved)
			c.eventually("the surface moves", func() bool { // the server may be recovering
				return ctx.Err() != nil || s.move(ctx, c) == nil
			})
		}()
	})
}

// move moves the surface, and writes down with it what of the key was committed by then: the statement that looks comes after the
// lock, which whoever has read the surface before holds until his transaction has ended.
func (s *surface) move(ctx context.Context, c *trial) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		b := new(pgx.Batch)
		b.Queue(`SELECT set_config('app.firm_id', $1, true)`, c.tenant)
		b.Queue(`SELECT FROM public.surface WHERE key = $1 FOR UPDATE`, c.c.IdempotencyKey)
		b.Queue(`UPDATE public.surface SET version = $2, effects = (SELECT count(*) FROM public.effect WHERE key = $1),
				claims = (SELECT count(*) FROM agents.agent_idempotency_key WHERE request_id = $3 AND boundary = 'operation')
			WHERE key = $1 AND version <> $2`, c.c.IdempotencyKey, movedVersion, c.c.IdempotencyKey.String())
		return tx.SendBatch(ctx, b).Close()
	})
}

// seenByMover is what was committed of the key when its surface moved.
func (c *trial) seenByMover(ctx context.Context) (claims, effects int, err error) {
	return claims, effects, c.pool.QueryRow(ctx, `SELECT claims, effects FROM public.surface WHERE key = $1`, c.c.IdempotencyKey).
		Scan(&claims, &effects)
}

// staleBesideFirst confirms what is stale by now while a first confirm, which was not, runs: its executor waits until the stale
// one waits for it, is answered or is broken. The stale one is never told that it is stale: there is a claim.
func staleBesideFirst(ctx context.Context, c *trial) answer {
	pool := c.aside()
	b := newBroker(c, pgstore.New(pool), broker.Config{Lease: patience, ReplayWait: -1})
	inside, release := make(chan struct{}), make(chan struct{})
	c.beforeItem = sync.OnceFunc(func() {
		close(inside)
		<-release
	})
	first := c.meanwhile(func() answer {
		ctx, cancel := c.bounded(patience)
		defer cancel()
		return c.confirm(ctx, "first confirm", b, pool)
	})
	select {
	case <-inside:
	case a := <-first:
		c.Fatalf("the first confirm runs nothing: %v", a)
	}
	c.moved = true
	stale := c.meanwhile(func() answer { return c.confirm(ctx, "stale confirm, faulted", c.br, c.shaky) })
	var told answer
	var answered bool
	c.eventually("the stale confirm waits, is answered or is broken", func() bool {
		select {
		case told = <-stale:
			answered = true
			return true
		default:
		}
		waits, err := c.blocks(context.WithoutCancel(ctx), c.besideApplication())
		return err == nil && waits || c.in.Fired()
	})
	close(release)
	if !answered {
		told = <-stale
	}
	if a := <-first; a.states() != allRun {
		c.Errorf("beside a stale confirm the first one is told %v", a)
	}
	return told
}

// meanwhile runs f, and tells its answer, or that there is none because the trial has failed.
func (c *trial) meanwhile(f func() answer) <-chan answer {
	told := make(chan answer, 1)
	go func() {
		defer close(told)
		told <- f()
	}()
	return told
}
