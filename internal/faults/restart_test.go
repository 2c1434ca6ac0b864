//go:build unix

package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/faultnet"
	"github.com/confirmexec/confirmexec/internal/pgtest"
)

// minimumRestarts is the least number of cases that make a whole enumeration.
const minimumRestarts = 450

// TestServerCrashesAtEveryBoundary crashes the server at the n-th boundary of every scenario, at each place: one of its processes is
// killed, whereupon it ends all others at once, as an immediate stop does, and recovers from its log. The cases of the same n share
// a crash: it comes when all of them stand at their boundary.
func TestServerCrashesAtEveryBoundary(t *testing.T) {
	switch {
	case short():
		t.Skip("crashes of the server belong to the long form")
	case os.Getenv("CONFIRMEXEC_TEST_DSN") != "":
		t.Skip("SKIPPED: the server is not ours to crash")
	}
	m := newMatrix()
	db := pgtest.New(t)
	if !isHere(t, db) {
		t.Skip("SKIPPED: the server's processes are not this machine's")
	}
	type chain struct {
		*world
		scenario
		at faultnet.Place
	}
	var chains []chain
	for _, s := range scenarios() {
		if s.taps || s.warm || s.read && s.refused != "" { // which does no more at any boundary than one that is not stale
			continue
		}
		w := newWorld(t)
		for _, at := range faultnet.Places {
			chains = append(chains, chain{w, s, at})
		}
	}
	crash := fault{name: "crash", kind: func(func()) faultnet.Kind { return faultnet.Call("crash", func() {}) }}
	for n := 1; len(chains) > 0 && n < mostBoundaries; n++ {
		meet := newMeeting(len(chains))
		over := make([]bool, len(chains))
		var all sync.WaitGroup
		for i, c := range chains {
			all.Go(func() {
				cell := c.at.String() + "/" + crash.name
				r := newRun(t, c.world, c.scenario, fmt.Sprintf("%s/%s/%d", c.scenario, cell, n))
				r.meet = meet
				r.do(func(func()) { r.in.Arm(n, c.at, faultnet.Call("crash", meet.arrive)) })
				m.add(r, cell)
				over[i] = !r.reached
			})
		}
		if <-meet.complete; meet.arrived > 0 {
			crashServer(t, db)
		}
		close(meet.over)
		all.Wait()
		chains = slices.DeleteFunc(chains, func(chain) bool { gone := over[0]; over = over[1:]; return gone })
	}
	assert.Empty(t, chains, "no end")
	m.report(t, []fault{crash}, minimumRestarts)
}

// isHere says whether the number of a server's process is that of one on this machine: it then has the database's name in its title.
func isHere(t *testing.T, db *pgtest.DB) bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.AppDSN)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	title, err := exec.CommandContext(t.Context(), "ps", "-o", "command=", "-p", strconv.Itoa(int(conn.PgConn().PID()))).Output()
	return err == nil && strings.Contains(string(title), conn.Config().Database)
}

// crashServer kills a process of the server. It returns when the server has ended all of them; it then recovers.
func crashServer(t *testing.T, db *pgtest.DB) {
	t.Helper()
	var victims [2]*pgx.Conn
	for i := range victims {
		conn, err := pgx.Connect(context.Background(), db.AppDSN)
		require.NoError(t, err)
		victims[i] = conn
	}
	require.NoError(t, syscall.Kill(int(victims[0].PgConn().PID()), syscall.SIGKILL))
	_, err := victims[1].Exec(context.Background(), "SELECT pg_sleep($1)", patience.Seconds())
	require.Error(t, err, "the server goes on")
	for _, conn := range victims {
		_ = conn.Close(context.Background())
	}
}
