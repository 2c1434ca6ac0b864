package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// told is a ledger of what the library said.
type told struct {
	mu   sync.Mutex
	text bytes.Buffer
	n    int
}

// everything is what the library said in all tests of this package, whose tenants, items and parameters are marked. TestMain fails
// when it holds a mark.
var everything told

func (l *told) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return l.text.Write(p)
}

func (l *told) Observe(_ context.Context, e broker.Event) { fmt.Fprintf(l, "event %+v\n", e) }

func (l *told) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// err writes an error's text as a service would log it, and each error of its chain that is the library's own. What drifted is left
// out: a refusal of a stale confirm says it (S5).
func (l *told) err(err error) {
	for ; err != nil; err = errors.Unwrap(err) {
		text := fmt.Sprintf("error %v | %+v | %s\n", err, err, err)
		if conflict, ok := err.(*contract.ConflictError); ok && len(conflict.Drift) > 0 {
			text = strings.ReplaceAll(text, conflict.Drift.String(), "drift")
		}
		_, _ = io.WriteString(l, text)
		switch err.(type) {
		case *contract.ConflictError, *contract.InvalidError, *contract.UnsettledError:
		default: // below a Failure or a store's error are the caller's and the driver's own
			return
		}
	}
}

// answer writes the errors of a confirm's answer.
func (l *told) answer(res *contract.OperationResult, err error) {
	l.err(err)
	if res != nil {
		l.err(res.Err())
	}
}

// heard is cfg with an observer and a logger that everything hears, where it has none of its own.
func heard(cfg broker.Config) *broker.Config {
	if cfg.Observer == nil {
		cfg.Observer = &everything
	}
	if cfg.Logger == nil {
		cfg.Logger = everything.logger()
	}
	return &cfg
}

// unmarked runs the tests, and fails when a mark was told: by a broker or by anything else to the process's log or stderr. S22.
func unmarked(tests func() int) int {
	stderr := os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	os.Stderr = w
	log.SetOutput(w) // and with it slog's default
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(io.MultiWriter(stderr, &everything), r)
	}()
	code := tests()
	os.Stderr = stderr
	log.SetOutput(stderr)
	_ = w.Close()
	<-copied
	for line := range strings.Lines(everything.text.String()) {
		if strings.Contains(line, marker) {
			fmt.Fprint(stderr, "FAIL: S22: a mark was told: ", line)
			code = max(code, 1)
		}
	}
	return code
}
