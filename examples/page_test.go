package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shown is a command of README.md, with what it prints there.
type shown struct{ command, output string }

// transcripts are the commands of README.md by section.
func transcripts(t *testing.T) map[string][]shown {
	t.Helper()
	all := map[string][]shown{}
	for _, section := range strings.Split(sample(t, "README.md"), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		for i, block := range strings.Split(text, "\n```\n") {
			if i%2 == 0 { // between two blocks
				continue
			}
			for _, part := range strings.Split("\n"+block+"\n", "\n$ ")[1:] {
				line, output, _ := strings.Cut(part+"\n", "\n")
				all[title] = append(all[title], shown{line, strings.TrimRight(output, "\n")})
			}
		}
	}
	return all
}

var (
	anyKey     = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	anyProcess = regexp.MustCompile(`process \d+`)
	anyAge     = regexp.MustCompile(`\S+ +never`)
)

// steady is an output without what differs from run to run: keys, processes and ages.
func steady(output string) string {
	output = anyKey.ReplaceAllString(strings.TrimRight(output, "\n"), "KEY")
	return anyAge.ReplaceAllString(anyProcess.ReplaceAllString(output, "process N"), "AGE never")
}

// shell is a folder like the repository's root, in which `go run ./examples` is this program.
func shell(t *testing.T) (dir string, env []string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	dir, bin := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(here, filepath.Join(dir, "examples")))
	fake := "#!/bin/sh\nshift 2\n" + asProgram + "=1 '" + self + "' \"$@\" || { status=$?; echo \"exit status $status\" >&2; exit $status; }\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(fake), 0o700))
	return dir, append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// S14, S20, S21: every command of README.md prints what is there, but for keys, processes and ages.
func TestReadmeTranscripts(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	sections := transcripts(t)
	require.Len(t, sections, 4)
	for title, commands := range sections {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			dir, env := shell(t)
			key := ""
			for _, c := range commands {
				line := anyKey.ReplaceAllString(c.command, key)
				want := steady(c.output)
				var got string
				if before, _, slow := strings.Cut(line, " < slow.json"); slow && strings.Contains(line, "-slow") {
					confirmation := sample(t, filepath.Join(dir, "slow.json"))
					key = anyKey.FindString(confirmation)
					got = steady(killed(t, dir, confirmation, strings.Fields(before)[4:]...) + "signal: killed")
					confirmed(t, dir, confirmation) // until its lease is over
				} else {
					cmd := exec.CommandContext(t.Context(), sh, "-c", line)
					cmd.Dir, cmd.Env = dir, env
					output, _ := cmd.CombinedOutput()
					got = steady(string(output))
				}
				if rest, cut := strings.CutPrefix(want, "…\n"); cut {
					assert.Contains(t, got, rest, line)
					continue
				}
				assert.Equal(t, want, got, line)
			}
		})
	}
}
