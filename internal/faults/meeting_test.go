package faults

import (
	"context"
	"sync"
)

// meeting is where cases wait for something that happens to all of them.
type meeting struct {
	complete chan struct{} // closed when everybody is there or has left
	over     chan struct{} // closed when it has happened

	mu                sync.Mutex
	expected, arrived int
}

func newMeeting(expected int) *meeting {
	return &meeting{complete: make(chan struct{}), over: make(chan struct{}), expected: expected}
}

// arrive waits until it has happened.
func (m *meeting) arrive() {
	m.mu.Lock()
	m.arrived++
	m.mu.Unlock()
	m.leave()
	<-m.over
}

// leave is for who will not arrive.
func (m *meeting) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.expected--; m.expected == 0 {
		close(m.complete)
	}
}

// survive waits until it has happened, to this case or to others, and the server is there again.
func (r *run) survive(ctx context.Context) {
	if r.meet == nil {
		return
	}
	if !r.fired {
		r.meet.leave()
	}
	<-r.meet.over
	r.eventually("the server recovers", func() bool {
		r.pool.Reset()
		return r.pool.Ping(ctx) == nil
	})
}
