package properties

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/confirmexec/confirmexec/contract"
)

// A value is a JSON value by its meaning: nil, bool, float64, string, []any or map[string]any. Two documents mean the same
// exactly when their values are deeply equal: -0, which would be equal to 0, is not generated.

// text is any text of Unicode characters, often with those that JSON writes in several ways.
func text() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{"", "a", "é", "e\u0301", "\u0000", "\"\\/", "\b\f\n\r\t", "\u2028", "\U0001f600", "\ufb33", "\ufffd", "<&>", "\x7f"}),
	)
}

// number is a number that is a float64's shortest decimal.
func number() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) && !(f == 0 && math.Signbit(f)) }),
		rapid.Map(rapid.Int64Range(-1<<53, 1<<53), func(n int64) float64 { return float64(n) }),
		rapid.SampledFrom([]float64{0, 1, -1, 0.1, 1e21, 1e-7, 5e-324, math.MaxFloat64, 1 << 53}),
	)
}

// value is any value of at most so many levels.
func value(levels int) *rapid.Generator[any] {
	all := []*rapid.Generator[any]{
		rapid.Just[any](nil), rapid.Bool().AsAny(), number().AsAny(), text().AsAny(),
	}
	if levels > 0 {
		all = append(all, rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return value(levels - 1) }), 0, 4).AsAny())
		all = append(all, object(levels).AsAny())
	}
	return rapid.OneOf(all...)
}

func object(levels int) *rapid.Generator[map[string]any] {
	return rapid.MapOfN(text(), rapid.Deferred(func() *rapid.Generator[any] { return value(levels - 1) }), 0, 4)
}

// spell writes a value in one of its many forms: white space, order of members, escapes, forms of numbers.
func spell(t *rapid.T, v any) string {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r "})
	gap := func() string { return space.Draw(t, "space") }
	switch v := v.(type) {
	case string:
		return gap() + spellText(t, v) + gap()
	case float64:
		return gap() + spellNumber(t, v) + gap()
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, spell(t, e))
		}
		return gap() + "[" + gap() + strings.Join(parts, ",") + "]" + gap()
	case map[string]any:
		names := rapid.Permutation(slices.Sorted(maps.Keys(v))).Draw(t, "order")
		var parts []string
		for _, name := range names {
			parts = append(parts, gap()+spellText(t, name)+gap()+":"+spell(t, v[name]))
		}
		return gap() + "{" + gap() + strings.Join(parts, ",") + "}" + gap()
	case nil:
		return gap() + "null" + gap()
	}
	return gap() + fmt.Sprint(v) + gap()
}

var short = map[rune]string{'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func spellText(t *rapid.T, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		must := r < 0x20 || r == '"' || r == '\\'
		form := rapid.IntRange(0, 2).Draw(t, "escape")
		switch {
		case form == 0 && !must:
			b.WriteRune(r)
		case form == 1 && short[r] != "":
			b.WriteString(short[r])
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				b.WriteString(rapid.SampledFrom([]string{fmt.Sprintf(`\u%04x`, unit), fmt.Sprintf(`\u%04X`, unit)}).Draw(t, "hex"))
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}

func spellNumber(t *rapid.T, f float64) string {
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exponent)
	zeros := strings.Repeat("0", rapid.IntRange(0, 3).Draw(t, "zeros"))
	switch rapid.IntRange(0, 3).Draw(t, "number") {
	case 0:
		if math.Abs(f) < 1e25 && (f == 0 || math.Abs(f) > 1e-25) {
			s = strconv.FormatFloat(f, 'f', -1, 64)
			if strings.Contains(s, ".") {
				s += zeros
			} else if zeros != "" {
				s += "." + zeros
			}
			return s
		}
	case 1:
		if !strings.Contains(mantissa, ".") && zeros != "" {
			mantissa += "."
		}
		return mantissa + zeros + "E" + strconv.Itoa(e)
	case 2: // the point further left
		sign, digits := "", strings.Replace(mantissa, ".", "", 1)
		if strings.HasPrefix(digits, "-") {
			sign, digits = "-", digits[1:]
		}
		return sign + "0." + zeros + digits + "e" + strconv.Itoa(e+1+len(zeros))
	}
	return s
}

func digest(t require.TestingT, params string) contract.Digest {
	p := contract.OperationProposal{SurfaceKey: "s", ContractVersion: "v", Items: []contract.Item{{ID: "a", Op: "op", Params: []byte(params)}}}
	d, err := contract.DigestOf(p)
	require.NoError(t, err, params)
	return d
}

// S20: a document has one digest however it is written.
func TestDocumentsThatMeanTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := object(4).Draw(t, "value")
		first, second := spell(t, v), spell(t, v)
		require.Equal(t, digest(t, first), digest(t, second), "%s\n%s", first, second)
		a, err := contract.CanonicalJSON([]byte(first))
		require.NoError(t, err)
		b, err := contract.CanonicalJSON([]byte(second))
		require.NoError(t, err)
		require.Equal(t, string(a), string(b))
	})
}

// S20: a document in which anything at all is changed has another digest.
func TestDocumentsThatDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := object(4).Draw(t, "value")
		changed, ok := change(t, v).(map[string]any)
		if !ok || reflect.DeepEqual(any(v), any(changed)) {
			t.Skip("the change changed nothing, or the object itself")
		}
		require.NotEqual(t, digest(t, spell(t, v)), digest(t, spell(t, changed)))
	})
}

// S20: of any two documents, equal digests mean equal values, and the other way round.
func TestDigestsAreMeanings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]any{nil, true, 1.0, 0.1, "1", "", []any{}, map[string]any{}}), 0, 2)
		a, b := few.Draw(t, "a"), few.Draw(t, "b")
		require.Equal(t, reflect.DeepEqual(a, b), digest(t, spell(t, a)) == digest(t, spell(t, b)))
	})
}

// change changes one place of a value.
func change(t *rapid.T, v any) any {
	deeper := rapid.Bool().Draw(t, "deeper")
	switch v := v.(type) {
	case bool:
		return !v
	case nil:
		return rapid.SampledFrom([]any{false, 0.0, "", "null", []any{}, map[string]any{}}).Draw(t, "instead of null")
	case float64:
		return changeNumber(t, v)
	case string:
		return changeText(t, v)
	case []any:
		return changeArray(t, v, deeper && len(v) > 0)
	case map[string]any:
		return changeObject(t, v, deeper && len(v) > 0)
	}
	return v
}

// changeNumber makes the smallest change there is, or another type of the same digits.
func changeNumber(t *rapid.T, f float64) any {
	to := rapid.SampledFrom([]float64{math.Inf(1), math.Inf(-1)}).Draw(t, "towards")
	next := math.Nextafter(f, to)
	if math.IsInf(next, 0) || next == 0 || rapid.Bool().Draw(t, "as text") {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return next
}

func changeText(t *rapid.T, s string) any {
	add := rapid.SampledFrom([]string{" ", "\u0000", "\u0301", "a"}).Draw(t, "added")
	if s == "" || rapid.Bool().Draw(t, "append") {
		return s + add
	}
	_, size := utf8.DecodeRuneInString(s)
	return s[size:]
}

func changeArray(t *rapid.T, v []any, deeper bool) any {
	out := slices.Clone(v)
	if deeper {
		i := rapid.IntRange(0, len(v)-1).Draw(t, "element")
		out[i] = change(t, v[i])
		return out
	}
	switch rapid.IntRange(0, 3).Draw(t, "array") {
	case 0:
		return append(out, nil)
	case 1:
		slices.Reverse(out)
		return out
	case 2:
		return []any{out}
	}
	if len(out) == 0 {
		return map[string]any{}
	}
	return out[1:]
}

func changeObject(t *rapid.T, v map[string]any, deeper bool) any {
	out := maps.Clone(v)
	names := slices.Sorted(maps.Keys(v))
	if len(names) == 0 {
		return map[string]any{"": nil}
	}
	name := rapid.SampledFrom(names).Draw(t, "member")
	if deeper {
		out[name] = change(t, v[name])
		return out
	}
	delete(out, name)
	if rapid.Bool().Draw(t, "rename") {
		out[fmt.Sprint(changeText(t, name))] = v[name]
	}
	return out
}
