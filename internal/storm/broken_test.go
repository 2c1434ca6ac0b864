package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// brokenModes break one promise each. They are on SQLite only.
var brokenModes = []mode{
	{"twice", inLedger, broken(twice)},
	{"not_at_all", inLedger, broken(notAtAll)},
	{"unclaimed", inLedger, broken(unclaimed)},
	{"unclaimed_tx", inTable, broken(unclaimedTx)},
	{"stale", inLedger, broken(stale)},
	{"forgetful", inLedger, broken(forgetful)},
	{"failing", inLedger, broken(failing)},
	{"dying", inLedger, broken(dying)},
}

type (
	sqliteDatabase = txDatabase[*sql.Tx]
	result         = contract.OperationResult
)

func broken(confirm func(context.Context, *sqliteDatabase, broker.Request) (*result, error)) func(
	target, context.Context, broker.Request) (*result, error) {
	return func(t target, ctx context.Context, req broker.Request) (*result, error) {
		return confirm(ctx, t.(*sqliteDatabase), req)
	}
}

// twice has an executor that does everything twice.
func twice(ctx context.Context, d *sqliteDatabase, req broker.Request) (*result, error) {
	return d.broker.Execute(ctx, req, func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
		_, err := d.enter(ctx, it)
		o, err2 := d.enter(ctx, it)
		return o, errors.Join(err, err2)
	})
}

// notAtAll has an executor that says applied and does nothing.
func notAtAll(ctx context.Context, d *sqliteDatabase, req broker.Request) (*result, error) {
	return d.broker.Execute(ctx, req, func(context.Context, broker.Item) (broker.Outcome, error) {
		return broker.Applied("nothing"), nil
	})
}

// unclaimed has a store that gives the key to everyone who asks.
func unclaimed(ctx context.Context, d *sqliteDatabase, req broker.Request) (*result, error) {
	return generous(d).execute(ctx, req)
}

func unclaimedTx(ctx context.Context, d *sqliteDatabase, req broker.Request) (*result, error) {
	return generous(d).executeTx(ctx, req)
}

func generous(d *sqliteDatabase) *sqliteDatabase {
	b, err := newBroker(generousStore{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
	g := *d
	g.broker = b
	return &g
}

type generousStore struct{ store.Store[*sql.Tx] }

func (generousStore) Own() store.Claims          { return generousClaims{} }
func (generousStore) In(tx *sql.Tx) store.Claims { return generousClaims{} }

func (generousStore) Isolate(_ context.Context, tx *sql.Tx, n int, fn func(int, *sql.Tx) error) ([]error, error) {
	undone := make([]error, n)
	for i := range undone {
		undone[i] = fn(i, tx)
	}
	return undone, nil
}

type generousClaims struct{ store.Claims }

func (generousClaims) Claim(_ context.Context, p store.ClaimParams) (store.Standing, error) {
	return store.Standing{Claim: &store.Claim{Digest: p.Digest, Attempt: p.Attempt, Fence: 1, Mode: p.Mode}}, nil
}
func (generousClaims) Progress(context.Context, store.ProgressParams) error { return nil }
func (generousClaims) Complete(context.Context, store.CompleteParams) error { return nil }

// stale confirms on a surface that has moved.
func stale(ctx context.Context, d *sqliteDatabase, req broker.Request) (*result, error) {
	req.Current.ContractVersion += " and one more"
	return d.execute(ctx, req)
}

// forgetful tells every replay differently.
func forgetful(ctx context.Context, d *sqliteDatabase, req broker.Request) (*result, error) {
	res, err := d.execute(ctx, req)
	if err == nil && res.Replayed {
		res.Outcomes[0].Ref = "other"
	}
	return res, err
}

// failing has an executor that fails, with the key in its error.
func failing(ctx context.Context, d *sqliteDatabase, req broker.Request) (*result, error) {
	return d.broker.Execute(ctx, req, func(_ context.Context, it broker.Item) (broker.Outcome, error) {
		return broker.Outcome{}, broker.NotApplied(fmt.Errorf("no luck with %s", it.OperationKey))
	})
}

// dying ends its process.
func dying(context.Context, *sqliteDatabase, broker.Request) (*result, error) {
	fmt.Fprintln(os.Stderr, "these are my last words")
	os.Exit(3)
	return nil, nil
}

// breaks runs a broken mode: 2 processes, 3 goroutines, 2 keys, 3 items.
func breaks(t *testing.T, mode string) (ran, line) {
	t.Helper()
	cmd := program(t, "-mode", mode, "-processes", "2", "-goroutines", "3", "-keys", "2", "-json")
	cmd.Env = append(cmd.Env, withBroken+"=1")
	r := finish(t, cmd)
	assert.Equal(t, exitFailed, r.status, "%s%s", r.out, r.err)
	assert.NotContains(t, r.err, "ok:")
	modes, _ := r.lines(t, mode)
	return r, modes[0]
}

// S12: the harness bites.
func TestDoubleEffectsAreFound(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]struct{ calls, doubles, firstRuns int }{
		"twice":        {calls: 2 * 3 * 2, doubles: 2 * 3, firstRuns: 2},
		"not_at_all":   {calls: 0, doubles: 2 * 3, firstRuns: 2},
		"unclaimed":    {calls: 2 * 3 * 2 * 3, doubles: 2 * 3, firstRuns: 2 * 2 * 3},
		"unclaimed_tx": {calls: 2 * 3 * 2 * 3, doubles: 2 * 3, firstRuns: 2 * 2 * 3},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r, l := breaks(t, mode)
			assert.Equal(t, want.calls, l.ExecutorCalls)
			assert.Equal(t, want.doubles, l.DoubleEffects)
			assert.Equal(t, want.firstRuns, l.FirstRuns)
			assert.Contains(t, r.err, "FAILED "+mode+": 6 double effects")
			assert.Regexp(t, `storm: the files are kept in \S+\n$`, r.err)
			if want.firstRuns != 2 {
				assert.Contains(t, r.err, "FAILED "+mode+": 2 keys without exactly one first run")
			}
		})
	}
}

// Answers that no confirm of a storm may get are told, with few examples.
func TestUnexpectedAnswersAreFound(t *testing.T) {
	t.Parallel()
	r, l := breaks(t, "stale")
	assert.Zero(t, l.DoubleEffects)
	assert.Equal(t, 2*2*3, l.OtherAnswers)
	assert.Contains(t, r.err, "FAILED stale: 2 keys without exactly one first run\nFAILED stale: 12 answers stale\n")
	assert.Regexp(t, `(?:  for example stale: .+\n){10}$`, r.err)
	assert.NotRegexp(t, `(?:  for example stale: .+\n){11}`, r.err)
}

// Results that do not say that all was applied are no first runs and no replays.
func TestFailedItemsAreFound(t *testing.T) {
	t.Parallel()
	r, l := breaks(t, "failing")
	assert.Zero(t, l.DoubleEffects)
	assert.Zero(t, l.FirstRuns)
	assert.Contains(t, r.err, "FAILED failing: 2 answers executed, not all applied\n")
}

// S17: replays that tell something else than the first run did are found.
func TestDifferingReplaysAreFound(t *testing.T) {
	t.Parallel()
	r, l := breaks(t, "forgetful")
	assert.Zero(t, l.DoubleEffects)
	assert.Equal(t, 2, l.FirstRuns)
	assert.Contains(t, r.err, "FAILED forgetful: 2 keys whose results do not all tell the same\n")
}

// A child process that ends before its time fails the storm, and is heard.
func TestADyingChildIsFound(t *testing.T) {
	t.Parallel()
	r, l := breaks(t, "dying")
	assert.Zero(t, l.Keys)
	assert.Regexp(t, `FAILED dying: a child process failed: exit status 3: these are my last words`, r.err)
}

func TestBrokenModesAreForTests(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"execute", "execute_per_item", "execute_tx", "execute_atomic", allModes}, modeNames())
}
