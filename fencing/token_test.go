package fencing

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// shownTokens are tokens of every kind, and holders.
var (
	shownTokens = []int64{math.MinInt64, -1, 0, 1, 33, 34, math.MaxInt64}
	holders     = []string{"", "p1", "p2", "p\n"}
)

// R56, A28: the whole decision about a token that is shown, for people to read.
func TestTokenTable(t *testing.T) {
	var b table
	b.row("# highest seen, by", "token, by", "=> answer", "highest after it")
	for _, m := range []Mark{{}, {33, "p1"}, {math.MaxInt64, "p1"}} {
		b.row()
		for _, token := range shownTokens {
			for _, holder := range holders {
				after, err := m.Show(token, holder)
				b.row(fmt.Sprintf("%d %q", m.Token, m.Holder), fmt.Sprintf("%d %q", token, holder), answer(err),
					fmt.Sprintf("%d %q", after.Token, after.Holder))
			}
		}
	}
	b.compare(t, "token", "What becomes of the highest fencing token of a resource.")
}

// R56: in every sequence the mark only rises, of one number there is one holder, and a refusal changes nothing and tells the mark.
func TestMarksOnlyRise(t *testing.T) {
	type shown struct {
		token  int64
		holder string
	}
	type path struct {
		Mark
		holders map[int64]string
	}
	var all []shown
	for _, token := range []int64{0, 1, 2, 3} {
		all = append(all, shown{token, "p1"}, shown{token, "p2"})
	}
	sequences(path{}, all, 5, func(p path, s shown) path {
		after, err := p.Show(s.token, s.holder)
		if err != nil {
			require.Equal(t, p.Mark, after)
			if s.token > 0 {
				require.Equal(t, standing(ErrTokenStale, p.Token), err)
				require.True(t, s.token < p.Token || p.Holder != s.holder)
			}
			return p
		}
		require.GreaterOrEqual(t, after.Token, p.Token)
		require.Equal(t, Mark{s.token, s.holder}, after)
		seen := map[int64]string{after.Token: after.Holder}
		for token, holder := range p.holders {
			if token == after.Token {
				require.Equal(t, holder, after.Holder)
			}
			seen[token] = holder
		}
		return path{after, seen}
	})
}

// R56: a holder that was paused while another took its place writes nothing (etcd#10811); the mark is kept, and one per resource.
func TestShowToken(t *testing.T) {
	ctx, spy := t.Context(), newSpy()
	f := fenceOf(spy)
	for _, token := range []int64{33, 34} {
		m, err := f.ShowToken(ctx, "line-1", token, fmt.Sprint("p", token))
		require.NoError(t, err)
		assert.Equal(t, token, m.Token)
	}
	_, err := f.ShowToken(ctx, "line-1", 33, "p33")
	assert.Equal(t, standing(ErrTokenStale, 34), err)
	assert.JSONEq(t, `{"token":34,"holder":"p34"}`, spy.content("token/line-1"))
	_, err = f.ShowToken(ctx, "line-2", 1, "p1")
	require.NoError(t, err)
	assert.Equal(t, contract.Aborted, ErrTokenStale.Code)
}

// A token that is allowed again is written again: only so it stays the highest until the transaction ends.
func TestShowingAgainLocks(t *testing.T) {
	spy := newSpy()
	for range 2 {
		_, err := fenceOf(spy).ShowToken(t.Context(), "line-1", 1, "p1")
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"token/line-1", "token/line-1"}, spy.wrote())
}

// What cannot be a name is refused before the store is asked.
func TestShowTokenRefusals(t *testing.T) {
	spy, long := newSpy(), strings.Repeat("x", contract.MaxMetaText+1)
	for _, resource := range []string{"", "a\nb", long} {
		_, err := fenceOf(spy).ShowToken(t.Context(), resource, 1, "p1")
		assert.Equal(t, "INVALID_ARGUMENT /resource", answer(err))
	}
	assert.Empty(t, spy.calls)
	_, err := fenceOf(spy).ShowToken(t.Context(), "line-1", 1, long)
	assert.Equal(t, "INVALID_ARGUMENT /holder", answer(err))
}
