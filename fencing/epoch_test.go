package fencing

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// R111: an instance that becomes the active one has an epoch that nobody had before, and the office's number rises by one.
func TestTakeOfficeMakesANewEpoch(t *testing.T) {
	spy, seen := newSpy(), map[Epoch]bool{}
	for n := int64(1); n <= 500; n++ {
		o, err := space.TakeOffice(t.Context(), spy, "dispatcher")
		require.NoError(t, err)
		assert.Equal(t, n, o.Number)
		assert.GreaterOrEqual(t, len(o.Epoch), 26, "128 bits at least")
		assert.False(t, seen[o.Epoch])
		seen[o.Epoch] = true
		stands, err := space.Office(t.Context(), spy, "dispatcher")
		require.NoError(t, err)
		assert.Equal(t, o, stands)
	}
}

// R111: an epoch is not taken twice in a row, and none is no epoch.
func TestTakeRefusesAnOldEpoch(t *testing.T) {
	for _, o := range []Office{{}, {"e1", 1}, {"e2", 7}} {
		for _, e := range []Epoch{"", o.Epoch} {
			after, err := o.Take(e)
			assert.Equal(t, "INVALID_ARGUMENT /epoch", answer(err))
			assert.Equal(t, o, after)
		}
		after, err := o.Take("e3")
		require.NoError(t, err)
		assert.Equal(t, Office{"e3", o.Number + 1}, after)
	}
}

// R112, J2: the active epoch holds, and every other is refused, whatever it was; two scopes have nothing in common.
func TestEpochIs(t *testing.T) {
	spy := newSpy()
	first, err := space.TakeOffice(t.Context(), spy, "dispatcher")
	require.NoError(t, err)
	second, err := space.TakeOffice(t.Context(), spy, "dispatcher")
	require.NoError(t, err)
	elsewhere, err := space.TakeOffice(t.Context(), spy, "another")
	require.NoError(t, err)

	f, err := space.Hold(t.Context(), spy, EpochIs("dispatcher", second.Epoch))
	require.NoError(t, err)
	assert.True(t, f.Held())
	for name, e := range map[string]Epoch{
		"deposed": first.Epoch, "none": "", "unknown": "x", "of another scope": elsewhere.Epoch, "longer": second.Epoch + "x",
		"shorter": second.Epoch[:25],
	} {
		f, err := space.Hold(t.Context(), spy, EpochIs("dispatcher", e))
		assert.Equal(t, standing(ErrEpochFenced, 2), err, name)
		assert.False(t, f.Held(), name)
	}
	assert.Equal(t, contract.Aborted, ErrEpochFenced.Code)
}

// R112: a scope without an office has no epoch, and an empty one least of all.
func TestEpochOfAnEmptyOffice(t *testing.T) {
	for _, e := range []Epoch{"", "e1"} {
		_, err := space.Hold(t.Context(), newSpy(), EpochIs("dispatcher", e))
		assert.ErrorIs(t, err, ErrEpochFenced)
	}
	o, err := space.Office(t.Context(), newSpy(), "dispatcher")
	require.NoError(t, err)
	assert.Zero(t, o)
}

// R113: nothing follows from the names of epochs but that they are equal or not: under every renaming the answers are the same.
func TestEpochsHaveNoOrder(t *testing.T) {
	names := []Epoch{"0", "9", "a", "zz"}
	want := ""
	everyOrder(names, func(n []Epoch) {
		var got string
		var o Office
		for _, e := range n[:3] {
			var err error
			o, err = o.Take(e)
			got += fmt.Sprint(o.Number, answer(err), ";")
		}
		for _, said := range n {
			spy := newSpy()
			spy.put("office/d", fmt.Sprintf(`{"epoch":%q,"number":%d}`, o.Epoch, o.Number))
			_, err := space.Hold(t.Context(), spy, EpochIs("d", said))
			s := Session{Binding: sampleBinding, Epoch: o.Epoch}
			got += answer(err) + "," + answer(s.Admit(Caller{"p", sampleBinding, said})) + ";"
		}
		if want == "" {
			want = got
		}
		assert.Equal(t, want, got, "%v", n)
	})
	assert.Contains(t, want, "ok,ok;")
}
