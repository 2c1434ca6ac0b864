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
	"sync"
	"text/tabwriter"
	"time"
)

// MatrixOptions are what a kill matrix can be told.
type MatrixOptions struct {
	Methods []string // whose rows are made; none: all
	Workers int      // rows at once. Default 1.
	// Database is postgres://… of a database that is migrated; "": a temporary SQLite file for each process.
	Database string
	Out      io.Writer
}

// MatrixRow is what came of all the kills of one process in one method.
type MatrixRow struct {
	Method, Victim string
	Commits        int // of the victim, in a run without a kill
	Kills          int // by SIGKILL, right before and right after each of them
	Restarts       int // from the same database, as another process
	Invocations    int // of the adapter, in all trials
	Double         int // executions that it was invoked for more than once: 0, always
	Differences    []string
}

// scene is one method with one process that is killed in it.
type scene struct {
	method, victim string
	commits        int            // that it must have
	pair           func(s *stage) // default: ready
	prepare        func(s *stage) // before the commits are counted
	call           func(s *stage) // during which the victim dies
	recover        func(s *stage) // afterwards: what the contract allows, and no more
	check          func(s *stage) // what must stand then
}

// Matrix kills each process right before and right after each of its commits, in every method, starts it again from its database,
// recovers as the contract allows it, and reads the adapter's ledger. The error is ErrDiffers when something was not as it must be.
func Matrix(ctx context.Context, o MatrixOptions) (rows []MatrixRow, err error) {
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "confirmexec-killmatrix-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	set, err := newSet(ctx, dir, o.Database, strings.ToLower(rand.Text()[:8]))
	if err != nil {
		return nil, err
	}
	defer set.target.close()
	rows = make([]MatrixRow, len(chosen))
	workers := make(chan struct{}, max(o.Workers, 1))
	var all sync.WaitGroup
	for i, sc := range chosen {
		workers <- struct{}{}
		all.Go(func() {
			defer func() { <-workers }()
			rows[i] = set.row(ctx, sc)
		})
	}
	all.Wait()
	return rows, tellMatrix(o.Out, rows)
}

// chosen are the scenes of the methods that were asked for.
func (o MatrixOptions) chosen() (chosen []scene, err error) {
	for _, name := range o.Methods {
		if !slices.ContainsFunc(scenes(), func(sc scene) bool { return sc.method == name }) {
			return nil, fmt.Errorf("no method is %q", name)
		}
	}
	for _, sc := range scenes() {
		if len(o.Methods) == 0 || slices.Contains(o.Methods, sc.method) {
			chosen = append(chosen, sc)
		}
	}
	return chosen, nil
}

// row makes all trials of a scene: at the first commit, at the second, until there is none to die at.
func (set *set) row(ctx context.Context, sc scene) MatrixRow {
	row := MatrixRow{Method: sc.method, Victim: sc.victim}
	const most = 20
	for n := 1; n <= most; n++ {
		for _, when := range []string{before, after} {
			killed := set.trial(ctx, sc, n, when, &row)
			if !killed && when == before {
				if row.Commits = n - 1; row.Commits != sc.commits {
					row.differ("%d commits, not %d", row.Commits, sc.commits)
				}
				return row
			}
			if !killed {
				row.differ("%s commit %d: it was there, and was not died at", when, n)
			}
		}
	}
	row.differ("there is no end of its commits")
	return row
}

func (r *MatrixRow) differ(format string, args ...any) {
	r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
}

// matrixLease is short, since who crashed is settled after it, and long enough for a call on a loaded machine.
const matrixLease = 3 * time.Second

// trial has the victim die at one commit, or not at all if there are not so many.
func (set *set) trial(ctx context.Context, sc scene, n int, when string, row *MatrixRow) (killed bool) {
	ctx, cancel := context.WithTimeout(ctx, scenarioTimeout)
	defer cancel()
	s, err := set.newStage(ctx, sc.method, "")
	if err != nil {
		row.differ("%v", err)
		return false
	}
	s.lease = matrixLease
	defer func() { _ = s.close() }()
	if sc.pair == nil {
		sc.pair = (*stage).ready
	}
	sc.pair(s)
	do(s, sc.prepare)
	victim := s.victim(sc.victim)
	s.ask(victim, order{Do: "arm", At: n, When: when})
	s.dying = victim
	do(s, sc.call)
	if killed = s.diedOf(n); killed {
		row.Kills++
		s.again(sc.victim, victim, row)
	} else {
		s.ask(victim, order{Do: "arm"}) // it lives, and counts no more
	}
	s.dying = nil
	do(s, sc.recover)
	do(s, sc.check)
	s.expect(s.broken == nil, "it could not be carried out: %v", s.broken)
	s.count(row)
	for _, d := range s.differences {
		row.differ("%s commit %d: %s", when, n, d)
	}
	return killed
}

func do(s *stage, step func(*stage)) {
	if step != nil {
		step(s)
	}
}

func (s *stage) victim(role string) *child {
	if role == roleDispatcher {
		return s.dispatcher
	}
	return s.agent
}

// diedOf says whether the process that was to die has died, by SIGKILL. What it does after its answer may take a moment.
func (s *stage) diedOf(n int) bool { return s.diesOf(n, 15) }

// diesOf is diedOf with another patience, in hundredths of a second.
func (s *stage) diesOf(n, patience int) bool {
	if s.broken != nil {
		return false
	}
	for waited := 0; waited < patience; {
		told, err := s.dying.do(order{Do: "commits"})
		if err != nil {
			s.expect(wasKilled(s.dying.cmd.ProcessState), "it ended by itself: %v", err)
			return true
		}
		if told.Count < int64(n) { // it may never get there; one that has is dying
			waited++
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// again starts the dead process from its database, as another process, and gives the agent a session with whoever is there.
func (s *stage) again(role string, dead *child, row *MatrixRow) {
	s.dying = nil
	if role == roleDispatcher {
		s.restartDispatcher()
	} else {
		s.restartAgent()
	}
	if s.broken == nil && s.victim(role).PID == dead.PID {
		s.expect(false, "it is the same process")
	}
	s.applied("a new session", s.activate())
	row.Restarts++
}

// count reads the ledger.
func (s *stage) count(row *MatrixRow) {
	counts, err := invocations(s.ledger())
	s.expect(err == nil, "the ledger cannot be read: %v", err)
	for execution, n := range counts {
		row.Invocations += n
		if n > 1 {
			row.Double++
			s.expect(false, "the adapter was invoked %d times for %s", n, execution)
		}
	}
}

// tellMatrix prints the table.
func tellMatrix(w io.Writer, rows []MatrixRow) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "METHOD\tKILLED\tCOMMITS\tKILLS\tRESTARTS\tADAPTER CALLS\tDOUBLE")
	var sum MatrixRow
	var differences []string
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", r.Method, r.Victim, r.Commits, r.Kills, r.Restarts, r.Invocations, r.Double)
		sum.Commits, sum.Kills, sum.Restarts = sum.Commits+r.Commits, sum.Kills+r.Kills, sum.Restarts+r.Restarts
		sum.Invocations, sum.Double = sum.Invocations+r.Invocations, sum.Double+r.Double
		for _, d := range r.Differences {
			differences = append(differences, r.Method+", "+r.Victim+" killed "+d)
		}
	}
	fmt.Fprintf(table, "all\t\t%d\t%d\t%d\t%d\t%d\n", sum.Commits, sum.Kills, sum.Restarts, sum.Invocations, sum.Double)
	if err := table.Flush(); err != nil {
		return err
	}
	for _, d := range differences {
		fmt.Fprintln(w, "DIFFERS: "+d)
	}
	if len(differences) > 0 {
		return ErrDiffers
	}
	return nil
}
