//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/faultnet"
	"github.com/confirmexec/confirmexec/internal/pgtest"
)

// processes at a time. Most of them wait for the end of a lease.
const processes = 16

// workLease is that of a worker. It is longer than a process takes to get from one boundary to the next.
const workLease = 2 * time.Second

// job is what a worker does.
type job struct {
	scenario
	call  string
	there []string // what the reader of a Resolve finds
	least int      // how often a process is struck at least; the last boundary may come too late
}

// jobs are the scenarios that a worker plays: the confirms, and the calls that settle or keep a key. A worker has one boundary per item
// more than Execute.
func jobs(t *testing.T) []job {
	play := func(call, name, mode string, least int, there ...string) job {
		for _, s := range scenarios() {
			if s.name == name && s.mode == mode {
				return job{s, call, there, least}
			}
		}
		t.Fatalf("no scenario %s/%s", name, mode)
		return job{}
	}
	return []job{
		play(confirming, "confirm", execute, 39),
		play(confirming, "confirm", perItem, 59),
		play(confirming, "confirm", atomically, 33),
		play(resolving, "resolve", execute, 24, "a", "b"),
		play(cancelling, "cancel", execute, 16),
		play(purging, "purge", perItem, 7),
	}
}

// TestKilledAtEveryBoundary kills the process that confirms, resolves, cancels or purges at each of its boundaries, at each place. The
// key is settled by reading.
func TestKilledAtEveryBoundary(t *testing.T) {
	everyBoundaryOfAProcess(t, syscall.SIGKILL, jobs(t), func(ctx context.Context, p *worker, _ faultnet.Place) {
		if !p.endedByItself() {
			require.True(p, p.status.Signaled() && p.status.Signal() == syscall.SIGKILL, "it was not killed: %v", p.status)
		}
		p.in.Disarm()
		p.aftermath(ctx, p.scenario)
	})
}

// TestStoppedPastItsLease stops the process that confirms at each of its boundaries, settles the key meanwhile, and wakes it up: it
// has lost the key. What it still does outside the database against the verdict is recorded; inside it does nothing more.
func TestStoppedPastItsLease(t *testing.T) {
	var contradicted, open atomic.Int32
	everyBoundaryOfAProcess(t, syscall.SIGSTOP, jobs(t)[:2], func(ctx context.Context, p *worker, at faultnet.Place) {
		if p.endedByItself() {
			p.in.Disarm()
			p.aftermath(ctx, scenario{})
			return
		}
		require.True(p, p.status.Stopped() && p.status.StopSignal() == syscall.SIGSTOP, "it was not stopped: %v", p.status)
		words := []string{"fenced", "replayed", "executed"}
		if p.awaitLease(ctx) == broker.Proposed { // it has not claimed yet: somebody else confirms, perhaps while its claim arrives
			if meanwhile := p.confirm(ctx, "confirm meanwhile", p.calm, p.pool); meanwhile.word() == "in_progress" {
				p.awaitLease(ctx) // its claim has arrived after all
			} else {
				require.Equal(p, allRun, meanwhile.states())
			}
			words = append(words, "in_progress")
		}
		if p.holdsTheKey(ctx) {
			open.Add(1)
			p.resolveAgainst(ctx, at)
		}
		if at == faultnet.Executed {
			p.beforeReading = sync.OnceFunc(p.wake) // the fence is raised by then, and the key not settled
		}
		verdict := p.resolve(ctx, "resolve", p.calm)
		require.NoError(p, verdict.err)
		require.Nil(p, verdict.res.Recovery())
		p.checkFence(ctx)
		before := p.effects()
		p.wake()
		if p.mode == perItem {
			assert.ElementsMatch(p, before, p.effects(), "I7, I8: it has lost the key, and has an effect after all")
		}
		assert.Contains(p, words, p.report().Answer)
		p.afterWaking(ctx, verdict)
		contradicted.Add(int32(len(p.contradicted)))
	})
	if !short() {
		assert.NotZero(t, contradicted.Load(), "no late effect contradicted a verdict")
		assert.NotZero(t, open.Load(), "none was stopped in the open transaction of an item")
	}
}

// holdsTheKey says whether a stopped process has the transaction of an item open, which holds the claim. What it had sent before it
// was stopped has been executed by then.
func (p *worker) holdsTheKey(ctx context.Context) bool {
	p.eventually("the server has done what the stopped process asked for", func() bool {
		var busy int
		err := p.pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state = 'active'`,
			p.workerApplication()).Scan(&busy)
		return err == nil && busy == 0
	})
	cl, found, err := p.claim(ctx, p.tenant, p.c.IdempotencyKey)
	require.NoError(p, err)
	free := new(pgx.Batch)
	free.Queue(`SELECT set_config('app.firm_id', $1, true)`, p.tenant)
	var locked bool
	free.Queue(`SELECT FROM agents.agent_idempotency_key WHERE firm_id = $1 AND request_id = $2 AND boundary = 'operation'
		FOR NO KEY UPDATE SKIP LOCKED`, p.tenant, p.c.IdempotencyKey.String()).Query(func(r pgx.Rows) error {
		locked = !r.Next()
		return r.Err()
	})
	require.NoError(p, p.pool.SendBatch(ctx, free).Close())
	return found && !cl.completed && locked
}

// resolveAgainst resolves against a process that is stopped in the transaction of an item. While it is stopped that is in progress,
// whatever its lease says. When it wakes up, a Resolve that waits gets the key after that transaction. The process itself may have
// been the one to complete it: it has lost its lease, and starts nothing more.
func (p *worker) resolveAgainst(ctx context.Context, at faultnet.Place) {
	a := p.resolve(ctx, "resolve while it holds the key", p.hasty)
	assert.Equal(p, "in_progress", a.word())
	p.checkFence(ctx)
	if at == faultnet.Before {
		p.wake()
		return
	}
	waiting := p.meanwhile(func() answer { return p.resolve(ctx, "resolve, waiting", p.calm) })
	p.eventually("the Resolve waits", func() bool {
		waits, err := p.blocks(ctx, p.workerApplication())
		return err == nil && waits
	})
	p.wake()
	if a := <-waiting; a.word() != "replayed" { // the process was quicker
		assert.Equal(p, "executed", a.word(), "%v", a)
		assert.Equal(p, "fenced", p.report().Answer)
	}
}

// wake wakes the process up and waits until it has done its work.
func (p *worker) wake() {
	if !p.status.Stopped() {
		return
	}
	require.NoError(p, p.cmd.Process.Signal(syscall.SIGCONT))
	p.wait()
	require.True(p, p.endedByItself(), "it did not end by itself: %v", p.status)
}

// afterWaking checks that a verdict stands though the attempt before has gone on.
func (p *worker) afterWaking(ctx context.Context, verdict answer) {
	p.checkOnce()
	if report := p.report(); report.States != "" {
		assert.Equal(p, verdict.states(), report.States)
	}
	st, err := p.calm.Lookup(ctx, p.tenant, p.c.IdempotencyKey)
	require.NoError(p, err)
	said := map[string]contract.OutcomeState{}
	for _, contradiction := range st.Contradictions {
		said[contradiction.Said.ItemID] = contradiction.Said.State
	}
	late, slow := p.lateEffects(verdict), p.written("slow")
	for _, item := range late {
		heard := !slices.ContainsFunc(slow, func(e effect) bool { return e.item == item })
		assert.True(p, said[item] == contract.Applied || !heard, "the late effect on %s is not told as a contradiction: %v", item, said)
		p.contradicted[item] = true
	}
	for item, state := range said {
		assert.True(p, slices.Contains(late, item) && state == contract.Applied, "%s did not become %s late", item, state)
	}
	open, err := p.calm.ListUnresolved(ctx, broker.Page{Tenant: p.tenant})
	require.NoError(p, err)
	assert.Len(p, open, min(len(said), 1))
	runs := p.invocations()
	p.resolve(ctx, "resolve again", p.calm)
	p.confirm(ctx, "confirm in the end", p.calm, p.pool)
	assert.Equal(p, runs, p.invocations(), "I7")
	p.checkOthers(ctx)
	p.checkFence(ctx)
	p.in.Disarm()
	p.checkQuiet(ctx)
	p.checkAll()
}

// lateEffects are the items that were told to have no effect, and have one by now. Only a provisional verdict may be so contradicted.
func (p *worker) lateEffects(verdict answer) (late []string) {
	for _, o := range verdict.res.Outcomes {
		there := slices.ContainsFunc(p.effects(), func(e effect) bool { return e.item == o.ItemID })
		if o.State != contract.Applied && there {
			assert.True(p, o.Provisional, "I11: the verdict on %s is final: %+v", o.ItemID, o)
			late = append(late, o.ItemID)
		}
	}
	return late
}

// worker is a trial in a process of its own.
type worker struct {
	*trial
	job
	cmd     *exec.Cmd
	started chan struct{} // closed when the process runs
	status  syscall.WaitStatus
}

// start starts the process, waits until it has ended or was stopped, and recalls what it has begun.
func (p *worker) start() {
	dir := p.TB.(*testing.T).TempDir()
	p.paper = filepath.Join(dir, uuid.NewString())
	require.NoError(p, os.WriteFile(p.paper, nil, 0o600))
	dsn, err := pgtest.WithDSN(p.in.DSN(), "application_name", p.workerApplication())
	require.NoError(p, err)
	order, err := json.Marshal(workOrder{p.call, p.trial.mode, dsn, p.tenant, p.c, workLease, p.paper, p.there})
	require.NoError(p, err)
	out, err := os.Create(p.paper + ".out")
	require.NoError(p, err)
	defer func() { _ = out.Close() }()
	self, err := os.Executable()
	require.NoError(p, err)
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), orderVariable+"="+string(order))
	p.cmd.Stdout, p.cmd.Stderr = out, out
	require.NoError(p, p.cmd.Start())
	close(p.started)
	p.Cleanup(func() {
		for p.status.Stopped() {
			_ = p.cmd.Process.Kill()
			p.wait()
		}
	})
	p.wait()
	p.calls = append(p.calls, p.begun()...)
	p.checkOnce()
}

// checkOnce checks that the process has started no item twice (I9).
func (p *worker) checkOnce() {
	started := map[string]int{}
	for _, call := range p.begun() {
		if started[call.item]++; started[call.item] > 1 {
			p.Errorf("I9: the process has started item %s %d times", call.item, started[call.item])
		}
	}
}

func (p *worker) workerApplication() string { return p.application() + "/worker" }

// wait waits until the process ends or is stopped.
func (p *worker) wait() {
	for {
		pid, err := syscall.Wait4(p.cmd.Process.Pid, &p.status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		require.NoError(p, err)
		require.Equal(p, p.cmd.Process.Pid, pid)
		return
	}
}

// endedByItself says whether the process has done all its work.
func (p *worker) endedByItself() bool { return p.status.Exited() && p.status.ExitStatus() == 0 }

func (p *worker) report() (r workReport) {
	content, err := os.ReadFile(p.paper + ".out")
	require.NoError(p, err)
	require.NoError(p, json.Unmarshal(content, &r), "%s", content)
	return r
}

// aftermath is what follows when a process has ended or was stopped.
type aftermath func(ctx context.Context, p *worker, at faultnet.Place)

// everyBoundaryOfAProcess sends a signal to a worker at the n-th boundary, n = 1, 2, 3, … until there is none.
func everyBoundaryOfAProcess(t *testing.T, signal syscall.Signal, jobs []job, then aftermath) {
	if short() {
		t.Skip("processes belong to the long form")
	}
	w := newWorld(t)
	slots := make(chan struct{}, processes)
	var all []*enumeration
	var chains sync.WaitGroup
	for _, j := range jobs {
		e := &enumeration{T: t, job: j, struck: map[faultnet.Place]int{}}
		all = append(all, e)
		for _, at := range faultnet.Places {
			chains.Go(func() { e.enumerate(w, signal, at, slots, then) })
		}
	}
	chains.Wait()
	for _, e := range all {
		struck := 0
		for _, at := range faultnet.Places {
			assert.NotZero(t, e.struck[at], "%s: never %s", e.scenario, at)
			struck += e.struck[at]
		}
		t.Logf("%v: %s: %d cases, struck %v, at least %d in all are expected", signal, e.scenario, e.cases, e.struck, e.least)
		assert.GreaterOrEqual(t, struck, e.least, "%s: the enumeration is not whole", e.scenario)
	}
}

// enumeration counts what was done to processes.
type enumeration struct {
	*testing.T
	job
	mu     sync.Mutex
	struck map[faultnet.Place]int
	cases  int
}

// enumerate sends the signal at the n-th boundary for each n that there is, a few of them at the same time.
func (e *enumeration) enumerate(w *world, signal syscall.Signal, at faultnet.Place, slots chan struct{}, then aftermath) {
	const atOnce = 4
	for n := 1; n < mostBoundaries; n += atOnce {
		var ended atomic.Bool
		var row sync.WaitGroup
		for i := range atOnce {
			row.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				if !e.one(w, signal, at, n+i, then) {
					ended.Store(true)
				}
			})
		}
		if row.Wait(); ended.Load() {
			return
		}
	}
	e.Errorf("%v: %s: no end", signal, e.scenario)
}

// one is one case. It says whether there may be more boundaries.
func (e *enumeration) one(w *world, signal syscall.Signal, at faultnet.Place, n int, then aftermath) (more bool) {
	var done sync.WaitGroup
	done.Go(func() {
		name := fmt.Sprintf("%v/%s/%s/%d", signal, e.scenario, at, n)
		p := &worker{trial: newTrial(e.T, w, name, e.mode), job: e.job, started: make(chan struct{})}
		p.contradicted = map[string]bool{}
		defer p.end()
		ctx, cancel := p.bounded(2 * patience)
		defer cancel()
		p.prepare(ctx, p.trial)
		p.in.Arm(n, at, faultnet.Call(signal.String(), func() {
			<-p.started
			_ = p.cmd.Process.Signal(signal)
		}))
		p.start()
		reached, struck := p.in.Reached(), !p.endedByItself()
		whole := !struck && p.report().States == e.want
		then(ctx, p, at)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.cases++
		if struck {
			e.struck[at]++
		}
		more = reached || !whole
	})
	done.Wait()
	return more
}
