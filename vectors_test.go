package confirmexec_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec"
)

// manifest returns the sums of testdata/MANIFEST by file. Each file is there once.
func manifest(t *testing.T) map[string]string {
	t.Helper()
	text, err := confirmexec.Vectors.ReadFile("testdata/MANIFEST")
	require.NoError(t, err)
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, file, ok := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, ok, line)
		require.NotContains(t, sums, file)
		sums[file] = sum
	}
	return sums
}

// S10: a vector is never edited: every file is as it was when it was added, and none is missing from the manifest.
func TestVectorsAreOnlyAdded(t *testing.T) {
	sums := manifest(t)
	require.Greater(t, len(sums), 50)
	require.NoError(t, fs.WalkDir(confirmexec.Vectors, "testdata", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(file) != ".json" {
			return err
		}
		data, err := confirmexec.Vectors.ReadFile(file)
		require.NoError(t, err)
		sum := sha256.Sum256(data)
		name := strings.TrimPrefix(file, "testdata/")
		if assert.Contains(t, sums, name, "add the file to testdata/MANIFEST: internal/vectors.sh add") {
			assert.Equal(t, sums[name], hex.EncodeToString(sum[:]), "%s was edited: add a file instead", name)
		}
		delete(sums, name)
		return nil
	}))
	assert.Empty(t, sums, "vectors that were removed")
}

// S10: every topic says what is in it, and everything on the disk is embedded.
func TestVectorsAreComplete(t *testing.T) {
	topics, err := confirmexec.Vectors.ReadDir("testdata/vectors/v1")
	require.NoError(t, err)
	for _, topic := range topics {
		readme, err := confirmexec.Vectors.ReadFile("testdata/vectors/v1/" + topic.Name() + "/README.md")
		if assert.NoError(t, err) {
			assert.Contains(t, string(readme), "# "+topic.Name()+"\n")
			assert.Contains(t, string(readme), "Source: ")
		}
	}
	require.NoError(t, fs.WalkDir(os.DirFS("."), "testdata", func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			_, err = fs.Stat(confirmexec.Vectors, file)
		}
		return err
	}))
}

// S10: the suite needs nothing but contract and the standard library, and nobody but a test links the vectors.
func TestContracttestImportsLittle(t *testing.T) {
	all := deps(t, module+"/contract/contracttest")
	assert.Empty(t, outside(all, module+"/contract", "github.com/google/uuid", "github.com/go-json-experiment/json"))
	assert.Empty(t, outside(deps(t, module), module))
	for _, pkg := range []string{"/contract", "/broker", "/store/pgstore", "/contract/contracttest"} {
		assert.NotContains(t, deps(t, module+pkg), module)
	}
}
