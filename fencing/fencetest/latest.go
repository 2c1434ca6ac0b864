package fencetest

import (
	"slices"
	"sync"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

// refusals are the codes of whatever a move takes away.
var refusals = []contract.FailureCode{contract.Aborted, contract.Unauthenticated, contract.FailedPrecondition}

// isFenced says whether err is a refusal of a fence.
func isFenced(err error) bool {
	code, ok := contract.CodeOf(err)
	return ok && slices.Contains(fenced, code)
}

// latest is what many goroutines know of who is current. It may be late, as in life.
type latest struct {
	mu     sync.Mutex
	office fencing.Office
	caller fencing.Caller
}

func (l *latest) get() fencing.Caller {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.caller
}

func (l *latest) set(o fencing.Office, c fencing.Caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.Number > l.office.Number {
		l.office = o
	}
	if c.Says.Generation > l.caller.Says.Generation {
		l.caller = c
	}
}

func (l *latest) active() fencing.Office {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.office
}

// move takes office, if asked to, and activates a new session. To be fenced on the way is no error: another mover was quicker.
func (l *latest) move(take func() (fencing.Office, error), activate func(fencing.Office, string) (fencing.Caller, error),
	takes bool, boot string,
) error {
	if takes {
		o, err := take()
		if err != nil {
			return err
		}
		l.set(o, fencing.Caller{})
	}
	c, err := activate(l.active(), boot)
	if err == nil {
		l.set(fencing.Office{}, c)
	}
	if isFenced(err) {
		return nil
	}
	return err
}
