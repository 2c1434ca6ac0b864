package vectors_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/httperr"
)

// schemas compiles every schema, as JSON Schema 2020-12, by its name.
func schemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	files, err := fs.Glob(confirmexec.Vectors, "testdata/schemas/v1/*.json")
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	all := map[string]*jsonschema.Schema{}
	for _, file := range files {
		data, err := confirmexec.Vectors.ReadFile(file)
		require.NoError(t, err)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		require.NoError(t, err)
		name := strings.TrimSuffix(path.Base(file), ".json")
		id := "urn:confirmexec:schema:v1:" + name
		require.Equal(t, id, doc.(map[string]any)["$id"])
		require.Equal(t, "https://json-schema.org/draft/2020-12/schema", doc.(map[string]any)["$schema"])
		c := jsonschema.NewCompiler()
		require.NoError(t, c.AddResource(id, doc))
		all[name], err = c.Compile(id) // checks it against the metaschema too
		require.NoError(t, err, name)
	}
	return all
}

var errNoJSON = errors.New("not JSON")

// judge says what a schema makes of a document.
func judge(s *jsonschema.Schema, document []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return errNoJSON
	}
	return s.Validate(v)
}

// S10: a schema accepts every document of its vectors that is valid, and refuses every other one, but for those whose vector says
// what it is that no schema can see; these it accepts, so that the vector is right about that.
func TestSchemasAgreeWithVectors(t *testing.T) {
	all := schemas(t)
	for _, topic := range documents {
		t.Run(topic.name, func(t *testing.T) {
			accepted, refused, noJSON, beyond := 0, 0, 0, 0
			for _, v := range vectorsOf(t, topic.name) {
				document, ok := topic.document(t, v)
				if !ok {
					continue
				}
				err := judge(all[topic.schema(v)], document)
				switch {
				case v.valid():
					accepted++
					assert.NoError(t, err, v.Name)
				case errors.Is(err, errNoJSON):
					noJSON++
				case v.BeyondSchema != "":
					beyond++
					assert.NoError(t, err, "%s: the schema sees it, so the vector must not say that it is beyond one", v.Name)
				default:
					refused++
					assert.Error(t, err, v.Name)
				}
			}
			t.Logf("%d accepted, %d refused, %d not JSON, %d beyond a schema", accepted, refused, noJSON, beyond)
			require.Positive(t, accepted+refused)
		})
	}
}

// S10: every file of vectors has the one shape.
func TestVectorFilesHaveOneShape(t *testing.T) {
	shape := schemas(t)["vectors"]
	files, err := fs.Glob(confirmexec.Vectors, "testdata/vectors/v1/*/*.json")
	require.NoError(t, err)
	for _, file := range files {
		data, err := confirmexec.Vectors.ReadFile(file)
		require.NoError(t, err)
		assert.NoError(t, judge(shape, data), file)
	}
}

// R3, S10: what httperr writes of every failure is a problem by the schema, and one without a failure is none.
func TestProblemSchema(t *testing.T) {
	problem := schemas(t)["problem"]
	for _, rule := range contract.RetryTable() {
		full := &contract.Failure{Code: rule.Code, Reason: "own.reason", Effect: contract.EffectUnknown, Current: 7, Message: "m"}
		for _, f := range []*contract.Failure{{Code: rule.Code}, full} {
			data, err := json.Marshal(httperr.ProblemOf(f))
			require.NoError(t, err)
			assert.NoError(t, judge(problem, data), string(data))
		}
	}
	for _, data := range []string{
		`{}`, `{"code":"INTERNAL","effect":"none","action":"reconcile"}`, `{"code":"ABORTED","effect":"by_code","action":"reread_revision"}`,
		`{"code":"ABORTED","effect":"none","action":"retry_read"}`, `{"code":"ABORTED","effect":"none","action":"reread_revision","current":1.5}`,
	} {
		assert.Error(t, judge(problem, []byte(data)), data)
	}
}
