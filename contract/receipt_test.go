package contract

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// applied is a receipt that can stand, and evidence for any other.
func applied() Receipt {
	return Receipt{
		Result: ResultApplied, Method: "/s/M", OperationID: "op-1", Digest: Digest{1, 2, 3}, Before: 4, After: 5,
		Barrier: &Barrier{ID: "b-1", Epoch: "e-1"}, Ref: "r-1", Detail: "done", By: "on-call", RecordedAt: 1_700_000_000_000,
	}
}

// recorded is a receipt with another result.
func recorded(c ResultCode) Receipt {
	return Receipt{Result: c, Method: "/s/M", OperationID: "op-1", Digest: Digest{1, 2, 3}, Detail: "seen", By: "on-call"}
}

// R23: the result codes are a closed set of seven in every direction; two of them may still change.
func TestResultCodes(t *testing.T) {
	want := []ResultCode{"ACCEPTED", "APPLIED", "UNKNOWN", "CONFLICT", "REFUSED", "STOPPED", "NOT_APPLIED"}
	assert.Equal(t, want, ResultCodes())
	for _, c := range want {
		assert.True(t, c.Valid())
		assert.Equal(t, c != ResultAccepted && c != ResultUnknown, c.Terminal())
		text, err := c.MarshalText()
		require.NoError(t, err)
		var back ResultCode
		require.NoError(t, back.UnmarshalText(text))
		assert.Equal(t, c, back)
	}
	for _, bad := range []ResultCode{"", "applied", "OK", "RESULT_CODE_APPLIED", " APPLIED", "UNSPECIFIED", "APPLIED\x00"} {
		assert.False(t, bad.Valid())
		assert.False(t, bad.Terminal(), "nothing is known to be final")
		_, err := bad.MarshalText()
		requireInvalid(t, err, "")
		c := ResultUnknown
		requireInvalid(t, c.UnmarshalText([]byte(bad)), "")
		assert.Equal(t, ResultUnknown, c)
	}
	ResultCodes()[0] = "changed"
	assert.Equal(t, want, ResultCodes())
}

// R2, R20: APPLIED needs evidence, has no failure and no revision that went back; every failure is of one of the ten codes.
func TestReceiptValidate(t *testing.T) {
	open := &Barrier{ID: "b", ActiveCalls: 1}
	for name, tc := range map[string]struct {
		receipt Receipt
		path    string
	}{
		"zero":                       {Receipt{}, "/result"},
		"other result":               {Receipt{Result: "DONE"}, "/result"},
		"no evidence":                {Receipt{Result: ResultApplied}, "/result"},
		"a person's word":            {Receipt{Result: ResultApplied, By: "b", Detail: "d"}, "/result"},
		"the same revision":          {Receipt{Result: ResultApplied, Before: 4, After: 4}, "/result"},
		"a revision before":          {Receipt{Result: ResultApplied, Before: 4}, "/result"},
		"moved revision":             {Receipt{Result: ResultApplied, Before: 4, After: 5}, "ok"},
		"first revision":             {Receipt{Result: ResultApplied, After: 1}, "ok"},
		"revision that went back":    {Receipt{Result: ResultApplied, Before: 5, After: 4, Ref: "r"}, "/after"},
		"the same behind a barrier":  {Receipt{Result: ResultApplied, Before: 5, After: 4, Barrier: &Barrier{ID: "b"}}, "/after"},
		"ref":                        {Receipt{Result: ResultApplied, Ref: "r"}, "ok"},
		"ref, unmoved revision":      {Receipt{Result: ResultApplied, Ref: "r", Before: 4, After: 4}, "ok"},
		"barrier":                    {Receipt{Result: ResultApplied, Barrier: &Barrier{ID: "b"}}, "ok"},
		"barrier with calls":         {Receipt{Result: ResultApplied, Barrier: open}, "/barrier/active_calls"},
		"barrier with calls, ref":    {Receipt{Result: ResultApplied, Barrier: open, Ref: "r"}, "/barrier/active_calls"},
		"barrier with calls, moved":  {Receipt{Result: ResultApplied, Barrier: open, After: 1}, "/barrier/active_calls"},
		"barrier without a name":     {Receipt{Result: ResultApplied, Barrier: &Barrier{}, Ref: "r"}, "/barrier"},
		"negative calls":             {Receipt{Result: ResultUnknown, Barrier: &Barrier{ID: "b", ActiveCalls: -1}}, "/barrier"},
		"failure":                    {Receipt{Result: ResultApplied, Ref: "r", Failure: &Failure{Code: Aborted}}, "/failure"},
		"failure without effect":     {Receipt{Result: ResultApplied, Ref: "r", Failure: ErrSealed}, "/failure"},
		"other failure":              {Receipt{Result: ResultRefused, Failure: &Failure{Code: "INTERNAL"}}, "/failure/code"},
		"failure without a code":     {Receipt{Result: ResultUnknown, Failure: &Failure{}}, "/failure/code"},
		"conflict with its failure":  {Receipt{Result: ResultConflict, Failure: ErrKeyReused}, "ok"},
		"unfinished with open calls": {Receipt{Result: ResultAccepted, Barrier: &Barrier{ID: "b", ActiveCalls: 3}}, "ok"},
		"negative before":            {Receipt{Result: ResultUnknown, Before: -1}, "/before"},
		"negative after":             {Receipt{Result: ResultApplied, Ref: "r", Before: 0, After: -1}, "/after"},
		"from below nothing":         {Receipt{Result: ResultApplied, Before: -1, After: 0}, "/before"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tc.receipt.Validate()
			assert.Equal(t, tc.path == "ok" && tc.receipt.Result == ResultApplied, tc.receipt.Applied())
			if tc.path == "ok" {
				assert.NoError(t, err)
				return
			}
			requireInvalid(t, err, tc.path)
			assert.Error(t, tc.receipt.Err())
		})
	}
	for _, c := range ResultCodes() {
		assert.Equal(t, c != ResultApplied, Receipt{Result: c}.Validate() == nil, "only APPLIED needs evidence")
	}
}

// R20, R21, R22: an error of nil means applied, with evidence: neither a reply without a receipt nor ACCEPTED is that.
func TestReceiptErr(t *testing.T) {
	own := &Failure{Code: FailedPrecondition, Reason: "own"}
	for name, tc := range map[string]struct {
		receipt Receipt
		want    error
	}{
		"applied":           {applied(), nil},
		"no receipt":        {Receipt{}, ErrOutcomeUnknown},
		"other result":      {Receipt{Result: "OK", Ref: "r"}, ErrOutcomeUnknown},
		"accepted":          {recorded(ResultAccepted), ErrOutcomeUnknown},
		"unknown":           {recorded(ResultUnknown), ErrOutcomeUnknown},
		"unknown, why":      {Receipt{Result: ResultUnknown, Failure: ErrSealed}, ErrOutcomeUnknown},
		"without evidence":  {Receipt{Result: ResultApplied}, ErrOutcomeUnknown},
		"with a failure":    {Receipt{Result: ResultApplied, Ref: "r", Failure: own}, ErrOutcomeUnknown},
		"conflict":          {recorded(ResultConflict), ErrNotApplied},
		"refused":           {recorded(ResultRefused), ErrNotApplied},
		"stopped":           {recorded(ResultStopped), ErrNotApplied},
		"not applied":       {recorded(ResultNotApplied), ErrNotApplied},
		"refused, why":      {Receipt{Result: ResultRefused, Failure: own}, own},
		"refused, replayed": {Receipt{Result: ResultRefused, Failure: own, Replayed: true}, own},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want == nil, tc.receipt.Applied())
			err := tc.receipt.Err()
			if tc.want == nil {
				assert.NoError(t, err)
				return
			}
			assert.ErrorIs(t, err, tc.want)
			f, _ := FailureOf(err)
			if errors.Is(err, ErrOutcomeUnknown) {
				assert.False(t, f.KnownNoEffect())
				assert.Equal(t, Decision{Reconcile, EffectUnknown, false}, Decide(originating, f, Answered))
			}
		})
	}
}

// advances has a row for what stands and a column for what may take its place, both in the order of ResultCodes.
const advances = `
	. A U C . S N   ACCEPTED
	. . . . . . .   APPLIED
	. A . C . . N   UNKNOWN
	. . . . . . .   CONFLICT
	. . . . . . .   REFUSED
	. . . . . . .   STOPPED
	. . . . . . .   NOT_APPLIED
`

// R23: only ACCEPTED and UNKNOWN advance; what is terminal never changes, not even into itself.
func TestReceiptAdvanceTable(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(advances), "\n")
	for i, from := range ResultCodes() {
		cells := strings.Fields(rows[i])
		require.Equal(t, string(from), cells[7])
		for j, to := range ResultCodes() {
			next := recorded(to)
			if to == ResultApplied {
				next = applied()
			}
			before := recorded(from)
			got, err := before.Advance(next)
			if cells[j] == "." {
				assert.ErrorIs(t, err, ErrNotAdvanced, "%s -> %s", from, to)
				assert.Equal(t, before, got)
				continue
			}
			assert.NoError(t, err, "%s -> %s", from, to)
			assert.Equal(t, to, got.Result)
			assert.False(t, from.Terminal())
		}
	}
	for _, bad := range []ResultCode{"", "DONE"} {
		_, err := recorded(bad).Advance(applied())
		assert.ErrorIs(t, err, ErrNotAdvanced)
		_, err = recorded(ResultUnknown).Advance(recorded(bad))
		assert.ErrorIs(t, err, ErrNotAdvanced)
	}
}

// R20, R23: a receipt advances only with evidence and with somebody who stands for it, and stays the same operation's.
func TestReceiptAdvanceNeedsEvidence(t *testing.T) {
	for name, tc := range map[string]struct {
		next Receipt
		path string
	}{
		"nobody":              {Receipt{Result: ResultApplied, Ref: "r"}, "/by"},
		"no evidence":         {Receipt{Result: ResultApplied, By: "b"}, "/result"},
		"a failure":           {Receipt{Result: ResultApplied, By: "b", Ref: "r", Failure: ErrSealed}, "/failure"},
		"calls run":           {Receipt{Result: ResultApplied, By: "b", Barrier: &Barrier{ID: "b", ActiveCalls: 2}}, "/barrier/active_calls"},
		"absent, nobody":      {Receipt{Result: ResultNotApplied, Detail: "d"}, "/by"},
		"absent, no evidence": {Receipt{Result: ResultNotApplied, By: "b"}, "/detail"},
		"a ref is no detail":  {Receipt{Result: ResultConflict, By: "b", Ref: "r"}, "/detail"},
		"other failure":       {Receipt{Result: ResultNotApplied, By: "b", Detail: "d", Failure: &Failure{Code: "NO"}}, "/failure/code"},
	} {
		stands := recorded(ResultUnknown)
		got, err := stands.Advance(tc.next)
		requireInvalid(t, err, tc.path)
		assert.Equal(t, stands, got, name)
	}
	next := applied()
	next.Method, next.OperationID, next.Digest, next.Replayed, next.Detail = "/other", "other", Digest{9}, true, "a\x00b"
	stands := recorded(ResultUnknown)
	got, err := stands.Advance(next)
	require.NoError(t, err)
	assert.Equal(t, []any{stands.Method, stands.OperationID, stands.Digest, false, "a\ufffdb"},
		[]any{got.Method, got.OperationID, got.Digest, got.Replayed, got.Detail})
	assert.Equal(t, got, got.Clean())
	assert.Equal(t, recorded(ResultUnknown), stands)
	assert.Equal(t, "a\x00b", next.Detail)
}

// R23, S17: any receipt can be cleaned, which does not touch the original, changes nothing the second time and no result.
func TestReceiptClean(t *testing.T) {
	long := strings.Repeat("é\x00\xff", 1000)
	r := Receipt{
		Result: ResultRefused, Method: long, OperationID: long, Ref: long, Detail: long, By: long, RecordedAt: -1,
		Barrier: &Barrier{long, 3, long}, Failure: &Failure{Aborted, Reason(long), 99, long, 7, errors.New("s3cret")},
	}
	c := r.Clean()
	assert.Equal(t, c, c.Clean())
	assert.True(t, c.clean())
	assert.False(t, r.clean())
	assert.Equal(t, long, r.Failure.Message)
	assert.Equal(t, long, r.Barrier.ID)
	assert.NoError(t, c.Failure.Cause)
	assert.Equal(t, EffectUnknown, c.Failure.Effect, "no effect is made of what is none")
	assert.Equal(t, []any{r.Result, r.RecordedAt, int64(3), Aborted, int64(7)},
		[]any{c.Result, c.RecordedAt, c.Barrier.ActiveCalls, c.Failure.Code, c.Failure.Current})
	for text, limit := range map[string]int{
		c.Method: MaxMethod, c.OperationID: MaxMetaText, c.Ref: MaxRef, c.Detail: MaxDetail, c.By: MaxBy,
		string(c.Failure.Reason): MaxReason, c.Failure.Message: MaxDetail, c.Barrier.Epoch: MaxMetaText,
	} {
		assert.LessOrEqual(t, len(text), limit)
	}
	assert.Equal(t, applied(), applied().Clean())
}
