package contract

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func someContent() *Content { return NewContent("/s/M").Text("a", "x").Int("b", 7) }

// R25, R35: the digest is this function of the content, for good: stored ones are compared with new ones. The value was computed by
// a shell, from the description at Content.Digest:
//
//	n() { printf %016x $1 | xxd -r -p; }; t() { n ${#1}; printf %s "$1"; }
//	{ t confirmexec/mutation; n 1; t /s/M; n 2; t a; t text; t x; t b; t int; n 8; n 7; } | sha256sum
func TestContentVector(t *testing.T) {
	d := someContent().Digest()
	assert.Equal(t, "0019286255c4ccad3dc4069a1c196f4bccbfb14105d09dd45208ce4e00d87895", hex.EncodeToString(d[:]))
}

// R35: every kind of field, hashed by hand.
func TestContentKinds(t *testing.T) {
	text := func(s string) string { return string(binary.BigEndian.AppendUint64(nil, uint64(len(s)))) + s }
	number := func(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }
	want := sha256.Sum256([]byte(text("confirmexec/mutation") + number(1) + text("m") + number(6) +
		text("bytes") + text("bytes") + text("\x00\xff") +
		text("false") + text("bool") + text("\x00") +
		text("least") + text("int") + text(number(1<<63)) +
		text("minus") + text("int") + text(number(math.MaxUint64)) +
		text("text") + text("text") + text("é\x00") +
		text("true") + text("bool") + text("\x01")))
	got := NewContent("m").Text("text", "é\x00").Bytes("bytes", []byte{0, 255}).Bool("true", true).Bool("false", false).
		Int("minus", -1).Int("least", math.MinInt64).Digest()
	assert.Equal(t, Digest(want), got)
}

// R35: the order in which fields were added does not matter, and computing the digest changes nothing.
func TestContentOrder(t *testing.T) {
	want := someContent().Digest()
	assert.Equal(t, want, NewContent("/s/M").Int("b", 7).Text("a", "x").Digest())
	c := NewContent("/s/M").Int("b", 7)
	early := c.Digest()
	assert.NotEqual(t, want, early)
	assert.Equal(t, want, c.Text("a", "x").Digest())
	assert.Equal(t, want, c.Digest())
	value := []byte("x")
	c = NewContent("/s/M").Bytes("v", value)
	want = c.Digest()
	value[0] = 'y'
	assert.Equal(t, want, c.Digest(), "it has its own copy")
}

// R35: the method, every name, kind, value and border between them, and the order of values of one name matter.
func TestContentTellsApart(t *testing.T) {
	seen := map[Digest]string{}
	for name, c := range map[string]*Content{
		"nothing":           NewContent(""),
		"some":              someContent(),
		"method":            NewContent("/s/N").Text("a", "x").Int("b", 7),
		"name":              NewContent("/s/M").Text("c", "x").Int("b", 7),
		"value":             NewContent("/s/M").Text("a", "y").Int("b", 7),
		"number":            NewContent("/s/M").Text("a", "x").Int("b", 8),
		"less":              NewContent("/s/M").Text("a", "x"),
		"more":              someContent().Bool("c", false),
		"text, not bytes":   NewContent("/s/M").Bytes("a", []byte("x")).Int("b", 7),
		"bool, not int":     NewContent("/s/M").Text("a", "x").Bool("b", true),
		"text of a number":  NewContent("/s/M").Text("a", "x").Text("b", "\x00\x00\x00\x00\x00\x00\x00\x07"),
		"border":            NewContent("m").Text("ab", "c"),
		"border 2":          NewContent("m").Text("a", "bc"),
		"border 3":          NewContent("ma").Text("b", "c"),
		"kind as value":     NewContent("m").Text("a", "text"),
		"kind as name":      NewContent("m").Text("text", "a"),
		"a field as value":  NewContent("m").Text("a", "\x00\x00\x00\x00\x00\x00\x00\x01b"),
		"empty value":       NewContent("m").Text("a", ""),
		"empty name":        NewContent("m").Text("", "a"),
		"no bytes":          NewContent("m").Bytes("a", nil),
		"twice":             NewContent("m").Text("a", "").Text("a", ""),
		"list":              NewContent("m").Text("a", "1").Text("a", "2"),
		"list, other order": NewContent("m").Text("a", "2").Text("a", "1"),
		"case":              NewContent("m").Text("A", ""),
		"composed":          NewContent("m").Text("é", ""),
		"decomposed":        NewContent("m").Text("e\u0301", ""),
		"not UTF-8":         NewContent("m").Text("\xff", ""),
		"replaced":          NewContent("m").Text("\ufffd", ""),
	} {
		d := c.Digest()
		assert.NotContains(t, seen, d, "%s and %s", name, seen[d])
		seen[d] = name
	}
	_, other := seen[must(t, testProposal(1))]
	assert.False(t, other, "an operation's digest is none of a mutation's")
}

func must(t *testing.T, p OperationProposal) Digest {
	t.Helper()
	d, err := DigestOf(p)
	require.NoError(t, err)
	return d
}

// R35: two contents share a digest exactly when they have the same method and, by name, the same values.
func TestContentProperty(t *testing.T) {
	type fields struct {
		Method, NameA, A, NameB string
		B                       []byte
	}
	content := func(f fields) *Content { return NewContent(f.Method).Text(f.NameA, f.A).Bytes(f.NameB, f.B) }
	require.NoError(t, quick.Check(func(a, b fields) bool {
		swapped := NewContent(a.Method).Bytes(a.NameB, a.B).Text(a.NameA, a.A)
		return (a.NameA == a.NameB || content(a).Digest() == swapped.Digest()) &&
			(content(a).Digest() == content(b).Digest()) == (fmt.Sprintf("%q", a) == fmt.Sprintf("%q", b))
	}, nil))
}
