package faultnet

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"
)

// session is one connection through an Injector.
type session struct {
	in             *Injector
	client, server net.Conn
	clientGone     chan struct{} // closed when nothing more comes from the client
	serverGone     chan struct{} // closed when nothing more comes from the server
	mute           atomic.Bool   // everything is swallowed
	silent         atomic.Bool   // what ends the connections is not their ends
	running        sync.WaitGroup
	sql            map[string]string // the texts of the prepared statements, touched by the client's direction only

	mu    sync.Mutex
	begun bool    // start-up is over
	owed  []debts // what becomes of the answers on their way, the oldest first
}

// debts is what becomes of the answer to one flight.
type debts struct {
	order   *order       // nil: it is relayed
	swallow bool         // it is the answer to something that the client did not say
	before  map[byte]int // a smuggled statement; nil: there is none
}

// fromClient relays flights until the client ends.
func (s *session) fromClient() {
	defer close(s.clientGone)
	var split splitter
	var flight []message
	err := pieces(s.client, func(piece []byte) error {
		if s.mute.Load() {
			return nil
		}
		for _, m := range split.feed(piece) {
			s.remember(m)
			flight = append(flight, m)
			if !s.departs(m) {
				continue
			}
			if err := s.depart(flight); err != nil {
				return err
			}
			flight = nil
		}
		return nil
	})
	if s.silent.Load() {
		return
	}
	if s.mute.Load() || !errors.Is(err, io.EOF) || finish(s.server) != nil {
		_, _ = s.server.Close(), s.client.Close()
	}
}

// remember keeps the text of a statement under its name.
func (s *session) remember(m message) {
	var parse pgproto3.Parse
	if m.kind() == fromClientParse && parse.Decode(m.body()) == nil {
		s.sql[parse.Name] = parse.Query
	}
}

// departs says whether what the client has said so far goes to the server now.
func (s *session) departs(m message) bool {
	switch m.kind() {
	case fromClientQuery, fromClientSync, fromClientFunction,
		fromClientFlush, fromClientCopyData, fromClientCopyDone, fromClientCopyFail, fromClientEnd:
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.begun
}

// depart sends a flight on its way, or what is ordered instead.
func (s *session) depart(flight []message) error {
	switch flight[len(flight)-1].kind() {
	case fromClientQuery, fromClientSync, fromClientFunction:
	default:
		return s.send(flight)
	}
	o := s.in.depart()
	switch {
	case o == nil:
		return s.ask(flight, debts{})
	case o.at == Before && o.kind.state != "" && s.in.strike(o):
		return s.ask([]message{query(raise(o.kind.state))}, debts{})
	case o.at == Before && o.kind.state == "" && s.in.strike(o):
		o.kind.strike(s, o.at, flight)
		if s.mute.Load() {
			return nil
		}
		return s.ask(flight, debts{})
	case o.at == Executed && o.kind.state != "":
		return s.askToFail(flight, o)
	}
	return s.ask(flight, debts{order: o})
}

// ask sends a flight that the server will answer with one ReadyForQuery.
func (s *session) ask(flight []message, d debts) error {
	s.mu.Lock()
	s.owed = append(s.owed, d)
	s.mu.Unlock()
	return s.send(flight)
}

// askToFail sends a flight that is executed, and fails after that.
func (s *session) askToFail(flight []message, o *order) error {
	d := debts{order: o}
	end, commits := flight[len(flight)-1], s.commits(flight)
	switch {
	case end.kind() == fromClientSync && commits:
		flight, d.before = smuggled(flight, mine(o.kind.state), true)
	case end.kind() == fromClientSync:
		flight, d.before = smuggled(flight, raise(o.kind.state), false)
	case end.kind() == fromClientQuery && commits:
		if err := s.ask([]message{query(mine(o.kind.state))}, debts{swallow: true}); err != nil {
			return err
		}
	case end.kind() == fromClientQuery:
		flight = []message{query(failing(queryText(end), o.kind.state))}
	}
	return s.ask(flight, d)
}

// commits says whether the last statement of a flight is COMMIT.
func (s *session) commits(flight []message) bool {
	last := ""
	for _, m := range flight {
		var bind pgproto3.Bind
		switch {
		case m.kind() == fromClientQuery:
			last = queryText(m)
		case m.kind() == fromClientBind && bind.Decode(m.body()) == nil:
			last = s.sql[bind.PreparedStatement]
		}
	}
	return strings.EqualFold(strings.Trim(last, "; "), "commit")
}

func (s *session) send(flight []message) error {
	_, err := s.server.Write(joined(flight))
	return err
}

// fromServer relays answers until the server ends.
func (s *session) fromServer() {
	defer close(s.serverGone)
	var split splitter
	var held []message // the answer that an order is waiting for
	err := pieces(s.server, func(piece []byte) error {
		var through []message
		for _, m := range split.feed(piece) {
			d, ends := s.answered(m)
			switch {
			case d.swallow:
			case d.order != nil && d.order.at == Executed:
				held = append(held, m)
			default:
				through = append(through, m)
			}
			if !ends || d.order == nil {
				continue
			}
			if err := s.tell(through); err != nil {
				return err
			}
			through = nil
			if err := s.strike(d, held); err != nil {
				return err
			}
			held = nil
		}
		return s.tell(through)
	})
	if s.mute.Load() {
		return // the client does not see the server's end
	}
	if len(held) > 0 {
		_ = s.tell(held)
	}
	if !errors.Is(err, io.EOF) || finish(s.client) != nil {
		_, _ = s.server.Close(), s.client.Close()
	}
}

// answered says whose answer m is part of, and whether it is the end of one.
func (s *session) answered(m message) (d debts, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owed) > 0 {
		d = s.owed[0]
	}
	if m.kind() != fromServerReady {
		return d, false
	}
	if !s.begun || len(s.owed) == 0 {
		s.begun = true
		return debts{}, false
	}
	s.owed = s.owed[1:]
	return d, true
}

// strike does to the end of an answer what is ordered.
func (s *session) strike(d debts, held []message) error {
	o := d.order
	if o.kind.state != "" {
		if slices.ContainsFunc(held, injected) {
			s.in.strike(o)
		}
		if d.before != nil {
			held = withoutSmuggled(held, d.before)
		}
		return s.tell(held)
	}
	if !s.in.strike(o) {
		return s.tell(held)
	}
	o.kind.strike(s, o.at, held)
	return nil
}

// tell writes to the client, unless it is cut off.
func (s *session) tell(messages []message) error {
	if len(messages) == 0 || s.mute.Load() {
		return nil
	}
	_, err := s.client.Write(joined(messages))
	return err
}

// silence swallows everything until the given channel is closed, or the Injector is disarmed.
func (s *session) silence(until <-chan struct{}) {
	healed := s.in.healing()
	s.silent.Store(true)
	s.mute.Store(true)
	s.running.Go(func() {
		select {
		case <-until:
		case <-healed:
		}
		_, _ = s.server.Close(), s.client.Close()
	})
}

// reset ends both connections without a goodbye.
func (s *session) reset() {
	s.resetClient()
	_ = s.server.Close()
}

func (s *session) resetClient() {
	s.mute.Store(true)
	if tcp, ok := s.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = s.client.Close()
}

// pieces reads until an error, which it returns.
func pieces(from net.Conn, take func([]byte) error) error {
	buffer := make([]byte, pieceSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if takeErr := take(buffer[:n]); takeErr != nil {
				return takeErr
			}
		}
		if err != nil {
			return err
		}
	}
}
