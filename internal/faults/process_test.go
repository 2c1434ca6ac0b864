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
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/faultnet"
)

// processes at a time.
const processes = 8

// workLease is that of a worker. It is longer than a process takes to get from one boundary to the next.
const workLease = 2 * time.Second

// What a whole enumeration has at least. A worker has one boundary per item more than Execute.
const minimumProcesses = 36

// TestKilledAtEveryBoundary kills the process that confirms at each of its boundaries, at each place. The key is settled by reading.
func TestKilledAtEveryBoundary(t *testing.T) {
	everyBoundaryOfAProcess(t, syscall.SIGKILL, func(ctx context.Context, p *worker, _ faultnet.Place) {
		if !p.endedByItself() {
			require.True(p, p.status.Signaled() && p.status.Signal() == syscall.SIGKILL, "it was not killed: %v", p.status)
		}
		p.in.Disarm()
		p.aftermath(ctx, scenario{})
	})
}

// TestStoppedPastItsLease stops the process that confirms at each of its boundaries, settles the key meanwhile, and wakes it up: it
// has lost the key, and what it still does against the verdict is recorded.
func TestStoppedPastItsLease(t *testing.T) {
	var contradicted atomic.Int32
	everyBoundaryOfAProcess(t, syscall.SIGSTOP, func(ctx context.Context, p *worker, at faultnet.Place) {
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
		if at == faultnet.Executed {
			p.beforeReading = sync.OnceFunc(p.wake) // the fence is raised by then, and the key not settled
		}
		verdict := p.resolve(ctx, "resolve", p.calm)
		require.NoError(p, verdict.err)
		require.Nil(p, verdict.res.Recovery())
		p.checkFence(ctx)
		p.wake()
		assert.Contains(p, words, p.report().Answer)
		p.afterWaking(ctx, verdict)
		contradicted.Add(int32(len(p.contradicted)))
	})
	if !short() {
		assert.NotZero(t, contradicted.Load(), "no late effect contradicted a verdict")
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
	cmd     *exec.Cmd
	started chan struct{} // closed when the process runs
	status  syscall.WaitStatus
}

// start starts the process, waits until it has ended or was stopped, and recalls what it has begun.
func (p *worker) start() {
	dir := p.TB.(*testing.T).TempDir()
	p.paper = filepath.Join(dir, uuid.NewString())
	require.NoError(p, os.WriteFile(p.paper, nil, 0o600))
	order, err := json.Marshal(workOrder{p.in.DSN(), p.tenant, p.c, workLease, p.paper})
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
	for _, e := range p.written("start") {
		p.calls = append(p.calls, invocation{confirm: -1, item: e.item, attempt: e.attempt})
	}
	assert.LessOrEqual(p, len(p.calls), len(items), "I9")
}

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
func everyBoundaryOfAProcess(t *testing.T, signal syscall.Signal, then aftermath) {
	if short() {
		t.Skip("processes belong to the long form")
	}
	w := newWorld(t)
	all := &enumeration{T: t, struck: map[faultnet.Place]int{}}
	slots := make(chan struct{}, processes)
	var chains sync.WaitGroup
	for _, at := range faultnet.Places {
		chains.Go(func() {
			for n := 1; n < mostBoundaries; n++ {
				slots <- struct{}{}
				more := all.one(w, signal, at, n, then)
				<-slots
				if !more {
					return
				}
			}
		})
	}
	chains.Wait()
	t.Logf("%v: %d cases, at least %d are expected; struck %v", signal, all.cases, minimumProcesses, all.struck)
	assert.GreaterOrEqual(t, all.cases, minimumProcesses)
	for _, at := range faultnet.Places {
		assert.NotZero(t, all.struck[at], "never %s", at)
	}
}

// enumeration counts what was done to processes.
type enumeration struct {
	*testing.T
	mu     sync.Mutex
	struck map[faultnet.Place]int
	cases  int
}

// one is one case. It says whether there may be more boundaries.
func (e *enumeration) one(w *world, signal syscall.Signal, at faultnet.Place, n int, then aftermath) (more bool) {
	var done sync.WaitGroup
	done.Go(func() {
		p := &worker{trial: newTrial(e.T, w, fmt.Sprintf("%v/%s/%d", signal, at, n), execute), started: make(chan struct{})}
		p.contradicted = map[string]bool{}
		defer p.end()
		ctx, cancel := p.bounded(2 * patience)
		defer cancel()
		p.in.Arm(n, at, faultnet.Call(signal.String(), func() {
			<-p.started
			_ = p.cmd.Process.Signal(signal)
		}))
		p.start()
		reached, struck := p.in.Reached(), !p.endedByItself()
		whole := !struck && p.report().States == allRun
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
