package vectors_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository is a git repository with a manifest and the script that guards it.
type repository struct {
	*testing.T
	dir string
}

func (r repository) try(name string, args ...string) (string, error) {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), name, args...)
	cmd.Dir = r.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r repository) git(args ...string) {
	r.Helper()
	out, err := r.try("git", args...)
	require.NoError(r, err, out)
}

// manifest commits a manifest of these lines.
func (r repository) manifest(lines ...string) {
	r.Helper()
	require.NoError(r, os.MkdirAll(filepath.Join(r.dir, "testdata"), 0o700))
	require.NoError(r, os.WriteFile(filepath.Join(r.dir, "testdata", "MANIFEST"), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	r.git("add", "testdata")
	r.git("commit", "--quiet", "--message", "vectors")
}

// check runs the script, and tells what it prints.
func (r repository) check(args ...string) (string, error) {
	r.Helper()
	return r.try("bash", append([]string{"internal/vectors.sh", "check"}, args...)...)
}

func (r repository) passes(args ...string) {
	r.Helper()
	out, err := r.check(args...)
	assert.NoError(r, err, out)
}

func (r repository) fails(why string, args ...string) {
	r.Helper()
	out, err := r.check(args...)
	assert.Error(r, err, out)
	assert.Contains(r, out, why)
}

// clone is a clone of r, made with these options.
func (r repository) clone(options ...string) repository {
	r.Helper()
	c := repository{r.T, r.TempDir()}
	c.git(append([]string{"clone", "--quiet", "file://" + r.dir, "."}, options...)...)
	return c
}

func newRepository(t *testing.T) repository {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("CI") == "" {
		t.Skip("git is not installed")
	}
	r := repository{t, t.TempDir()}
	script, err := os.ReadFile("../vectors.sh")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(r.dir, "internal"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "internal", "vectors.sh"), script, 0o600))
	r.git("init", "--quiet", "--initial-branch", "main")
	r.git("add", "internal")
	r.git("commit", "--quiet", "--message", "script")
	return r
}

// S10: until there is a release, vectors are compared with those of the main branch, as far as this one has them.
func TestVectorsStandBeforeARelease(t *testing.T) {
	origin := newRepository(t)
	before := origin.clone()
	origin.manifest("1  a.json", "2  b.json")
	origin.passes() // there is nothing to compare with
	c := origin.clone()
	c.passes()
	c.manifest("1  a.json", "2  b.json", "3  c.json")
	c.passes()
	origin.manifest("1  a.json", "2  b.json", "4  d.json")
	c.git("fetch", "--quiet")
	c.passes() // what is new there is not gone here
	c.manifest("1  a.json", "9  b.json", "3  c.json")
	c.fails("2  b.json")
	before.manifest("1  a.json") // the main branch of then had no manifest
	before.passes()
}

// S10: once there is a release, its vectors stand, wherever one looks from.
func TestReleasedVectorsStand(t *testing.T) {
	origin := newRepository(t)
	origin.manifest("1  a.json", "2  b.json")
	origin.git("tag", "v0.1.0")
	origin.manifest("1  a.json", "2  b.json", "3  c.json")
	origin.passes()
	c := origin.clone()
	c.manifest("1  a.json", "2  b.json")
	c.passes()
	c.passes("v0.1.0")
	c.manifest("1  a.json")
	c.fails("2  b.json")
	c.fails("2  b.json", "v0.1.0")
	c.fails("v9", "v9")
}

// S10: a checkout that cannot see the releases says so, and has not passed.
func TestAShallowCloneSeesNoRelease(t *testing.T) {
	origin := newRepository(t)
	origin.manifest("1  a.json")
	origin.git("tag", "v0.1.0")
	origin.manifest("2  a.json")
	origin.clone("--depth", "1").fails("shallow")
	origin.clone("--depth", "1", "--no-tags").fails("shallow")
	origin.clone().fails("1  a.json")
	origin.clone("--no-tags").passes() // that is no shallow one, and what it calls main is what it has

	workflow, err := os.ReadFile("../../.github/workflows/ci.yml")
	require.NoError(t, err)
	_, gate, _ := strings.Cut(string(workflow), "\n  gate:\n")
	gate, _, _ = strings.Cut(gate, "\n  postgres:\n")
	assert.Contains(t, gate, "run: .ci/run")
	assert.Contains(t, gate, "fetch-depth: 0")
}
