package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"modernc.org/sqlite"
)

// Open opens the file at path, creates it if there is none, and brings its schema up to date; processes that do so at
// once wait for each other. path is a plain file name: not a URI, and not ":memory:", which could keep no promise
// (use memstore). A nil cfg means the defaults.
//
// The error is [ErrNewerSchema] when a newer version of this package wrote the file. ctx bounds Open, not the Store.
func Open(ctx context.Context, path string, cfg *Config) (*Store, error) {
	file, err := fileURL(path)
	if err != nil {
		return nil, err
	}
	s := &Store{lockTimeout: defaultLockTimeout}
	if cfg != nil && cfg.LockTimeout > 0 {
		s.lockTimeout = cfg.LockTimeout
	}
	if err := s.openPools(file); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// fileURL is path as SQLite's URI form, in which no character of a file name has a meaning.
func fileURL(path string) (url.URL, error) {
	switch {
	case path == "" || path == ":memory:":
		return url.URL{}, errors.New("sqlitestore: open: a store needs a file; for tests in memory use package memstore")
	case strings.HasPrefix(path, "file:"):
		return url.URL{}, errors.New("sqlitestore: open: want a plain file name, not a URI")
	case strings.ContainsRune(path, 0):
		return url.URL{}, errors.New("sqlitestore: open: the file name holds a NUL")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return url.URL{}, fmt.Errorf("sqlitestore: open: %w", err)
	}
	abs = filepath.ToSlash(abs)
	if !strings.HasPrefix(abs, "/") {
		abs = "/" + abs // a drive letter
	}
	return url.URL{Scheme: "file", Path: abs}, nil
}

// pragma is a setting of a connection: how it is set and how it reads back.
type pragma struct{ name, set, want string }

func (s *Store) busyTimeout() pragma {
	ms := s.lockTimeout.Milliseconds()
	text := strconv.FormatInt(min(max(ms, 1), math.MaxInt32), 10)
	return pragma{"busy_timeout", text, text}
}

func (s *Store) writerPragmas() []pragma {
	return []pragma{
		s.busyTimeout(),
		{"journal_mode", "WAL", "wal"},
		{"synchronous", "FULL", "2"},
		{"foreign_keys", "ON", "1"},
	}
}

func (s *Store) readerPragmas() []pragma {
	return []pragma{s.busyTimeout(), {"query_only", "ON", "1"}}
}

// dsn is file with what every connection of a pool is to be.
func dsn(file url.URL, pragmas []pragma, more url.Values) string {
	q := url.Values{}
	maps.Copy(q, more)
	for _, p := range pragmas {
		q.Add("_pragma", p.name+"("+p.set+")")
	}
	file.RawQuery = q.Encode()
	return file.String()
}

func (s *Store) openPools(file url.URL) error {
	writer, err := sqlite.NewConnector(dsn(file, s.writerPragmas(), url.Values{"_txlock": {"immediate"}}))
	if err != nil {
		return fault("sqlitestore: open", err)
	}
	readers, err := sqlite.NewConnector(dsn(file, s.readerPragmas(), url.Values{"mode": {"rw"}}))
	if err != nil {
		return fault("sqlitestore: open", err)
	}
	s.writer, s.readers = openPool(lending{writer, &s.loan}, 1), openPool(readers, maxReaders)
	return nil
}

func openPool(c driver.Connector, conns int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db
}

// prepare opens the first connections, sees that they are as they were asked to be, and migrates.
func (s *Store) prepare(ctx context.Context) error {
	err := s.whileBusy(ctx, func() error { return checkPragmas(ctx, s.writer, s.writerPragmas()) })
	if err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	return checkPragmas(ctx, s.readers, s.readerPragmas())
}

// whileBusy repeats call while another process is busy with the file. SQLite does not wait by itself when two processes
// switch a fresh file to WAL at once.
func (s *Store) whileBusy(ctx context.Context, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, s.lockTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := call()
		if !isBusy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// checkPragmas reads the settings of a connection back: SQLite accepts a misspelt pragma, and refuses WAL, in silence.
func checkPragmas(ctx context.Context, db *sql.DB, pragmas []pragma) error {
	for _, p := range pragmas {
		var got string
		if err := db.QueryRowContext(ctx, "PRAGMA "+p.name).Scan(&got); err != nil {
			return fault("sqlitestore: open", err)
		}
		if got != p.want {
			return fmt.Errorf("sqlitestore: open: PRAGMA %s is %q, want %q", p.name, got, p.want)
		}
	}
	return nil
}
