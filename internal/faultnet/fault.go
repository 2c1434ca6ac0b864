package faultnet

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Place says where at a boundary a fault strikes. A boundary is a client's flight: what ends with Sync or Query.
type Place int

// The three places.
const (
	Before   Place = iota + 1 // the server never gets the flight
	Executed                  // the server has executed the flight, and its answer is not relayed
	Replied                   // the client has been sent the whole answer
)

// Places are all of them, in order.
var Places = []Place{Before, Executed, Replied}

// String is the place's name.
func (p Place) String() string {
	return map[Place]string{Before: "before", Executed: "executed", Replied: "replied"}[p]
}

// Kind is what a fault does. Make one with the functions below, or take one of the variables.
type Kind struct {
	name   string
	strike func(s *session, at Place, kept []message) // kept has not been relayed: Before the flight, Executed its answer
	only   Place                                      // the one place where it can strike; 0: everywhere
	state  string                                     // of an ERROR, which the server itself is made to answer
}

// String is the kind's name.
func (k Kind) String() string { return k.name }

// Then is the fault with a call after it: of what begins with the fault, such as a caller's patience.
func (k Kind) Then(f func()) Kind {
	strike := k.strike
	if strike == nil {
		return k // an ERROR ends with its answer
	}
	k.strike = func(s *session, at Place, kept []message) {
		strike(s, at, kept)
		f()
	}
	return k
}

// Possible says whether the fault can strike there. An ERROR is an answer, and a flight that has been answered gets no other; what
// is Late has not been executed yet.
func (k Kind) Possible(at Place) bool {
	return (k.state == "" || at != Replied) && (k.only == 0 || k.only == at)
}

// The faults that only need a connection.
var (
	// Reset breaks the connection: the client reads and writes a reset, the server sees the client gone.
	Reset = Kind{name: "reset", strike: func(s *session, _ Place, _ []message) { s.reset() }}

	// HalfClose ends the stream to the client in an orderly way, without a word. What the client still says is swallowed, and the
	// server sees the client gone.
	HalfClose = Kind{name: "half-close", strike: func(s *session, _ Place, _ []message) {
		s.mute.Store(true)
		_ = s.server.Close()
		_ = finish(s.client)
	}}

	// Silence swallows everything from then on, both ways, until the client gives up; then the server sees the client gone.
	Silence = Kind{name: "silence", strike: func(s *session, _ Place, _ []message) { s.silence(s.clientGone) }}

	// Partition is Silence whose end the server does not see before Disarm: its transaction stays open, with its locks.
	Partition = Kind{name: "partition", strike: func(s *session, _ Place, _ []message) { s.silence(nil) }}
)

// Late resets the connection to the client, Before only, while the flight is still on its way: the server gets it after d, executes
// it, and then sees the client gone. Whoever reads meanwhile must not conclude anything. A client that sends a request to cancel
// when it is cut off may still take the flight back: whether the request meets it is chance, as it is without a proxy.
func Late(d time.Duration) Kind {
	return Kind{name: "late", only: Before, strike: func(s *session, _ Place, flight []message) {
		healed := s.in.healing()
		s.silent.Store(true)
		s.resetClient()
		s.running.Go(func() {
			defer func() { _ = s.server.Close() }()
			select {
			case <-healed:
			case <-time.After(d):
			}
			if s.send(flight) == nil && finish(s.server) == nil {
				<-s.serverGone
			}
		})
	}}
}

// Error makes the server refuse the flight with an ERROR of this SQLSTATE. It is the server's own answer, so that both sides agree
// on the state of the transaction. Before: the first thing in the flight fails. Executed: all of it is executed and then fails,
// which undoes it as far as the server would. But of several statements in one Query the last is not executed, and a COMMIT of a
// transaction fails itself, as with a deferred constraint: a server does not refuse what it has completed.
func Error(sqlState string) Kind { return Kind{name: sqlState, state: sqlState} }

// Fatal ends the connection with a FATAL error of this SQLSTATE, as a server does that shuts down.
func Fatal(sqlState string) Kind {
	return Kind{name: sqlState + " fatal", strike: func(s *session, _ Place, _ []message) {
		s.mute.Store(true)
		_ = s.server.Close()
		_, _ = s.client.Write(fatalError(sqlState))
		_ = finish(s.client)
	}}
}

// Call calls f, and then everything passes unharmed. It waits for f, and after that a moment for the client to hang up, so that
// one whose context f has ended meets the end before the answer.
func Call(name string, f func()) Kind {
	return Kind{name: name, strike: func(s *session, at Place, kept []message) {
		f()
		if at == Replied {
			return
		}
		select {
		case <-s.clientGone:
		case <-time.After(noticeTime):
		}
		if at == Executed {
			_ = s.tell(kept)
		}
	}}
}

// noticeTime is how long a client has to notice what Call did. The connections that do not care wait for all of it.
const noticeTime = 10 * time.Millisecond

// Injector relays connections to a server and breaks one of them at one boundary. It is safe for concurrent use.
//
// Boundaries are counted over all connections, in the order in which the client's flights end. Connecting, cancel requests and
// hanging up are none. Connections that are made after the fault has struck pass unharmed.
type Injector struct {
	dsn string

	mu      sync.Mutex
	flights int    // since Arm
	armed   *order // the last one
	fired   bool
	healed  chan struct{} // closed by the next Disarm
}

// order is what Arm ordered.
type order struct {
	n    int
	at   Place
	kind Kind
}

// Fault starts an injecting proxy in front of the DSN's server and stops it when the test ends.
func Fault(t testing.TB, dsn string) *Injector {
	t.Helper()
	in := &Injector{healed: make(chan struct{})}
	p, through := stand(t, dsn, in.relay)
	in.dsn = through
	t.Cleanup(func() {
		in.Disarm()
		p.close()
	})
	return in
}

// DSN leads through the proxy, unencrypted.
func (in *Injector) DSN() string { return in.dsn }

// Arm makes the fault strike at the n-th boundary from now, counted from 1. It replaces what was armed before.
func (in *Injector) Arm(n int, at Place, kind Kind) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.flights, in.fired, in.armed = 0, false, &order{n, at, kind}
}

// Disarm takes back what has not struck, and ends what is silent: both sides see the other one gone.
func (in *Injector) Disarm() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.armed = nil
	close(in.healed)
	in.healed = make(chan struct{})
}

// Fired says whether the fault that was armed last has struck.
func (in *Injector) Fired() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.fired
}

// Reached says whether there was the boundary that was armed last.
func (in *Injector) Reached() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.armed != nil && in.flights >= in.armed.n
}

// Boundaries is the number of flights since Arm, or since the start.
func (in *Injector) Boundaries() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.flights
}

// depart counts a flight, and returns what is ordered for it.
func (in *Injector) depart() *order {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.flights++
	if in.armed == nil || in.armed.n != in.flights {
		return nil
	}
	return in.armed
}

// strike says that o strikes now, unless it was taken back.
func (in *Injector) strike(o *order) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.armed != o {
		return false
	}
	in.fired = true
	return true
}

// healing returns what the next Disarm closes.
func (in *Injector) healing() chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.healed
}

func (in *Injector) relay(client, server net.Conn) {
	s := &session{
		in: in, client: client, server: server,
		clientGone: make(chan struct{}), serverGone: make(chan struct{}), sql: map[string]string{},
	}
	s.running.Go(s.fromClient)
	s.running.Go(s.fromServer)
	s.running.Wait()
}
