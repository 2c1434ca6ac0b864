package contract

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// badTexts are refused wherever the contract wants a text.
var badTexts = []string{
	"", " ", "\t", " x", "x ", "x\n", "\u00a0x", "x\u3000", "\ufeffx", "a\x00b", "a\nb", "a\x7fb", "a\u0085b", "a\u2028b",
	"a\u2029b", "a\u202eb", "a\u2066b", "a\u200bb", "a\u00adb", "a\U000e0041b", "a\xffb", "\xc0\xaf", "a\xed\xa0\x80b",
}

// S3, S4: texts are one line of visible characters.
func TestCheckText(t *testing.T) {
	for _, bad := range badTexts {
		requireInvalid(t, checkText("/x", bad, 100), "/x")
	}
	for _, good := range []string{"x", "two words", "é", "日本語", "😀", "a\u00a0b", "\u0301", "\ufffd"} {
		assert.NoError(t, checkText("/x", good, 100), "%q", good)
	}
	assert.NoError(t, checkText("/x", "ééé", 6))
	requireInvalid(t, checkText("/x", "ééé", 5), "/x")
}

// S17: cut text is what it is: valid, within its size, and the same when cut again.
func TestCutText(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "12345678": "12345678", "123456789": "12345…", "1234éé": "1234éé", "1234ééé": "1234…",
		"日本語": "日…", "a\nb\tc": "a b c", "a\x00b": "a\ufffdb", "\xff": "\ufffd", "a\u202eb": "a\ufffdb",
		"a\u200cb": "a\u200cb", "\u2028": " ", "\x00\x00\x00": "\ufffd…", "😀😀😀": "😀…",
	} {
		assert.Equal(t, want, cutText(in, 8), "%q", in)
	}
}

// S17: the same for any text and any limit.
func FuzzCutText(f *testing.F) {
	f.Add("a\x00\xff\u202e日本語", uint8(5))
	f.Add(strings.Repeat("é", 300), uint8(255))
	f.Fuzz(func(t *testing.T, s string, n uint8) {
		limit := max(3, int(n))
		cut := cutText(s, limit)
		assert.True(t, utf8.ValidString(cut))
		assert.LessOrEqual(t, len(cut), limit)
		assert.False(t, strings.ContainsAny(cut, "\x00\n\u2028"))
		assert.Equal(t, cut, cutText(cut, limit))
	})
}

// S16: a tenant is a name too: never empty, never with hidden characters.
func TestValidateTenant(t *testing.T) {
	assert.NoError(t, ValidateTenant("firm-7"))
	assert.NoError(t, ValidateTenant(strings.Repeat("x", MaxTenant)))
	for _, bad := range append(badTexts, strings.Repeat("x", MaxTenant+1)) {
		requireInvalid(t, ValidateTenant(bad), "/tenant")
	}
}
