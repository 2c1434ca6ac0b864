package pgtest

import (
	"context"
	"errors"
	"sync"
)

// The environment variables that choose the server.
const (
	envDSN        = "CONFIRMEXEC_TEST_DSN"
	envBin        = "CONFIRMEXEC_PG_BIN"
	envRungs      = "CONFIRMEXEC_TEST_RUNGS"
	envWithout    = "CONFIRMEXEC_NO_POSTGRES"
	envImage      = "CONFIRMEXEC_PG_IMAGE"      // read by internal/pgcontainer
	envRepository = "CONFIRMEXEC_PG_REPOSITORY" // read by internal/pgembedded
)

var (
	errWithout = errors.New(envWithout + " is set, so this run goes without PostgreSQL. " +
		"TestPostgresIsAvailable in internal/pgtest says so too")
	errNoMain = errors.New("the package's TestMain must call pgtest.Main (or Run): it stops the server")
)

// shared is the one server of this test process.
var shared process

// process starts the server at the first need and stops it at the end. It is safe for concurrent use.
type process struct {
	ctx    context.Context // ends a start that is under way
	cancel context.CancelFunc

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
	p.ctx, p.cancel = context.WithCancel(context.Background())
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
		p.cluster, p.err = start(p.ctx, p.template)
		p.started = true
	}
	return p.cluster, p.err
}

// end may be called while get is starting the server: a start that takes minutes ends early.
func (p *process) end() error {
	p.cancel()
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
func start(ctx context.Context, template Template) (*cluster, error) {
	if isSet(envWithout) {
		return nil, errWithout
	}
	return climb(ctx, template)
}
