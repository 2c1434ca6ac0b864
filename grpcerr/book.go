package grpcerr

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"github.com/confirmexec/confirmexec/contract"
)

// WithActionDone says that the action which the decision about an operation asks for has been done: the state was read again, the
// original operation was queried. The next send of that operation is then allowed, if the decision is about this action and says
// that the same operation may be sent. It is good for one send; the one after that has a decision of its own.
func WithActionDone(ctx context.Context, action contract.Action) context.Context {
	return context.WithValue(ctx, doneKey{}, &actionDone{action: action})
}

type doneKey struct{}

type actionDone struct {
	action contract.Action
	used   atomic.Bool
}

// use says whether the action was done, once.
func (a *actionDone) use(action contract.Action) bool {
	return a != nil && a.action == action && a.used.CompareAndSwap(false, true)
}

func doneOf(ctx context.Context) *actionDone {
	a, _ := ctx.Value(doneKey{}).(*actionDone)
	return a
}

// book remembers the operations that may not be sent again, or not without an action. It is bounded: the operation that was used
// longest ago is forgotten first.
type book struct {
	limit int

	mu    sync.Mutex
	byID  map[operationID]*list.Element
	order *list.List // of *operation, latest first
}

func newBook(limit int) *book {
	return &book{limit: limit, byID: map[operationID]*list.Element{}, order: list.New()}
}

// operationID is what a receiver knows an operation by.
type operationID struct{ method, agent, operation string }

// operation is what is known of one operation over all of its sends.
type operation struct {
	id      operationID
	method  contract.Method
	content content

	open     int  // sends whose effect is not known, those that are under way included
	over     bool // a decision has said that the operation is not sent again
	delivery contract.Delivery
	decision contract.Decision
	last     *CallError // nil: none of the sends has ended with an error
}

// admit enters a send, or refuses it.
func (b *book) admit(id operationID, m contract.Method, c content, done *actionDone) (*operation, *contract.Failure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	op := b.find(id)
	if op == nil {
		op = &operation{id: id, method: m, content: c}
		b.byID[id] = b.order.PushFront(op)
		b.forget()
	} else if why := op.refuse(c, done); why != nil {
		return op, why
	}
	op.open++
	op.delivery, op.decision = contract.SentUnknown, contract.Decide(m, nil, contract.SentUnknown)
	return op, nil
}

// find returns an operation as the one that was used last; nil if there is none.
func (b *book) find(id operationID) *operation {
	element := b.byID[id]
	if element == nil {
		return nil
	}
	b.order.MoveToFront(element)
	return element.Value.(*operation) //nolint:forcetypeassert // nothing else is in it
}

func (b *book) forget() {
	for b.order.Len() > b.limit {
		oldest := b.order.Remove(b.order.Back()).(*operation) //nolint:forcetypeassert // nothing else is in it
		delete(b.byID, oldest.id)
	}
}

// refuse decides about another send.
func (op *operation) refuse(c content, done *actionDone) *contract.Failure {
	switch {
	case !op.content.same(c):
		return ErrContentChanged
	case op.decision.Action == contract.SendOriginal:
		return nil
	case op.decision.SameOperation && done.use(op.decision.Action):
		return nil
	}
	return ErrNotResent
}

// decide enters how a send ended, and makes the decision about the operation that of the error, if there is one.
func (b *book) decide(op *operation, d contract.Decision, delivery contract.Delivery, e *CallError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Effect == contract.EffectNone {
		op.open--
		d = op.held(d)
	}
	if op.over {
		d.Action, d.SameOperation = op.decision.Action, false
	}
	op.over = op.over || !d.SameOperation
	op.decision, op.delivery, op.last = d, delivery, e
	if e != nil {
		e.Decision = d
	}
}

// held is the decision about a send that did nothing, while another may have done something.
func (op *operation) held(d contract.Decision) contract.Decision {
	if op.open == 0 {
		return d
	}
	return held(op.method, d)
}

// held is what is left of a decision when something else may have done what it says was not done: what one send is told does not
// tell what became of another.
func held(m contract.Method, d contract.Decision) contract.Decision {
	if m.ReadOnly || d.Effect != contract.EffectNone {
		return d
	}
	unknown := contract.Decide(m, nil, contract.SentUnknown)
	unknown.SameOperation = unknown.SameOperation && d.SameOperation
	return unknown
}

// settle strikes out an operation whose outcome is known.
func (b *book) settle(op *operation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if element := b.byID[op.id]; element != nil && element.Value == any(op) {
		b.order.Remove(element)
		delete(b.byID, op.id)
	}
}

// view returns what is known of an operation.
func (b *book) view(op *operation) operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *op
}
