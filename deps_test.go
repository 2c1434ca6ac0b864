package confirmexec_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/confirmexec/confirmexec"

// deps returns every package that a program links that imports pkg, the standard library's included.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// outside returns the packages among deps that are neither the standard library's nor under one of the allowed paths.
func outside(deps []string, allowed ...string) []string {
	return slices.DeleteFunc(slices.Clone(deps), func(pkg string) bool {
		if first, _, _ := strings.Cut(pkg, "/"); !strings.Contains(first, ".") {
			return true
		}
		return slices.ContainsFunc(allowed, func(a string) bool { return pkg == a || strings.HasPrefix(pkg, a+"/") })
	})
}

// S9: contract imports the standard library, uuid and the JSON canonicaliser; no database, transport, settings or logging.
func TestContractIsPure(t *testing.T) {
	all := deps(t, module+"/contract")
	assert.Empty(t, outside(all, module+"/contract", "github.com/google/uuid", "github.com/go-json-experiment/json"))
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports " "}}`, "./contract").Output()
	require.NoError(t, err)
	for _, banned := range []string{"database/sql", "net", "net/http", "log", "log/slog", "os", "time", "context"} {
		assert.NotContains(t, strings.Fields(string(out)), banned)
	}
}

// The arrows of the package map point down: each package links only what stands below it.
func TestImportDirections(t *testing.T) {
	pure := []string{module + "/contract", "github.com/google/uuid", "github.com/go-json-experiment/json"}
	for pkg, more := range map[string][]string{
		"/httperr":         {module + "/httperr"},
		"/store":           {module + "/store"},
		"/broker":          {module + "/broker", module + "/store"},
		"/fencing":         {module + "/fencing", module + "/store"},
		"/fencing/peer":    {module + "/fencing/peer"},
		"/store/memstore":  {module + "/store"},
		"/store/storetest": {module + "/store"},
		"/store/pgstore":   {module + "/store", "github.com/jackc", "golang.org/x/text", "golang.org/x/sync"},
		"/store/sqlitestore": {module + "/store", "modernc.org", "github.com/dustin/go-humanize", "github.com/mattn/go-isatty",
			"github.com/ncruces/go-strftime", "github.com/remyoudompheng/bigfft", "golang.org/x/sys"},
	} {
		assert.Empty(t, outside(deps(t, module+pkg), slices.Concat(pure, more)...), pkg)
	}
	for pkg, banned := range map[string]string{
		"/broker": module + "/store/pgstore", "/store/pgstore": module + "/broker", "/store/sqlitestore": module + "/broker",
	} {
		assert.NotContains(t, deps(t, module+pkg), banned)
	}
}

// rpc are the modules of gRPC and protobuf.
var rpc = []string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto"}

// Only grpcerr and what is below it link gRPC and protobuf, and it links no database: whoever does not call or serve gRPC pays
// nothing for it.
func TestOnlyGrpcerrLinksGRPC(t *testing.T) {
	const own = module + "/grpcerr"
	for _, pkg := range packages(t) {
		if pkg.ImportPath == own || strings.HasPrefix(pkg.ImportPath, own+"/") || strings.Contains(pkg.ImportPath, "/internal/") ||
			strings.HasPrefix(pkg.ImportPath, module+"/examples") {
			continue
		}
		assert.Empty(t, under(deps(t, pkg.ImportPath), rpc...), pkg.ImportPath)
	}
	all := deps(t, own)
	assert.NotEmpty(t, under(all, rpc...))
	assert.Empty(t, under(all, module+"/store/pgstore", module+"/store/sqlitestore", "github.com/jackc", "modernc.org", "testing"))
	assert.Empty(t, outside(deps(t, own+"/confirmexecv1"), own+"/confirmexecv1", "google.golang.org/protobuf"))
}

// under returns the packages among deps that are under one of the paths.
func under(deps []string, paths ...string) []string {
	return slices.DeleteFunc(slices.Clone(deps), func(pkg string) bool {
		return !slices.ContainsFunc(paths, func(p string) bool { return pkg == p || strings.HasPrefix(pkg, p+"/") })
	})
}

// S28: what an importer links is a library: no test code, no HTTP server and no driver but the one that it chose.
func TestImportersLinkLittle(t *testing.T) {
	all := append(deps(t, module+"/broker"), deps(t, module+"/store/pgstore")...)
	for _, banned := range []string{"testing", "net/http", "modernc.org/sqlite", "github.com/stretchr/testify"} {
		assert.NotContains(t, all, banned)
	}
	assert.Empty(t, under(all, rpc...))
	for _, pkg := range packages(t) {
		if strings.HasSuffix(pkg.ImportPath, "test") || strings.Contains(pkg.ImportPath, "/internal/") {
			continue
		}
		assert.NotContains(t, pkg.Imports, "testing", pkg.ImportPath)
	}
}

// Importers' checksum files carry what the tests of a public package need: those tests use little.
func TestPublicTestsNeedLittle(t *testing.T) {
	allowed := []string{module, "github.com/stretchr/testify", "github.com/google/uuid", "github.com/jackc/pgx/v5", "github.com/go-json-experiment/json"}
	for _, pkg := range packages(t) {
		own := allowed
		switch {
		case strings.Contains(pkg.ImportPath, "/internal/"), strings.HasPrefix(pkg.ImportPath, module+"/examples"):
			continue
		case pkg.ImportPath == module+"/store/sqlitestore": // the leaf package that owns the driver
			own = append(slices.Clone(allowed), "modernc.org/sqlite")
		case pkg.ImportPath == module+"/grpcerr", strings.HasPrefix(pkg.ImportPath, module+"/grpcerr/"): // the leaf that owns gRPC
			own = slices.Concat(allowed, rpc, []string{"golang.org/x/net"})
		}
		assert.Empty(t, outside(slices.Concat(pkg.TestImports, pkg.XTestImports), own...), pkg.ImportPath)
		for _, imported := range slices.Concat(pkg.TestImports, pkg.XTestImports) {
			if pkg.ImportPath != module+"/store/sqlitestore" {
				assert.NotEqual(t, module+"/store/sqlitestore", imported, pkg.ImportPath)
			}
		}
	}
}

type listed struct {
	ImportPath, Dir                             string
	GoFiles, Imports, TestImports, XTestImports []string
}

// packages lists the module's packages.
func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports", "./...").Output()
	require.NoError(t, err)
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		require.NoError(t, d.Decode(&p))
		all = append(all, p)
	}
	require.Greater(t, len(all), 8)
	return all
}
