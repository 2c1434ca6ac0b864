package fencing

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// openGate is a gate that is open in generation 2.
func openGate() *Gate { return NewGate(Admission{Generation: 2, Open: true}) }

// enter registers a call that must be let in.
func enter(t *testing.T, g *Gate, callID string) (leave func()) {
	t.Helper()
	leave, err := g.Enter(callID)
	require.NoError(t, err)
	return leave
}

// R57, R89: a call is registered while the gate is open, once, and until it has ended.
func TestGateRegisters(t *testing.T) {
	g := openGate()
	leaveB, leaveA := enter(t, g, "b"), enter(t, g, "a")
	assert.Equal(t, []string{"a", "b"}, g.Calls())
	_, err := g.Enter("a")
	require.ErrorIs(t, err, contract.ErrSecondOperation)
	_, err = g.Enter("")
	require.ErrorIs(t, err, contract.ErrInvalid)
	leaveA()
	leaveA()
	assert.Equal(t, []string{"b"}, g.Calls())

	leaveAgain := enter(t, g, "a")
	leaveA()
	g.Leave("a")
	assert.Equal(t, []string{"a", "b"}, g.Calls(), "the end of an earlier call, or of none, ends no later one")
	leaveAgain()
	leaveB()
	assert.Empty(t, g.Calls())

	enter(t, g, "c")
	assert.EqualValues(t, 1, g.Close(2))
	_, err = g.Enter("d")
	require.Equal(t, standing(ErrClosed, 2), err)
	assert.Equal(t, []string{"c"}, g.Calls())
}

// R92: a gate is what its durable admission is; nothing that is not open lets a call in.
func TestNewGate(t *testing.T) {
	var zero Gate
	for name, g := range map[string]*Gate{
		"zero": &zero, "not started": NewGate(Admission{}), "closed": NewGate(Admission{Generation: 3}),
		"stopped": NewGate(Admission{Generation: 3, Stopped: true}), "unsound": NewGate(Admission{Generation: 3, Open: true, Stopped: true}),
	} {
		_, err := g.Enter("c")
		require.ErrorIs(t, err, ErrClosed, name)
		require.NoError(t, g.Drain(t.Context()), name)
	}
	require.NoError(t, zero.Open(1))
	enter(t, &zero, "c")
	assert.Equal(t, []string{"c"}, zero.Calls())
}

// R88: calls of a process before this one are waited for, until it is known that they have ended.
func TestCallsOutliveAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Admission{Generation: 3, Stopped: true}, "a", "b")
		assert.EqualValues(t, 2, g.Stop())
		done := drainIn(t, g)
		g.Leave("a")
		synctest.Wait()
		assert.Empty(t, done)
		g.Leave("b")
		require.NoError(t, <-done)
	})
}

// drainIn drains in the background.
func drainIn(t *testing.T, g *Gate) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- g.Drain(t.Context()) }()
	synctest.Wait()
	return done
}

// A20: an opening that comes after the close which it preceded does not open the gate again.
func TestLateOpening(t *testing.T) {
	for name, c := range map[string]struct {
		closed, opened int64
		want           error
	}{
		"older":                   {3, 2, ErrMoved},
		"what the close expected": {3, 3, ErrMoved},
		"what the gate was":       {2, 2, ErrMoved},
		"none":                    {3, 0, ErrMoved},
		"newer":                   {3, 4, nil},
		"the close was refused":   {2, 3, nil},
	} {
		g := openGate()
		g.Close(c.closed)
		err := g.Open(c.opened)
		require.ErrorIs(t, err, c.want, name)
		_, err = g.Enter("c")
		require.Equal(t, c.want == nil, err == nil, name)
	}
}

// R45: a close that expects an older generation than the gate was opened with will be refused, and closes nothing.
func TestLateClose(t *testing.T) {
	g := openGate()
	enter(t, g, "a")
	require.NoError(t, g.Open(5))
	for _, late := range []int64{-1, 0, 2, 4} {
		assert.EqualValues(t, 1, g.Close(late))
		enter(t, g, "b")()
		require.Equal(t, standing(ErrMoved, 5), g.Open(5), "nor does it lower the number")
	}
	g.Close(5)
	_, err := g.Enter("b")
	require.ErrorIs(t, err, ErrClosed)
	g.Close(4)
	require.ErrorIs(t, g.Open(5), ErrMoved)
	_, err = g.Enter("b")
	require.ErrorIs(t, err, ErrClosed)
}

// R92: nothing opens a gate that was stopped.
func TestStoppedGate(t *testing.T) {
	g := openGate()
	enter(t, g, "a")
	for range 2 {
		assert.EqualValues(t, 1, g.Stop())
		for _, generation := range []int64{1, 2, 3, 1000} {
			require.ErrorIs(t, g.Open(generation), ErrTerminal)
		}
		_, err := g.Enter("b")
		require.ErrorIs(t, err, ErrTerminal)
		require.ErrorIs(t, err, ErrClosed)
		g.Close(5)
	}
	_, err := g.Enter("b")
	require.ErrorIs(t, err, ErrTerminal)
}

// R89: whatever is on its way while the gate is closed: it is among the calls that the close counted, or is refused.
func TestNoRegistrationAfterClose(t *testing.T) {
	for name, closes := range map[string]func(*Gate) int64{
		"close": func(g *Gate) int64 { return g.Close(2) },
		"stop":  func(g *Gate) int64 { return g.Stop() },
	} {
		for round := range 200 {
			g := openGate()
			var entered, counted atomic.Int64
			var closed atomic.Bool
			var wg sync.WaitGroup
			for caller := range 16 {
				wg.Go(func() {
					for call := range 1000 {
						if caller == 0 && call == round%10 {
							counted.Store(closes(g))
							closed.Store(true)
						}
						late := closed.Load()
						_, err := g.Enter(fmt.Sprint(caller, "/", call))
						if err != nil {
							assert.ErrorIs(t, err, ErrClosed)
							return
						}
						if !assert.False(t, late, "%s: registered after it had returned", name) {
							return
						}
						entered.Add(1)
						runtime.Gosched() // let the others in
					}
				})
			}
			wg.Wait()
			require.Equal(t, entered.Load(), counted.Load(), name)
			require.Len(t, g.Calls(), int(counted.Load()), name)
		}
	}
}

// R88: while calls come and go, a drain ends when none is live, and none is live ever after.
func TestDrainMeansNoneIsLive(t *testing.T) {
	for round := range 50 {
		g := openGate()
		var live atomic.Int64
		var wg sync.WaitGroup
		for caller := range 16 {
			wg.Go(func() {
				for call := range 1000 {
					leave, err := g.Enter(fmt.Sprint(caller, "/", call))
					if err != nil {
						return
					}
					live.Add(1)
					runtime.Gosched()
					live.Add(-1)
					leave()
				}
			})
		}
		for range round { // let some in
			runtime.Gosched()
		}
		g.Close(2)
		require.NoError(t, g.Drain(t.Context()))
		assert.Zero(t, live.Load())
		assert.Empty(t, g.Calls())
		wg.Wait()
	}
}

// R88, R90, R91: a drain waits for the last call; when the time is up the gate stays closed, and it can be drained again.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate()
		leaveA, leaveB := enter(t, g, "a"), enter(t, g, "b")
		g.Close(2)
		left := errors.New("the caller went away")
		for _, end := range []func() (context.Context, context.CancelFunc){
			func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Minute) },
			func() (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(t.Context(), time.Minute, left)
			},
		} {
			ctx, cancel := end()
			err := g.Drain(ctx)
			cancel()
			require.ErrorIs(t, err, ErrDrainTimeout)
			require.ErrorIs(t, err, context.Cause(ctx))
			f, _ := contract.FailureOf(err)
			assert.Equal(t, contract.DeadlineExceeded, f.Code)
			assert.False(t, f.KnownNoEffect(), "it was closed")
			_, err = g.Enter("c")
			require.ErrorIs(t, err, ErrClosed)
		}
		done := []<-chan error{drainIn(t, g), drainIn(t, g)}
		leaveA()
		synctest.Wait()
		for _, d := range done {
			assert.Empty(t, d, "one call is active")
		}
		leaveB()
		for _, d := range done {
			require.NoError(t, <-d)
		}
		require.NoError(t, g.Drain(gone(t)), "nothing is left to wait for")
	})
}

// R88: a call that ends in the last moment has ended.
func TestDrainInTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate()
		enter(t, g, "a")
		g.Close(2)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Drain(ctx) }()
		synctest.Wait()
		g.mu.Lock() // as a leave has it, when the time is up
		cancel()
		clear(g.calls)
		g.change()
		g.mu.Unlock()
		require.NoError(t, <-done)
	})
}

// An open gate is not drained, however few calls are active, and one that opens while it is waited for is not either.
func TestDrainOfAnOpenGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate()
		require.Equal(t, standing(ErrNotDrained, 2), g.Drain(t.Context()))
		leave := enter(t, g, "a")
		g.Close(2)
		done := drainIn(t, g)
		require.NoError(t, g.Open(3))
		require.ErrorIs(t, <-done, ErrNotDrained)
		leave()
	})
}
