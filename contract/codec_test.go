package contract

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testKey = "0198c0de-7a11-7000-8000-00000000c0de"

// validDoc is a confirmation with every kind of value in params.
const validDoc = `{"schema_version":"operation_recovery.v1","idempotency_key":"` + testKey + `",` +
	`"surface_key":"matter:123/forums","contract_version":"v7","items":[` +
	`{"item_id":"a","op":"add_forum","params":{"forum":"SDNY","rank":1}},` +
	`{"item_id":"b","op":"drop","params":{"deep":[{"x":null,"y":[true,1.50,"A<&>"]}]}}]}`

var keyMember = regexp.MustCompile(`"idempotency_key":"[^"]*",`)

// proposalOf turns a confirmation's wire form into its proposal's.
func proposalOf(doc string) string { return keyMember.ReplaceAllString(doc, "") }

func requireInvalid(t *testing.T, err error, path string) *InvalidError {
	t.Helper()
	var inv *InvalidError
	require.ErrorAs(t, err, &inv)
	require.ErrorIs(t, err, ErrInvalid)
	assert.Equal(t, path, inv.Path, err.Error())
	assert.NotEmpty(t, inv.Problem)
	return inv
}

// S1: the wire form is read, and written again byte for byte.
func TestConfirmationRoundTrip(t *testing.T) {
	c, err := DecodeConfirmation([]byte(validDoc), Limits{})
	require.NoError(t, err)
	assert.Equal(t, uuid.MustParse(testKey), c.IdempotencyKey)
	assert.Equal(t, SurfaceKey("matter:123/forums"), c.SurfaceKey)
	assert.Equal(t, "v7", c.ContractVersion)
	assert.Equal(t, Item{"a", "add_forum", json.RawMessage(`{"forum":"SDNY","rank":1}`)}, c.Items[0])
	out, err := c.MarshalJSON()
	require.NoError(t, err)
	assert.Equal(t, validDoc, string(out))

	p, err := DecodeProposal([]byte(proposalOf(validDoc)), Limits{})
	require.NoError(t, err)
	assert.Equal(t, c.Proposal(), p)
	assert.Equal(t, c, p.Confirmation(c.IdempotencyKey))
	out, err = p.MarshalJSON()
	require.NoError(t, err)
	assert.Equal(t, proposalOf(validDoc), string(out))
}

// S1: params are written as given, only compact: escapes, number forms and member order stay.
func TestParamsAreWrittenAsGiven(t *testing.T) {
	doc := strings.Replace(validDoc, `{"forum":"SDNY","rank":1}`, `{ "z" : "\u0041\/" , "a" : 1.50e1 }`, 1)
	c, err := DecodeConfirmation([]byte(doc), Limits{})
	require.NoError(t, err)
	out, err := c.MarshalJSON()
	require.NoError(t, err)
	assert.Contains(t, string(out), `"params":{"z":"\u0041\/","a":1.50e1}`)
}

// S1: everything but the exact shape is refused, with the path of what is wrong.
func TestDecodeIsStrict(t *testing.T) {
	swap := func(old, repl string) string {
		require.Contains(t, validDoc, old)
		return strings.Replace(validDoc, old, repl, 1)
	}
	itemA := `{"item_id":"a","op":"add_forum","params":{"forum":"SDNY","rank":1}}`
	for name, tc := range map[string]struct{ doc, path string }{
		"empty":                  {"", ""},
		"white space":            {" \n", ""},
		"null":                   {"null", ""},
		"array":                  {"[" + validDoc + "]", ""},
		"string":                 {`"x"`, ""},
		"byte order mark":        {"\ufeff" + validDoc, ""},
		"cut short":              {validDoc[:len(validDoc)-1], ""},
		"trailing value":         {validDoc + "{}", ""},
		"trailing garbage":       {validDoc + "x", ""},
		"trailing NUL":           {validDoc + "\x00", ""},
		"unknown member":         {swap(`"items"`, `"extra":1,"items"`), "/extra"},
		"unknown item member":    {swap(`"op"`, `"extra":{},"op"`), "/items/0/extra"},
		"member in upper case":   {swap(`"op":"add_forum"`, `"Op":"add_forum"`), "/items/0/Op"},
		"member with dash":       {swap(`"item_id"`, `"item-id"`), "/items/0/item-id"},
		"twice":                  {swap(`"op"`, `"item_id":"a","op"`), "/items/0/item_id"},
		"twice, escaped":         {swap(`"op"`, `"item\u005fid":"a","op"`), "/items/0/item_id"},
		"twice at the top":       {swap(`"items"`, `"surface_key":"matter:123/forums","items"`), "/surface_key"},
		"twice in params":        {swap(`"rank":1`, `"rank":1,"r\u0061nk":2`), "/items/0/params/rank"},
		"twice deep in params":   {swap(`{"x":null`, `{"y":1,"x":null`), "/items/1/params/deep/0/y"},
		"no version":             {swap(`"schema_version":"operation_recovery.v1",`, ""), "/schema_version"},
		"other version":          {swap(`recovery.v1`, "recovery.v2"), "/schema_version"},
		"version in other case":  {swap(`operation_recovery.v1`, "Operation_Recovery.V1"), "/schema_version"},
		"version as number":      {swap(`"operation_recovery.v1"`, "1"), "/schema_version"},
		"null version":           {swap(`"operation_recovery.v1"`, "null"), "/schema_version"},
		"no surface":             {swap(`"surface_key":"matter:123/forums",`, ""), "/surface_key"},
		"surface as object":      {swap(`"matter:123/forums"`, `{"a":"b"}`), "/surface_key"},
		"no contract version":    {swap(`"contract_version":"v7",`, ""), "/contract_version"},
		"contract version null":  {swap(`"v7"`, "null"), "/contract_version"},
		"contract version empty": {swap(`"v7"`, `""`), "/contract_version"},
		"contract version 7":     {swap(`"v7"`, "7"), "/contract_version"},
		"items missing":          {validDoc[:strings.Index(validDoc, `,"items"`)] + "}", "/items"},
		"items null":             {validDoc[:strings.Index(validDoc, `[{"item`)] + "null}", "/items"},
		"items empty":            {validDoc[:strings.Index(validDoc, `[{"item`)] + "[]}", "/items"},
		"items object":           {validDoc[:strings.Index(validDoc, `[{"item`)] + "{}}", "/items"},
		"item null":              {swap(itemA, "null"), "/items/0"},
		"item string":            {swap(itemA, `"a"`), "/items/0"},
		"item empty":             {swap(itemA, `{}`), "/items/0/item_id"},
		"no item id":             {swap(`"item_id":"a",`, ""), "/items/0/item_id"},
		"item id null":           {swap(`"item_id":"a"`, `"item_id":null`), "/items/0/item_id"},
		"item id number":         {swap(`"item_id":"b"`, `"item_id":2`), "/items/1/item_id"},
		"no op":                  {swap(`"op":"drop",`, ""), "/items/1/op"},
		"no params":              {swap(`,"params":{"forum":"SDNY","rank":1}`, ""), "/items/0/params"},
		"params null":            {swap(`{"forum":"SDNY","rank":1}`, "null"), "/items/0/params"},
		"params array":           {swap(`{"forum":"SDNY","rank":1}`, "[]"), "/items/0/params"},
		"params as text":         {swap(`{"forum":"SDNY","rank":1}`, `"{}"`), "/items/0/params"},
		"lone surrogate":         {swap(`SDNY`, `\ud800`), "/items/0/params/forum"},
		"bad UTF-8":              {swap(`SDNY`, "\xff"), "/items/0/params/forum"},
		"bad UTF-8 in id":        {swap(`"item_id":"a"`, "\"item_id\":\"\xff\""), "/items/0/item_id"},
		"inexact number":         {swap(`"rank":1`, `"rank":9007199254740993`), "/items/0/params/rank"},
		"comment":                {swap(`"items"`, `/* */"items"`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := DecodeConfirmation([]byte(tc.doc), Limits{})
			requireInvalid(t, err, tc.path)
			assert.Zero(t, c)
			assert.Error(t, json.Unmarshal([]byte(tc.doc), &c))
			_, err = DecodeProposal([]byte(proposalOf(tc.doc)), Limits{})
			requireInvalid(t, err, tc.path)
			assert.Error(t, json.Unmarshal([]byte(proposalOf(tc.doc)), new(OperationProposal)))
		})
	}
}

// S1: a proposal has no key; a key in one is as unknown as any other member.
func TestProposalHasNoKey(t *testing.T) {
	_, err := DecodeProposal([]byte(validDoc), Limits{})
	requireInvalid(t, err, "/idempotency_key")
	_, err = DecodeConfirmation([]byte(proposalOf(validDoc)), Limits{})
	requireInvalid(t, err, "/idempotency_key")
}

// S2: only the 36-character form of a UUID other than the nil UUID is a key.
func TestKeyForms(t *testing.T) {
	decodeKey := func(key string) (OperationConfirmation, error) {
		return DecodeConfirmation([]byte(strings.Replace(validDoc, testKey, key, 1)), Limits{})
	}
	for _, key := range []string{testKey, strings.ToUpper(testKey), "f47ac10b-58cc-4372-a567-0e02b2c3d479"} {
		c, err := decodeKey(key)
		require.NoError(t, err, key)
		assert.Equal(t, uuid.MustParse(key), c.IdempotencyKey)
	}
	for _, key := range []string{
		"", "x", uuid.Nil.String(), "urn:uuid:" + testKey, "{" + testKey + "}", strings.ReplaceAll(testKey, "-", ""),
		" " + testKey, testKey + " ", testKey[:35], testKey + "0", strings.Replace(testKey, "a", "g", 1),
		"0198c0de7-a11-7000-8000-00000000c0de", "0198c0de_7a11_7000_8000_00000000c0de",
	} {
		_, err := decodeKey(key)
		requireInvalid(t, err, "/idempotency_key")
	}
	c, err := decodeKey(testKey)
	require.NoError(t, err)
	c.IdempotencyKey = uuid.Nil
	requireInvalid(t, c.Validate(Limits{}), "/idempotency_key")
}

// S1: users of encoding/json get the same strictness, in documents of their own too.
func TestEncodingJSON(t *testing.T) {
	var doc struct{ Confirm *OperationConfirmation }
	require.NoError(t, json.Unmarshal([]byte(`{"confirm":`+validDoc+`}`), &doc))
	out, err := json.Marshal(doc)
	require.NoError(t, err)
	before := *doc.Confirm
	require.NoError(t, json.Unmarshal(out, &doc))
	digest, _ := DigestOf(before.Proposal())
	again, _ := DigestOf(doc.Confirm.Proposal())
	assert.Equal(t, digest, again)

	extra := strings.Replace(validDoc, `"op"`, `"extra":1,"op"`, 1)
	requireInvalid(t, json.Unmarshal([]byte(extra), doc.Confirm), "/items/0/extra")
	assert.Equal(t, before.IdempotencyKey, doc.Confirm.IdempotencyKey, "a failed decode changes nothing")
}

// S1: what a strict reader would refuse is not written.
func TestMarshalRefusesInvalid(t *testing.T) {
	c, err := DecodeConfirmation([]byte(validDoc), Limits{})
	require.NoError(t, err)
	c.Items[1].Params = json.RawMessage(`{"a":1`)
	_, err = json.Marshal(c)
	requireInvalid(t, err, "/items/1/params")
	_, err = json.Marshal(c.Proposal())
	requireInvalid(t, err, "/items/1/params")
	_, err = json.Marshal(OperationConfirmation{})
	requireInvalid(t, err, "/idempotency_key")
	_, err = json.Marshal(OperationProposal{})
	requireInvalid(t, err, "/surface_key")
}

// S22: no error text holds a value of the document, nor a member name that the document chose; the path does.
func TestErrorTextsQuoteNothing(t *testing.T) {
	const marker = "c4n4ry"
	docs := []string{
		`{"` + marker + `":1}`, `"` + marker + `"`, marker, validDoc + marker,
		strings.Replace(validDoc, `"op":"drop"`, `"`+marker+`":{"x":1}`, 1),
		strings.Replace(validDoc, `"rank":1`, `"`+marker+`":1e400`, 1),
		strings.Replace(validDoc, `"rank":1`, `"`+marker+`":1,"`+marker+`":1`, 1),
		strings.Replace(validDoc, `"rank":1`, `"items":{"`+marker+`":-0}`, 1),
		strings.Replace(validDoc, `"rank":1`, `"`+marker+`":"\ud800"`, 1),
		strings.Replace(validDoc, `"rank":1`, `"x":`+marker, 1),
		`{"items":{"` + marker + `":"\ud800"}}`, `{"op":{"` + marker + `":"\ud800"}}`,
	}
	for _, value := range []string{testKey, "operation_recovery.v1", "matter:123/forums", "v7", "add_forum", "SDNY", "a"} {
		for _, bad := range []string{
			`"` + marker + `\u0000"`, `"` + marker + ` "`, `["` + marker + `"]`, `{"` + marker + `":"` + marker + `"}`,
			`"` + marker + `\ud800"`, `"` + strings.Repeat(marker, 20000) + `"`, `"http://` + marker + `"`,
		} {
			docs = append(docs, strings.Replace(validDoc, `"`+value+`"`, bad, 1))
		}
	}
	for _, doc := range docs {
		_, err := DecodeConfirmation([]byte(doc), Limits{})
		if err == nil { // params may hold anything
			continue
		}
		assert.NotContains(t, err.Error(), marker, "in %.200q", doc)
		assert.NotContains(t, fmt.Sprint(ErrInvalid.With(err)), marker)
	}
	_, err := DecodeConfirmation([]byte(docs[4]), Limits{})
	assert.Equal(t, "/items/1/"+marker, requireInvalid(t, err, "/items/1/"+marker).Path)
	assert.Equal(t, "INVALID_ARGUMENT: /items/1/…: "+problemUnknown, err.Error())
}

// S1, S4: no input makes the decoder panic; what it accepts is valid, and is written so that it reads back the same.
func FuzzDecodeConfirmation(f *testing.F) {
	f.Add([]byte(validDoc))
	f.Add([]byte(strings.Replace(validDoc, "SDNY", `\ud83d\ude00\u0000`, 1)))
	f.Add([]byte(strings.Replace(validDoc, `"rank":1`, `"rank":1e-7,"r":{"":[[[]]]}`, 1)))
	f.Add([]byte(strings.Replace(validDoc, "matter:123/forums", "a%2f%2fb", 1)))
	f.Add([]byte(`{"items":[null,{},{"params":{"a":1,"a":2}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := DecodeConfirmation(data, Limits{})
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		out, err := c.MarshalJSON()
		require.NoError(t, err)
		again, err := DecodeConfirmation(out, Limits{})
		require.NoError(t, err)
		first, err := DigestOf(c.Proposal())
		require.NoError(t, err)
		second, err := DigestOf(again.Proposal())
		require.NoError(t, err)
		require.Equal(t, first, second)
		require.Equal(t, c.IdempotencyKey, again.IdempotencyKey)
		_, err = DecodeProposal(data, Limits{})
		require.Error(t, err, "a confirmation is not a proposal")
	})
}
