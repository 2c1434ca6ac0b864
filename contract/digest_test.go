package contract

import (
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func digestOf(t *testing.T, p OperationProposal) string {
	t.Helper()
	d, err := DigestOf(p)
	require.NoError(t, err)
	return hex.EncodeToString(d[:])
}

func digestOfParams(t *testing.T, params string) string {
	t.Helper()
	return digestOf(t, OperationProposal{"s", "v", []Item{{"a", "op", json.RawMessage(params)}}})
}

// S20: the digest is this function of the content, for good: stored digests are compared with new ones. The values were
// computed by another program, from the description at DigestOf.
func TestDigestVectors(t *testing.T) {
	forum := Item{"a", "add_forum", json.RawMessage(`{"rank":1.0,"forum":"SD\u004eY"}`)}
	drop := Item{"b", "drop_forum", json.RawMessage(`{"\u00e9":"€\u000a","ids":["9007199254740993",15e-1]}`)}
	for want, p := range map[string]OperationProposal{
		"6c388e6aaf806f5199c468421024f31f01b58e67ee06ea0d2e4908d2a0aed11d": {"matter:123/forums", "v7", []Item{forum}},
		"b6f5332196026489f8350291e1e423924841d850ff8135db29f0a42a0cc96498": {"matter:123/forums", "v7", []Item{forum, drop}},
		"83c84ae9ef095c1d538a9bf039d2e75270c160a2a9ff7de3c2f43de6c0d34404": {"forums@v2", "1",
			[]Item{{"x", "noop", json.RawMessage("{}")}}},
	} {
		assert.Equal(t, want, digestOf(t, p))
	}
}

// S20: how the JSON was written does not matter.
func TestDigestIgnoresSpelling(t *testing.T) {
	want := digestOfParams(t, `{"a":1,"b":{"c":[1.5,"é"],"d":null}}`)
	for _, same := range []string{
		`{"b":{"d":null,"c":[1.5,"é"]},"a":1}`,
		" {\n\t\"a\" : 1.0 , \"b\" : { \"c\" : [ 15e-1 , \"\\u00e9\" ] , \"d\" : null } } ",
		`{"\u0061":1e0,"b":{"c":[0.15E1,"\u00E9"],"d":null}}`,
	} {
		assert.Equal(t, want, digestOfParams(t, same), same)
	}
}

// S20: every field, the order of items, every nested value and every border between fields matters.
func TestDigestTellsContentApart(t *testing.T) {
	obj := json.RawMessage(`{}`)
	seen := map[string]int{}
	for i, p := range []OperationProposal{
		{"s", "v", []Item{{"a", "op", obj}, {"b", "op", obj}}},
		{"s", "v", []Item{{"b", "op", obj}, {"a", "op", obj}}},
		{"s", "v", []Item{{"a", "op", obj}}},
		{"s2", "v", []Item{{"a", "op", obj}}},
		{"s", "v2", []Item{{"a", "op", obj}}},
		{"s", "v", []Item{{"a2", "op", obj}}},
		{"s", "v", []Item{{"a", "op2", obj}}},
		{"sv", "", []Item{{"a", "op", obj}}},
		{"", "sv", []Item{{"a", "op", obj}}},
		{"s", "v", []Item{{"ao", "p", obj}}},
		{"s", "v", []Item{{"a", "op{}", obj}}},
		{"s", "v", nil},
	} {
		d := digestOf(t, p)
		assert.NotContains(t, seen, d, i)
		seen[d] = i
	}
	for _, params := range []string{
		`{"x":1}`, `{"x":2}`, `{"x":"1"}`, `{"x":[1]}`, `{"x":[[1]]}`, `{"x":{"y":1}}`, `{"x":{"y":2}}`, `{"x":null}`,
		`{"y":1}`,
		`{"x":[1,2]}`, `{"x":[2,1]}`, `{"x":true}`, `{"x":false}`, `{"x":""}`, `{"x":"é"}`, `{"x":"e\u0301"}`, `{"x":[]}`,
		`{"x":{}}`, `{"x":0.1}`, `{"x":0.10000000000000002}`, `{"x":1e-323}`, `{"x":5e-324}`, `{"x":"\u0000"}`, `{"x":0}`,
	} {
		d := digestOfParams(t, params)
		assert.NotContains(t, seen, d, params)
		seen[d] = 0
	}
}

// S20: neighbours that one float64 would merge never share a digest: at most one of them has any.
func TestDigestOfBigNumbers(t *testing.T) {
	seen := map[Digest]string{}
	for _, n := range []string{
		"9007199254740991", "9007199254740992", "9007199254740993", "9007199254740994", "9007199254740992.5",
		`"9007199254740992"`, `"9007199254740993"`, "1e400", "1e308", "1e-400", "0", "-0", "1.7976931348623157e308",
	} {
		d, err := DigestOf(OperationProposal{"s", "v", []Item{{"a", "op", json.RawMessage(`{"n":` + n + `}`)}}})
		if err != nil {
			requireInvalid(t, err, "/items/0/params/n")
			continue
		}
		assert.NotContains(t, seen, d, n)
		seen[d] = n
	}
	assert.Len(t, seen, 8)
}

// S20: the key is not content, and nothing but params can make a digest fail.
func TestDigestScope(t *testing.T) {
	p := testProposal(2)
	a, b := p.Confirmation(uuid.MustParse(testKey)), p.Confirmation(uuid.Max)
	assert.Equal(t, digestOf(t, a.Proposal()), digestOf(t, b.Proposal()))
	assert.NotEmpty(t, digestOf(t, OperationProposal{}))
	assert.NotEmpty(t, digestOf(t, OperationProposal{"\xff", "\x00", []Item{{"", "", json.RawMessage("{}")}}}))
	for _, bad := range []string{"", "null", "[]", `{"a":1,"a":1}`, `{`, "{}{}"} {
		p.Items[1].Params = json.RawMessage(bad)
		d, err := DigestOf(p)
		assert.ErrorIs(t, err, ErrInvalid)
		assert.Zero(t, d)
	}
}
