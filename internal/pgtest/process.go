package pgtest

import (
	"context"
	"errors"
	"os"
	"sync"
)

// The environment variables that choose the server.
const (
	envDSN     = "CONFIRMEXEC_TEST_DSN"
	envBin     = "CONFIRMEXEC_PG_BIN"
	envWithout = "CONFIRMEXEC_NO_POSTGRES"
)

var (
	errWithout = errors.New(envWithout + " is set, so this run goes without PostgreSQL. " +
		"TestPostgresIsAvailable in internal/pgtest says so too")
	errAbsent = errors.New("no PostgreSQL server was found on this machine")
	errNoMain = errors.New("the package's TestMain must call pgtest.Main (or Run): it stops the server")
)

// shared is the one server of this test process.
var shared process

// process starts the server at the first need and stops it at the end. It is safe for concurrent use.
type process struct {
	mu       sync.Mutex
	running  bool // between begin and end
	template Template
	started  bool // cluster or err is set
	cluster  *cluster
	err      error
}

func (p *process) begin(template Template) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.template = true, template
}

// get starts the server if it has not been tried yet. All callers get the same answer.
func (p *process) get() (*cluster, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return nil, errNoMain
	}
	if !p.started {
		p.cluster, p.err = start(p.template)
		p.started = true
	}
	return p.cluster, p.err
}

func (p *process) end() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	if p.cluster == nil {
		return nil
	}
	c := p.cluster
	p.cluster = nil
	return c.close()
}

// start finds a server in the order that the package comment gives.
func start(template Template) (*cluster, error) {
	if isSet(envWithout) {
		return nil, errWithout
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	if dsn := os.Getenv(envDSN); dsn != "" {
		return startExternal(ctx, dsn, template)
	}
	programs, err := findPrograms()
	if err != nil {
		return nil, err
	}
	return startLocal(ctx, programs, template)
}
