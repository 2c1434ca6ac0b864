package importer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/confirmexec/confirmexec"

// maxSums is what the checksum file of an importer may have. It carries what the tests of the imported packages need,
// and what these packages' tests import.
const maxSums = 30

// S28: an importer gets a library: its checksum file knows no test harness, container, driver or transport that it did
// not ask for, and its program links none.
func TestImporterPaysLittle(t *testing.T) {
	t.Parallel()
	for name, imports := range map[string][]string{
		"contract":           {"contract"},
		"broker and pgstore": {"broker", "store/pgstore"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := newApp(t, imports)
			sums, err := os.ReadFile(filepath.Join(app, "go.sum"))
			require.NoError(t, err)
			lines := strings.Count(string(sums), "\n")
			assert.LessOrEqual(t, lines, maxSums, string(sums))
			for _, banned := range []string{"testcontainers", "docker", "embedded", "sqlite", "grpc", "rapid"} {
				assert.NotContains(t, string(sums), banned)
			}
			linked := strings.Fields(command(t, app, "list", "-deps", "."))
			for _, banned := range []string{
				"testing", "google.golang.org/grpc", "modernc.org/sqlite", "github.com/stretchr/testify",
			} {
				assert.False(t, slices.ContainsFunc(linked, func(pkg string) bool {
					return pkg == banned || strings.HasPrefix(pkg, banned+"/")
				}), banned)
			}
			t.Logf("go.sum: %d lines; %d packages linked; binary: %.1f MB", lines, len(linked), size(t, app))
		})
	}
}

// newApp is a program outside this module that imports the packages.
func newApp(t *testing.T, imports []string) string {
	t.Helper()
	root := strings.TrimSpace(command(t, ".", "list", "-m", "-f", "{{.Dir}}", module))
	app := t.TempDir()
	write(t, app, "go.mod", "module app\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
	source := "package main\n\nimport (\n"
	for _, path := range imports {
		source += "\t_ \"" + module + "/" + path + "\"\n"
	}
	write(t, app, "main.go", source+")\n\nfunc main() {}\n")
	if _, err := try(app, []string{"GOPROXY=off"}, "mod", "tidy"); err != nil {
		t.Logf("the module cache does not suffice: %v", err)
		command(t, app, "mod", "tidy")
	}
	return app
}

// size builds the program and returns its megabytes.
func size(t *testing.T, app string) float64 {
	t.Helper()
	program := filepath.Join(app, "app.exe")
	command(t, app, "build", "-o", program, ".")
	info, err := os.Stat(program)
	require.NoError(t, err)
	return float64(info.Size()) / 1e6
}

func write(t *testing.T, folder, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
}

func command(t *testing.T, folder string, args ...string) string {
	t.Helper()
	output, err := try(folder, nil, args...)
	require.NoError(t, err, output)
	return output
}

// try runs the go command as in a module of its own, and returns what it writes.
func try(folder string, env []string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = folder
	cmd.Env = slices.Concat(cmd.Environ(), []string{"GOFLAGS=-mod=mod", "GOWORK=off"}, env)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	return string(output) + stderr.String(), err
}
