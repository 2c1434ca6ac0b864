package contracttest_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec"
	"github.com/confirmexec/confirmexec/contract/contracttest"
)

// S10: the toys that stand in for other packages here pass too, so that what the next tests find is their own doing.
func TestComplete(t *testing.T) {
	assert.Empty(t, contracttest.Check(confirmexec.Vectors, complete()))
}

// leaf is one expected value in a file of vectors.
type leaf struct {
	file, vector string
	doc          map[string]any // the file
	holder       any            // the object or list that the value is in
	key          any            // its name or its index there
}

func (l leaf) get() any {
	if list, ok := l.holder.([]any); ok {
		return list[l.key.(int)]
	}
	return l.holder.(map[string]any)[l.key.(string)]
}

func (l leaf) set(v any) {
	if list, ok := l.holder.([]any); ok {
		list[l.key.(int)] = v
		return
	}
	l.holder.(map[string]any)[l.key.(string)] = v
}

// flipped is another value of the same kind.
func flipped(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case string:
		return v + "x"
	case bool:
		return !v
	case json.Number:
		n, err := v.Int64()
		require.NoError(t, err)
		return n + 1
	}
	require.Failf(t, "no leaf", "%T", v)
	return nil
}

// leaves returns every expected value of every vector.
func leaves(t *testing.T) (all []leaf) {
	t.Helper()
	files, err := fs.Glob(confirmexec.Vectors, "testdata/vectors/v1/*/*.json")
	require.NoError(t, err)
	for _, file := range files {
		data, err := confirmexec.Vectors.ReadFile(file)
		require.NoError(t, err)
		d := json.NewDecoder(strings.NewReader(string(data)))
		d.UseNumber()
		var doc map[string]any
		require.NoError(t, d.Decode(&doc))
		for _, c := range doc["cases"].([]any) {
			c := c.(map[string]any)
			l := leaf{file: file, doc: doc, vector: path.Base(path.Dir(file)) + "/" + c["name"].(string)}
			l.walk(c, "want", func(l leaf) { all = append(all, l) })
		}
	}
	return all
}

func (l leaf) walk(holder, key any, found func(leaf)) {
	l.holder, l.key = holder, key
	switch v := l.get().(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			l.walk(v, name, found)
		}
	case []any:
		for i := range v {
			l.walk(v, i, found)
		}
	default:
		found(l)
	}
}

func sortedKeys(m map[string]any) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// flip returns the file with this value changed, and leaves l as it was.
func (l leaf) flip(t *testing.T) []byte {
	t.Helper()
	was := l.get()
	l.set(flipped(t, was))
	defer l.set(was)
	data, err := json.Marshal(l.doc)
	require.NoError(t, err)
	return data
}

// failsWhenFlipped says whether the vector fails, and no other one does, when its expected value is another.
func failsWhenFlipped(t *testing.T, l leaf, vectors fstest.MapFS) bool {
	t.Helper()
	original := vectors[l.file]
	vectors[l.file] = &fstest.MapFile{Data: l.flip(t)}
	failures := contracttest.Check(vectors, complete())
	vectors[l.file] = original
	return len(failures) == 1 && failures[0].Vector == l.vector
}

// S10: flip any one expected value, and its vector fails, and no other. Twenty of them, by chance; the seed is fixed.
func TestFlippedVectorsFail(t *testing.T) {
	vectors := fstest.MapFS{}
	for _, l := range leaves(t) {
		data, err := confirmexec.Vectors.ReadFile(l.file)
		require.NoError(t, err)
		vectors[l.file] = &fstest.MapFile{Data: data}
	}
	all := leaves(t)
	random := rand.New(rand.NewPCG(1718, 2))
	for n := range 20 {
		l := all[random.IntN(len(all))]
		assert.True(t, failsWhenFlipped(t, l, vectors), "%s: %v", l.vector, l.key)
		t.Logf("%2d  %s: %v %v", n+1, l.vector, l.key, fmt.Sprintf("%.60v", l.get()))
	}
}

// S10: the same for every expected value there is, each vector on its own.
func TestEveryFlippedVectorFails(t *testing.T) {
	all := leaves(t)
	for _, l := range all {
		single := l
		single.doc = map[string]any{"topic": l.doc["topic"], "cases": []any{caseOf(l)}}
		failures := contracttest.Check(fstest.MapFS{l.file: {Data: single.flip(t)}}, complete())
		fails := func(f contracttest.Failure) bool { return f.Vector == l.vector }
		assert.True(t, slices.ContainsFunc(failures, fails), "%s: %v", l.vector, l.key)
	}
	t.Logf("%d expected values were flipped, one by one", len(all))
	require.Greater(t, len(all), 2500)
}

func caseOf(l leaf) any {
	for _, c := range l.doc["cases"].([]any) {
		if path.Base(path.Dir(l.file))+"/"+c.(map[string]any)["name"].(string) == l.vector {
			return c
		}
	}
	return nil
}
