package faultnet

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/confirmexec/confirmexec/internal/pgtest"
)

// settleTimeout is how long During waits for answers that are on their way.
const settleTimeout = 10 * time.Second

const dialTimeout = 10 * time.Second

// Counter counts the network round trips that are made through its DSN.
//
// A round trip is what a client waits for once: it asks while nothing it asked before is unanswered, and the server
// answers everything that is asked until then. What is followed is the protocol's messages, not bytes or packets:
//   - a client asks with Query, Sync or FunctionCall, each answered by a ReadyForQuery;
//   - it asks with Flush, answered by the first message that comes next and is not an asynchronous one.
//
// So the messages before a Sync cost nothing, a pipeline of several Syncs that is written in one piece is one trip, and
// so is a COPY, whose data pgx sends without waiting for the server to allow it.
// (Only a pipeline of more than 64 kB may come out as more.) The count does not depend on how busy the machine is.
//
// Trips are summed over all connections. Connecting (authentication included), cancel requests and hanging up are not
// counted, nor is a flight that is never answered. A pool that pings an idle connection, or runs statements when it
// connects, makes trips like anybody else.
//
// It is safe for concurrent use.
type Counter struct {
	t     testing.TB
	dsn   string
	total tally
}

// Count starts a counting proxy in front of the DSN's server and stops it when the test ends.
func Count(t testing.TB, dsn string) *Counter {
	t.Helper()
	c := &Counter{t: t}
	p, through := stand(t, dsn, func(client, server net.Conn) { join(client, server, &flights{total: &c.total}) })
	t.Cleanup(p.close)
	c.dsn = through
	return c
}

// stand starts a proxy in front of the DSN's server and returns the DSN that leads through it, unencrypted.
func stand(t testing.TB, dsn string, relay func(client, server net.Conn)) (p *proxy, through string) {
	t.Helper()
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("faultnet: %v", err)
	}
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	p, err = newProxy(func() (net.Conn, error) { return net.DialTimeout(network, address, dialTimeout) }, relay)
	if err != nil {
		t.Fatalf("faultnet: %v", err)
	}
	through, err = pgtest.WithDSN(dsn, "host", "127.0.0.1", "port", strconv.Itoa(p.port()), "sslmode", "disable")
	if err != nil {
		p.close()
		t.Fatalf("faultnet: %v", err)
	}
	return p, through
}

// DSN leads through the proxy, unencrypted.
func (c *Counter) DSN() string { return c.dsn }

// Trips is the number of round trips that have been answered so far.
func (c *Counter) Trips() int {
	c.total.mu.Lock()
	defer c.total.mu.Unlock()
	return c.total.trips
}

// During returns the round trips that f makes. What is on its way when f begins is not f's; what is on its way when f
// returns is waited for and is f's. What f has waited for itself, as every call of pgx does, is counted exactly.
func (c *Counter) During(f func()) int {
	c.t.Helper()
	before := c.settled()
	f()
	return c.settled() - before
}

// settled waits until nothing is on its way and returns the trips so far.
func (c *Counter) settled() int {
	c.t.Helper()
	timeout := time.After(settleTimeout)
	for {
		trips, quiet := c.total.look()
		if quiet == nil {
			return trips
		}
		select {
		case <-quiet:
		case <-timeout:
			c.t.Fatalf("faultnet: the database has not answered for %v", settleTimeout)
		}
	}
}

// tally sums the connections' trips.
type tally struct {
	mu    sync.Mutex
	trips int
	busy  int           // connections with something on its way
	quiet chan struct{} // closed when busy becomes 0; nil unless somebody waits
}

// look returns the trips so far, and a channel to wait for if something is on its way.
func (t *tally) look() (trips int, quiet <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy == 0 {
		return t.trips, nil
	}
	if t.quiet == nil {
		t.quiet = make(chan struct{})
	}
	return t.trips, t.quiet
}

// leave is for a connection that has nothing on its way any more. The caller holds mu.
func (t *tally) leave() {
	t.busy--
	if t.busy == 0 && t.quiet != nil {
		close(t.quiet)
		t.quiet = nil
	}
}

// flights follows one connection. Its start-up is over with the first ReadyForQuery.
type flights struct {
	total  *tally
	client framer // touched by the client's direction only
	server framer // touched by the server's direction only

	// The rest is guarded by total.mu.
	begun  bool // start-up is over
	asking bool // something is on its way
	ready  int  // how many ReadyForQuery the server owes
}

func (f *flights) fromClient(piece []byte) {
	f.total.mu.Lock()
	defer f.total.mu.Unlock()
	f.client.feed(piece, f.ask)
}

func (f *flights) fromServer(piece []byte) {
	f.total.mu.Lock()
	defer f.total.mu.Unlock()
	f.server.feed(piece, f.answer)
}

func (f *flights) closed() {
	f.total.mu.Lock()
	defer f.total.mu.Unlock()
	f.rest()
}

func (f *flights) ask(kind byte) {
	if !f.begun {
		return
	}
	switch kind {
	case fromClientQuery, fromClientSync, fromClientFunction:
		f.ready++
	case fromClientFlush:
	default:
		return
	}
	if !f.asking {
		f.asking = true
		f.total.busy++
	}
}

func (f *flights) answer(kind byte) {
	switch kind {
	case fromServerNotice, fromServerStatus, fromServerNotification:
		return // may come at any time
	case fromServerReady:
		f.begun = true
		f.ready = max(f.ready-1, 0)
	}
	if f.asking && f.ready == 0 {
		f.total.trips++
		f.rest()
	}
}

// rest records that nothing is on its way.
func (f *flights) rest() {
	if f.asking {
		f.asking = false
		f.total.leave()
	}
}
