package traps

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/faultnet"
	"github.com/confirmexec/confirmexec/internal/pgtest"
)

// Trap 6: pgxpool pings a connection that has been idle for more than a second before it hands it out: a hidden round trip
// at low traffic, also for calls of one trip. It is the pool's, and its owner can switch it off.
func TestPoolPingsIdleConnections(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, c := range map[string]struct {
		change     func(*pgxpool.Config)
		busy, idle int
	}{
		"by default": {func(*pgxpool.Config) {}, 1, 2},
		"switched off": {func(c *pgxpool.Config) {
			c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
		}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counter := faultnet.Count(t, db.AppDSN)
			through := &pgtest.DB{AppDSN: counter.DSN()}
			b := on(t, through.Pool(t, func(pc *pgxpool.Config) {
				pc.MaxConns = 1
				c.change(pc)
			}))
			propose := func() { b.propose("a") }
			propose() // prepares its statements, and the second time what begins its transaction
			propose()
			require.Equal(t, c.busy, counter.During(propose))
			time.Sleep(1100 * time.Millisecond) // the pool looks at the clock; there is no event to wait for
			require.Equal(t, c.idle, counter.During(propose))
		})
	}
}
