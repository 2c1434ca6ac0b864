package contract

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// S20: documents with the same value have one canonical form, that of RFC 8785.
func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{
		` { "b" : 1 , "a" : [ true , null ] } `: `{"a":[true,null],"b":1}`,
		`"\u0041\/\u00e9\u000a"`:                `"A/é\n"`,
		`"\ud83d\ude00"`:                        `"😀"`,
		`{"\ufb33":3,"\ud83d\ude00":2,"\r":1}`:  `{"\r":1,"😀":2,"` + "\ufb33" + `":3}`, // sorted by UTF-16 code units
		`"<&>\u2028"`:                           `"<&>` + "\u2028" + `"`,
		`{"":{"":[]}}`:                          `{"":{"":[]}}`,
		"1.0":                                   "1", "1e0": "1", "10e-1": "1", "0e9": "0", "0.0": "0", "1.10": "1.1",
		"0.1":  "0.1",
		"1E21": "1e+21", "1e+00005": "100000", "1e20": "100000000000000000000", "0.000001": "0.000001", "1e-7": "1e-7",
		"-1.5": "-1.5", "9007199254740992": "9007199254740992", "1.7976931348623157e308": "1.7976931348623157e+308",
		"5e-324": "5e-324", "333333333.3333333": "333333333.3333333",
	} {
		out, err := CanonicalJSON([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, string(out))
	}
}

// S1, S20: what a canonical form would change silently is refused, with its path.
func TestCanonicalJSONRefuses(t *testing.T) {
	for in, path := range map[string]string{
		"": "", " ": "", "{": "", "[1": "", "1 2": "", "{}x": "", "nul": "", "'a'": "", "01": "", "1.": "", "+1": "",
		"NaN": "", "Infinity": "", "[1,]": "", "\ufeff1": "", "1\x00": "",
		`{"a":1,"a":1}`: "/a", `{"a":1,"\u0061":2}`: "/a", `[{"x":{"b":1,"b":2}}]`: "/0/x/b",
		`["\ud800"]`: "/0", `["\udc00\ud800"]`: "/0", "[\"\xff\"]": "/0", "[\"\xed\xa0\x80\"]": "/0",
		"[1e400]": "/0", `{"a/b~":[0,-1e400]}`: "/a~1b~0/1", "[9007199254740993]": "/0", "[1e-400]": "/0", "[-0]": "/0",
		"[-0.0e5]": "/0", "[0.1000000000000000055511151231257827]": "/0", "[18446744073709551615]": "/0",
		"[9223372036854775807]": "/0", "[1.00000000000000001]": "/0", "[123456789012345678.1]": "/0",
		"[1e99999999999999999999]": "/0", "[1e-99999999999999999999]": "/0", "[4e-324]": "/0",
	} {
		_, err := CanonicalJSON([]byte(in))
		requireInvalid(t, err, path)
	}
	assert.NoError(t, checkParams("/p", json.RawMessage(`{"a":"9007199254740993"}`), DefaultLimits()))
	err := checkParams("/items/0/params", json.RawMessage(`{"total":0.30000000000000000001}`), DefaultLimits())
	assert.Contains(t, requireInvalid(t, err, "/items/0/params/total").Problem, "as strings")
}

// S4: nesting is limited before it is followed.
func TestCanonicalJSONDepth(t *testing.T) {
	nest := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	_, err := CanonicalJSON(nest(32))
	assert.NoError(t, err)
	for _, n := range []int{33, 9999, 20000} {
		_, err = CanonicalJSON(nest(n))
		assert.Contains(t, requireInvalid(t, err, strings.Repeat("/0", 32)).Problem, "deeper than 32")
	}
}

// S20: neighbours of a float64 never share a form: at most one decimal of each is accepted, its shortest.
func TestExactNumbers(t *testing.T) {
	for _, n := range []int64{1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2, 1<<60 + 1, math.MaxInt64, math.MinInt64} {
		want := strconv.FormatFloat(float64(n), 'f', -1, 64) == strconv.FormatInt(n, 10)
		assert.Equal(t, want, isExact(strconv.FormatInt(n, 10)), n)
	}
	for _, exponent := range []string{"", "e0", "E+3", "e-3", "e308", "e-320", "e400", "e-400", "e1000000"} {
		for mantissa := range strings.FieldsSeq("0 -0 0.0 1 -1 1.0 1.10 0.1 10 100.00 4.9 179.7 2.5") {
			literal := mantissa + exponent
			assert.Equal(t, exactByRat(t, literal), isExact(literal), literal)
		}
	}
}

// exactByRat is the slow way to know what isExact says.
func exactByRat(t *testing.T, literal string) bool {
	t.Helper()
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil || f == 0 && strings.HasPrefix(literal, "-") {
		return false
	}
	value, ok := new(big.Rat).SetString(literal)
	require.True(t, ok)
	shortest, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'e', -1, 64))
	require.True(t, ok)
	return value.Cmp(shortest) == 0
}

// S4: a huge literal costs no more than its length.
func TestHugeNumbersAreCheap(t *testing.T) {
	zeros := strings.Repeat("0", 1<<20)
	start := time.Now()
	assert.True(t, isExact("1."+zeros))
	assert.False(t, isExact("0."+zeros+"1"))
	assert.False(t, isExact("1"+zeros))
	assert.True(t, isExact("0."+zeros+"e"+zeros))
	assert.False(t, isExact("1e"+strings.Repeat("9", 1<<20)))
	assert.False(t, isExact("1e-"+strings.Repeat("9", 1<<20)))
	assert.False(t, isExact("0."+zeros[:99999]+"1e"+strings.Repeat("9", 30)))
	assert.Less(t, time.Since(start), 2*time.Second)
}

// S1, S20: a canonical form is valid JSON of the same value, and its own canonical form.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		validDoc, `{"b":[1.0,-2e-3,1E5],"a":"\u00e9\ud83d\ude00"}`, "1e400", "-0", "[9007199254740993]", `{"a":1,"\u0061":1}`,
		`"\ud800"`, "123456789012345680000", "0.1000000000000000055511151231257827", "[[[[[[]]]]]]", "1e-400", "\"\xff\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		input := bytes.Clone(data)
		out, err := CanonicalJSON(data)
		require.Equal(t, input, data, "the input is left alone")
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		again, err := CanonicalJSON(out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
		require.Equal(t, anyOf(t, data), anyOf(t, out))
	})
}

func anyOf(t *testing.T, data []byte) (v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(data, &v))
	return v
}

var numberLiteral = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// S20: the same for number literals, against exact arithmetic.
func FuzzExactNumber(f *testing.F) {
	for _, s := range []string{"1.10", "-1e-7", "9007199254740993", "1e400", "5e-324", "0.30000000000000004"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		_, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
		if !numberLiteral.MatchString(literal) || len(exponent) > 5 {
			return
		}
		require.Equal(t, exactByRat(t, literal), isExact(literal))
	})
}
