// Package refusal keeps what ends a stream that is refused on its way.
package refusal

import (
	"sync"

	"github.com/confirmexec/confirmexec/contract"
)

// Latch keeps the first refusal of a stream, which ends it whatever the handler makes of it. Its zero value has none. It is safe for
// concurrent use: one goroutine of the handler may receive while another one sends, and neither needs to have ended with the handler.
type Latch struct {
	ReadOnly bool // the handler only reads, so that a refusal proves what it says at any time

	mu     sync.Mutex
	passed bool // a message was let through: the handler may have acted on it
	err    error
}

// Err returns the refusal; nil when there is none.
func (l *Latch) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Add adds what was found about one message, nil if nothing, and returns the refusal. It does not prove that nothing was done once a
// message was let through, or where the handler acts, as it does when it sends.
func (l *Latch) Add(err error, acts bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	if (l.passed || acts) && !l.ReadOnly {
		l.err = unproven(l.err)
	}
	l.passed = l.passed || l.err == nil
	return l.err
}

// unproven is a refusal beside which something may have been done; nil stays nil.
func unproven(err error) error {
	if f, ok := contract.FailureToTell(err); ok && f.KnownNoEffect() {
		return f.WithUnknownEffect().With(err)
	}
	return err
}
