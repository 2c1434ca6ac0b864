package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// The rungs' names, as CONFIRMEXEC_TEST_RUNGS spells them.
const (
	rungDSN      = "dsn"
	rungLocal    = "local"
	rungDocker   = "docker"
	rungEmbedded = "embedded"
)

// rung is one way to come to a server.
type rung struct {
	name  string
	start func(context.Context, Template) (*cluster, error)
}

// rungs are tried in this order. One that is not available on this machine returns an error that is errAbsent, and the
// next is tried; any other error ends the search.
var rungs = []rung{
	{rungDSN, fromDSN},
	{rungLocal, fromPrograms},
	{rungDocker, fromDocker},
	{rungEmbedded, fromDownload},
}

// errAbsent is what the error of a rung is that is not available here.
var errAbsent = errors.New("no PostgreSQL server was found on this machine")

// absent is an errAbsent that says why in one line.
type absent string

func (a absent) Error() string { return string(a) }

// Is makes every absent an errAbsent.
func (absent) Is(target error) bool { return target == errAbsent }

func absentf(format string, args ...any) error {
	return absent(strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "))
}

// climb tries the rungs that the environment allows. If none is available, the error names them all with their
// reasons; it is errAbsent unless CONFIRMEXEC_TEST_RUNGS has asked for just these.
func climb(ctx context.Context, template Template) (*cluster, error) {
	allowed, err := allowedRungs()
	if err != nil {
		return nil, err
	}
	var reasons strings.Builder
	for _, r := range allowed {
		c, err := r.start(ctx, template)
		if err == nil {
			c.rung = r.name
			return c, nil
		}
		if !errors.Is(err, errAbsent) {
			return nil, err
		}
		fmt.Fprintf(&reasons, "\n  - %s: %v", r.name, err)
	}
	if list := os.Getenv(envRungs); list != "" {
		return nil, fmt.Errorf("%s=%s, and no PostgreSQL server was found that way:%s", envRungs, list, reasons.String())
	}
	return nil, fmt.Errorf("%w:%s\n%s", errAbsent, reasons.String(), waysOut)
}

// allowedRungs keeps the rungs' order, whatever the environment's.
func allowedRungs() ([]rung, error) {
	list := os.Getenv(envRungs)
	if list == "" {
		return rungs, nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if !slices.ContainsFunc(rungs, func(r rung) bool { return r.name == names[i] }) {
			return nil, fmt.Errorf("%s=%s: there is no %q, only %s, %s, %s and %s", envRungs, list, names[i],
				rungDSN, rungLocal, rungDocker, rungEmbedded)
		}
	}
	return slices.DeleteFunc(slices.Clone(rungs), func(r rung) bool { return !slices.Contains(names, r.name) }), nil
}

// waysOut end the text of the test that fails without a server.
const waysOut = `Do one of these:
  - install PostgreSQL's server (Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql)
  - set ` + envDSN + ` to a running server, as a role that may create databases and roles:
    ` + envDSN + `='postgres://user:password@host:5432/postgres'
  - set ` + envBin + ` to the folder that holds the programs initdb and postgres
  - start Docker; ` + envImage + ` names another image than the official one
  - go online, so that PostgreSQL's programs can be downloaded; ` + envRepository + ` names a mirror of their repository
  - set ` + envWithout + `=1 to run without PostgreSQL: the tests that need it are then skipped`

func fromDSN(ctx context.Context, template Template) (*cluster, error) {
	dsn := os.Getenv(envDSN)
	if dsn == "" {
		return nil, absentf("%s is not set", envDSN)
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return startExternal(ctx, dsn, template)
}

func fromPrograms(ctx context.Context, template Template) (*cluster, error) {
	found, err := findPrograms()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	return startLocal(ctx, found, template)
}

// fromDocker asks first whether there is an engine, since the program that talks to it takes a while to build.
func fromDocker(ctx context.Context, template Template) (*cluster, error) {
	if err := pingDocker(ctx); err != nil {
		return nil, err
	}
	return startHelper(ctx, helperContainer, template)
}

func fromDownload(ctx context.Context, template Template) (*cluster, error) {
	return startHelper(ctx, helperEmbedded, template)
}
