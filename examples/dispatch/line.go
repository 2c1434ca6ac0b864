package dispatch

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/confirmexec/confirmexec/fencing"
	pb "github.com/confirmexec/confirmexec/grpcerr/confirmexecv1"
)

// nowhere is an address that nobody listens at.
const nowhere = "127.0.0.1:1"

// line is a listener whose connections can be cut, and the log of what came over them.
type line struct {
	net.Listener

	role  string
	trace trace
	mu    sync.Mutex
	conns map[net.Conn]bool
	lose  string   // the method whose next reply is lost
	heard []string // the calls: method and operation
}

func (l *line) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = map[net.Conn]bool{}
	}
	l.conns[c] = true
	return c, nil
}

// intercept enters each call in the log, and cuts all connections before the reply of a call that is to be lost.
func (l *line) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	name := info.FullMethod[len(service)+2:]
	heard := name
	if m, ok := req.(interface{ GetMeta() *pb.RequestMeta }); ok && m.GetMeta().GetOperationId() != "" {
		heard += " " + m.GetMeta().GetOperationId()
	}
	l.mu.Lock()
	l.heard = append(l.heard, heard)
	l.mu.Unlock()
	begun := time.Now()
	reply, err := handle(ctx, req)
	l.mu.Lock()
	defer l.mu.Unlock()
	what := heard
	if m, ok := req.(interface{ GetMeta() *pb.RequestMeta }); ok && l.role == roleDispatcher {
		what += " (" + m.GetMeta().GetBootId() + ")"
	}
	told := event{From: nameOf(caller(ctx).URI), To: l.role, What: what, Said: saidOf(reply, err), Lost: l.lose == name}
	l.trace.call(told, begun)
	if told.Lost {
		l.lose = ""
		for c := range l.conns {
			_ = c.Close()
			delete(l.conns, c)
		}
	}
	return reply, err
}

func (l *line) loseReply(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = name
}

func (l *line) log() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.heard...)
}

// note enters a step of an approved stop in the log, so that its order can be read (R87).
func (l *line) note(step fencing.ApprovedStep, active int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = append(l.heard, fmt.Sprintf("%s with %d active", step, active))
}
