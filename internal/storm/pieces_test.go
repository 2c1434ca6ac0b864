package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Percentiles are of the nearest rank.
func TestPercentile(t *testing.T) {
	t.Parallel()
	assert.Zero(t, newTally("none").percentile(50))
	one := &tally{took: []time.Duration{7}}
	hundred := &tally{}
	for i := range 100 {
		hundred.took = append(hundred.took, time.Duration(i+1))
	}
	for _, p := range []int{50, 90, 99, 100} {
		assert.Equal(t, time.Duration(7), one.percentile(p))
		assert.Equal(t, time.Duration(p), hundred.percentile(p))
	}
}

func TestTallyCountsByKey(t *testing.T) {
	t.Parallel()
	first := report{Answers: map[string]int{firstRun: 1, replay: 1}, Applied: []string{"1"}, Results: []string{"x"}}
	none := report{Answers: map[string]int{inProgress: 2}}
	tl := newTally("m")
	tl.add("a", []report{first, first}) // two first runs here
	tl.add("b", []report{none, none})   // none there: the sum is as it should be
	assert.Equal(t, 2, tl.answers[firstRun])
	assert.Equal(t, 2, tl.noFirst)
	assert.Zero(t, tl.differ)
	assert.Zero(t, tl.doubles(), "not counted yet")

	tl.happened = counts{{"a", "1"}: 1, {"z", "9"}: 2}
	assert.Equal(t, 1, tl.doubles(), "also of a key that nobody has reported on")
	assert.Equal(t, 3, tl.calls())
	tl.happened = counts{}
	assert.Equal(t, 1, tl.doubles(), "said to be applied")
}

func TestLedgerLines(t *testing.T) {
	t.Parallel()
	n, err := countLines(strings.NewReader("k 1 10\nk 2 10\nk 1 11\n"))
	require.NoError(t, err)
	assert.Equal(t, counts{{"k", "1"}: 2, {"k", "2"}: 1}, n)
	_, err = countLines(strings.NewReader("k 1 10\nk 2\n"))
	require.ErrorContains(t, err, "2 fields")
	n, err = readLedger(t.TempDir() + "/none")
	require.NoError(t, err)
	assert.Empty(t, n)
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(&out, "execute", 100)
	p.tell(1)
	p.end()
	assert.Empty(t, out.String(), "not a terminal, and too soon")
	p.every = 0
	p.tell(10)
	assert.Regexp(t, `^execute: 10 of 100 keys, [0-9.]+ a second, \w+ left\n$`, out.String())

	out.Reset()
	p.terminal = true
	p.tell(20)
	p.end()
	assert.Regexp(t, `^\rexecute: 20 of [^\r\n]+\r`, out.String())
	assert.Equal(t, "execute: 50 of 100 keys, 5.0 a second, 10s left", p.text(50, 10*time.Second))
}

func TestCausesAreTold(t *testing.T) {
	t.Parallel()
	inner := errors.New("the cause of key k-1")
	assert.Equal(t, "outside: the cause of key KEY", withoutKey(hiding{inner}, "k-1"))
	assert.Empty(t, withCauses(nil))
}

// hiding does not tell its cause.
type hiding struct{ cause error }

func (hiding) Error() string   { return "outside" }
func (h hiding) Unwrap() error { return h.cause }

func TestWithRole(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://owner:secret@db.example:5433/app?sslmode=require&user=owner&password=secret"
	got, err := withRole(dsn, "plain", "p")
	require.NoError(t, err)
	assert.Equal(t, "postgres://plain:p@db.example:5433/app?sslmode=require", got)
	_, err = withRole("postgres://owner:secret@[broken/app", "plain", "p")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
}
