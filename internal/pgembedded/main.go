// Command pgembedded downloads PostgreSQL's programs and keeps a server of them until its standard input ends: see
// internal/pgchild. Its argument is an empty folder for everything that the server needs; it is emptied again.
//
// The library keeps the downloaded archive in its own folder in the home directory. CONFIRMEXEC_PG_REPOSITORY is the
// address of a mirror of the repository that it downloads from.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/confirmexec/confirmexec/internal/pgchild"
)

const (
	dialTimeout   = 5 * time.Second
	answerTimeout = 20 * time.Second
	portTries     = 5
	version       = embeddedpostgres.V17
	user          = "postgres"
)

// parameters are those of internal/pgtest's own server.
var parameters = map[string]string{
	"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "300",
	"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on",
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pgembedded FOLDER")
		os.Exit(2)
	}
	os.Exit(pgchild.Main(&server{folder: os.Args[1]}))
}

type server struct {
	folder  string
	running *embeddedpostgres.EmbeddedPostgres
}

// Start downloads the programs if need be, and tries again when another process is faster on the port.
func (s *server) Start(ctx context.Context) (string, error) {
	http.DefaultTransport = newDownload(ctx)
	password := rand.Text()
	config, err := s.config(password)
	if err != nil {
		return "", err
	}
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		database := embeddedpostgres.NewDatabase(config.Port(port))
		err = database.Start()
		if err == nil {
			s.running = database
			return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/postgres?sslmode=disable", user, password, port), nil
		}
		if try == portTries || !isPortTaken(err) || ctx.Err() != nil {
			return "", fmt.Errorf("PostgreSQL %s: %w", version, err)
		}
	}
}

// Stop ends the server and empties the folder.
func (s *server) Stop(context.Context) error {
	var err error
	if s.running != nil {
		err = s.running.Stop()
	}
	return errors.Join(err, empty(s.folder))
}

// config keeps everything but the downloaded archive in the folder, the library's temporary files too.
func (s *server) config(password string) (embeddedpostgres.Config, error) {
	config := embeddedpostgres.DefaultConfig().Version(version).Username(user).Password(password).
		Database("postgres").Encoding("UTF8").Locale("C").StartParameters(parameters).Logger(io.Discard).
		RuntimePath(filepath.Join(s.folder, "server"))
	if repository := os.Getenv("CONFIRMEXEC_PG_REPOSITORY"); repository != "" {
		config = config.BinaryRepositoryURL(strings.TrimSuffix(repository, "/"))
	}
	temporary := filepath.Join(s.folder, "tmp")
	for _, variable := range []string{"TMPDIR", "TMP", "TEMP"} {
		if err := os.Setenv(variable, temporary); err != nil {
			return config, err
		}
	}
	return config, os.MkdirAll(temporary, 0o700)
}

// download is the transport of the library's downloads, which have neither timeouts nor a context of their own.
type download struct {
	ctx  context.Context
	base *http.Transport
}

func newDownload(ctx context.Context) download {
	return download{ctx: ctx, base: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: answerTimeout,
	}}
}

func (d download) RoundTrip(request *http.Request) (*http.Response, error) {
	return d.base.RoundTrip(request.WithContext(d.ctx))
}

// isPortTaken knows the two ways in which the library says so.
func isPortTaken(err error) bool {
	return strings.Contains(err.Error(), "already listening on port") || strings.Contains(err.Error(), "could not bind")
}

func freePort() (uint32, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = listener.Close() }()
	return uint32(listener.Addr().(*net.TCPAddr).Port), nil
}

// empty removes what is in a folder, and keeps the folder, which is its owner's.
func empty(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(folder, entry.Name())))
	}
	return err
}
