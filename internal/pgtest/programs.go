package pgtest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// programs are the paths of the two programs that a throw-away server needs.
type programs struct{ initdb, postgres string }

// usualFolders are where the packages of Linux distributions and macOS put the server's programs.
var usualFolders = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// findPrograms looks for initdb and postgres. Nothing found is errAbsent; a CONFIRMEXEC_PG_BIN that
// does not hold them is an error of its own, never a reason to look elsewhere.
func findPrograms() (programs, error) {
	if folder := os.Getenv(envBin); folder != "" {
		found, ok := programsIn(folder)
		if !ok {
			return programs{}, fmt.Errorf("%s=%s does not hold the programs initdb and postgres", envBin, folder)
		}
		return found, nil
	}
	if !localServers {
		return programs{}, absentf("a throw-away server is not supported on this operating system")
	}
	if found, ok := programsOnPath(); ok {
		return found, nil
	}
	for _, folder := range append(pgConfigFolder(), newestFirst(usualFolders)...) {
		if found, ok := programsIn(folder); ok {
			return found, nil
		}
	}
	return programs{}, absentf("no initdb and postgres in %s",
		strings.Join(append([]string{"PATH", "`pg_config --bindir`"}, usualFolders...), ", "))
}

// programsIn wants both: a folder often holds clients only.
func programsIn(folder string) (programs, bool) {
	return lookUp(filepath.Join(folder, "initdb"), filepath.Join(folder, "postgres"))
}

func programsOnPath() (programs, bool) {
	return lookUp("initdb", "postgres")
}

func lookUp(initdb, postgres string) (programs, bool) {
	first, err := exec.LookPath(initdb)
	if err != nil {
		return programs{}, false
	}
	second, err := exec.LookPath(postgres)
	if err != nil {
		return programs{}, false
	}
	return programs{initdb: first, postgres: second}, true
}

// pgConfigFolder is what pg_config says, if there is one. It proves nothing: pg_config comes with the client library.
func pgConfigFolder() []string {
	output, err := exec.Command("pg_config", "--bindir").Output()
	if err != nil {
		return nil
	}
	return []string{strings.TrimSpace(string(output))}
}

// newestFirst expands the patterns and orders all their folders by the version in their path.
func newestFirst(patterns []string) []string {
	var folders []string
	for _, pattern := range patterns {
		matches, _ := filepath.Glob(pattern)
		folders = append(folders, matches...)
	}
	slices.SortStableFunc(folders, func(a, b string) int { return cmp.Compare(versionIn(b), versionIn(a)) })
	return folders
}

var versionPattern = regexp.MustCompile(`\d+(\.\d+)?`)

// versionIn is the last number in a folder's path, 0 if it has none.
func versionIn(folder string) float64 {
	numbers := versionPattern.FindAllString(folder, -1)
	if len(numbers) == 0 {
		return 0
	}
	version, _ := strconv.ParseFloat(numbers[len(numbers)-1], 64)
	return version
}
