package dispatch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Options are what a walk can be told.
type Options struct {
	Names    []string  // of the scenarios; none: all
	Database string    // postgres://… that is migrated; "": a temporary SQLite file for each process
	JSON     bool      // one object a line on Out, and everything else on Notes
	Diagrams bool      // Markdown with a sequence diagram of each scenario on Out, and everything else on Notes
	Out      io.Writer // reports
	Notes    io.Writer // everything about them
}

// ErrDiffers is the error of a walk in which something was not as expected. It has been told.
var ErrDiffers = errors.New("a scenario differs from what is expected")

// scenarioTimeout is when a scenario that waits for what does not come is given up.
const scenarioTimeout = 2 * time.Minute

// scenario is one thing to be shown. Run makes its steps on the stage.
type scenario struct {
	name, title string
	want        expectation
	run         func(s *stage)
}

// IsScenario says whether there is a scenario of this name.
func IsScenario(name string) bool {
	return slices.ContainsFunc(scenarios(), func(sc scenario) bool { return sc.name == name })
}

// List names the scenarios.
func List(w io.Writer) {
	for _, sc := range scenarios() {
		fmt.Fprintf(w, "%-32s%s\n", sc.name, sc.title)
	}
}

// scenarios are the thirteen methods and the stories, in the order of the walk.
func scenarios() []scenario { return append(slices.Clone(rpcs), stories...) }

// Walk runs the scenarios, each with a dispatcher and an agent of its own. The error is ErrDiffers when one is not as expected.
func Walk(ctx context.Context, o Options) (err error) {
	dir, err := os.MkdirTemp("", "confirmexec-dispatch-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	set, err := newSet(ctx, dir, o.Database, strings.ToLower(rand.Text()[:8]))
	if err != nil {
		return err
	}
	defer set.target.close()
	fmt.Fprintf(o.Notes, "Certificates       made now; mutual TLS 1.3\n")
	fmt.Fprintf(o.Notes, "The dispatcher     %s\n", dispatcherURI)
	fmt.Fprintf(o.Notes, "The agent          %s\n", agentURI)
	fmt.Fprintf(o.Notes, "Uploads            %s\n", set.target.prefix)
	databases := "a SQLite file for each process"
	if o.Database != "" {
		databases = "PostgreSQL, with a tenant for each process"
	}
	fmt.Fprintf(o.Notes, "Databases          %s\n", databases)
	return o.runAll(ctx, set)
}

func (o Options) runAll(ctx context.Context, set *set) error {
	n, differ := 0, 0
	for _, sc := range scenarios() {
		if len(o.Names) > 0 && !slices.Contains(o.Names, sc.name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted after %d scenarios: %w", n, err)
		}
		n++
		r, err := set.play(ctx, sc)
		if err != nil {
			return err
		}
		if len(r.differences) > 0 {
			differ++
		}
		o.tell(r)
	}
	verdict := "all as expected"
	if differ > 0 {
		verdict = fmt.Sprintf("%d DIFFER from what is expected", differ)
	}
	fmt.Fprintf(o.Notes, "\nScenarios: %d, %s.\n", n, verdict)
	if differ > 0 {
		return ErrDiffers
	}
	return nil
}

// play makes one scenario.
func (set *set) play(ctx context.Context, sc scenario) (r *report, err error) {
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	s, err := set.newStage(ctx, sc.name, sc.title)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	sc.run(s)
	s.expect(s.broken == nil, "the scenario could not be carried out: %v", s.broken)
	counts, err := invocations(s.ledger())
	s.expect(err == nil, "the calls could not be counted: %v", err)
	for execution, n := range counts {
		s.calls += n
		s.expect(n == 1, "the adapter was invoked %d times for %s", n, execution)
	}
	s.compare(sc.want)
	var drawn strings.Builder
	s.expect(s.trace().diagram(&drawn) == nil, "the trace cannot be read")
	s.diagram = drawn.String()
	return &s.report, nil
}

func (o Options) tell(r *report) {
	switch {
	case o.Diagrams:
		fmt.Fprintf(o.Out, "\n## %s: %s\n\n%s\n\n```mermaid\n%s```\n", r.name, r.title, wrap(strings.Join(r.story, " "), ""), r.diagram)
	case !o.JSON:
		r.print(o.Out)
		return
	default:
		line, err := r.line()
		if err != nil {
			fmt.Fprintf(o.Notes, "%s: %v\n", r.name, err)
			return
		}
		fmt.Fprintf(o.Out, "%s\n", line)
	}
	for _, d := range r.differences {
		fmt.Fprintf(o.Notes, "%s differs: %s\n", r.name, d)
	}
}
