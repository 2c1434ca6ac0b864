package vectors_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec"
)

// vector is one case, as this test needs it.
type vector struct {
	Name         string                     `json:"name"`
	In           map[string]json.RawMessage `json:"in"`
	Want         map[string]json.RawMessage `json:"want"`
	BeyondSchema string                     `json:"beyond_schema"`
}

func (v vector) valid() bool {
	for _, refusal := range []string{"invalid", "malformed"} {
		if _, ok := v.Want[refusal]; ok {
			return false
		}
	}
	return string(v.Want["accepted"]) != "false"
}

func vectorsOf(t *testing.T, topic string) (all []vector) {
	t.Helper()
	files, err := fs.Glob(confirmexec.Vectors, "testdata/vectors/v1/"+topic+"/*.json")
	require.NoError(t, err)
	for _, file := range files {
		data, err := confirmexec.Vectors.ReadFile(file)
		require.NoError(t, err)
		var doc struct {
			Cases []vector `json:"cases"`
		}
		require.NoError(t, json.Unmarshal(data, &doc))
		all = append(all, doc.Cases...)
	}
	require.NotEmpty(t, all, topic)
	return all
}

// documentTopic says where the vectors of a topic hold documents, and which schema these are for.
type documentTopic struct {
	name     string
	schema   func(v vector) string
	document func(t *testing.T, v vector) ([]byte, bool)
}

var documents = []documentTopic{
	{"confirmations", is("confirmation"), given},
	{"proposals", is("proposal"), given},
	{"limits", is("confirmation"), given},
	{"encoding", keyed, wanted},
	{"surface_keys", is("confirmation"), withSurfaceKey},
	{"staleness", is("current_surface_state"), func(_ *testing.T, v vector) ([]byte, bool) { return v.In["current"], true }},
	{"outcomes", is("outcomes"), given},
	{"outcomes_encoding", is("outcomes"), wanted},
	{"results", is("result"), given},
	{"results_encoding", is("result"), wanted},
	{"receipts", is("receipt"), given},
	{"receipts", is("failure"), failureOf},
	{"receipts_encoding", is("receipt"), wanted},
	{"retry_table", is("retry_rule"), func(_ *testing.T, v vector) ([]byte, bool) { return v.Want["rule"], v.Want["rule"] != nil }},
	{"mutation_ids", is("request_meta"), meta},
}

func is(name string) func(vector) string { return func(vector) string { return name } }

func keyed(v vector) string {
	if v.In["idempotency_key"] != nil {
		return "confirmation"
	}
	return "proposal"
}

func given(t *testing.T, v vector) ([]byte, bool) { return raw(t, v.In["document"]), true }

// wanted is the document that an encoder makes, if it makes one.
func wanted(t *testing.T, v vector) ([]byte, bool) {
	if v.Want["document"] == nil {
		return nil, false
	}
	return raw(t, v.Want["document"]), true
}

// failureOf is the failure in a receipt, if the receipt is valid or what is wrong with it is there.
func failureOf(t *testing.T, v vector) ([]byte, bool) {
	var doc struct {
		Failure json.RawMessage `json:"failure"`
	}
	if json.Unmarshal(raw(t, v.In["document"]), &doc) != nil || doc.Failure == nil {
		return nil, false
	}
	return doc.Failure, v.valid() || strings.HasPrefix(string(v.Want["invalid"]), `"/failure/`)
}

func withSurfaceKey(t *testing.T, v vector) ([]byte, bool) {
	return fmt.Appendf(nil, `{"schema_version":"operation_recovery.v1","idempotency_key":"0191e7a0-7b1c-7c3d-8e4f-0123456789ab",`+
		`"surface_key":%s,"contract_version":"v1","items":[{"item_id":"i1","op":"o","params":{}}]}`, quoted(t, raw(t, v.In["surface_key"]))), true
}

// meta is what a mutation carries; a redelivered one needs nothing.
func meta(t *testing.T, v vector) ([]byte, bool) {
	if v.In["redelivered"] != nil {
		return nil, false
	}
	members := map[string]json.RawMessage{}
	for name := range maps.Keys(v.In) {
		if text := raw(t, v.In[name]); len(text) > 0 {
			members[name] = quoted(t, text)
		}
	}
	data, err := json.Marshal(members)
	require.NoError(t, err)
	return data, true
}

func quoted(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	require.NoError(t, e.Encode(string(text)))
	return bytes.TrimSpace(b.Bytes())
}

// raw reads bytes as testdata/README.md says that vectors write them.
func raw(t *testing.T, data json.RawMessage) []byte {
	t.Helper()
	var text string
	if json.Unmarshal(data, &text) == nil {
		return []byte(text)
	}
	var form struct {
		Text     string            `json:"text"`
		Base64   []byte            `json:"base64"`
		Times    *int              `json:"times"`
		Numbered bool              `json:"numbered"`
		Parts    []json.RawMessage `json:"parts"`
	}
	require.NoError(t, json.Unmarshal(data, &form))
	times := 1
	if form.Times != nil {
		times = *form.Times
	}
	var b bytes.Buffer
	b.Write(form.Base64)
	for n := range times {
		part := form.Text
		if form.Numbered {
			part = strings.ReplaceAll(part, "#", strconv.Itoa(n))
		}
		b.WriteString(part)
	}
	for _, part := range form.Parts {
		b.Write(raw(t, part))
	}
	return b.Bytes()
}
