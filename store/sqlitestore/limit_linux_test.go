package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

func init() { roles["limit"] = limitRole }

// S28a: a COMMIT that fails while it writes is left open; reading behind the barrier then tells.
func TestACommitThatFailsHalfWayIsLeftOpen(t *testing.T) {
	c := startChild(t, "limit", fresh(t))
	require.Equal(t,
		"commit: sqlitestore: commit: the database could not be used (SQLITE_IOERR 778) kind: <nil>\n", c.line(t))
	require.Equal(t, "blind: true\n", c.line(t))
	require.Equal(t, "claimed: false effects: 0\n", c.line(t))
	require.Equal(t, "won: true\n", c.line(t))
}

// limitRole commits a transaction for which the file may not grow.
func limitRole(file string) error {
	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	if _, err := s.DB().ExecContext(ctx, `CREATE TABLE effect (name TEXT NOT NULL) STRICT`); err != nil {
		return err
	}
	p := sharedClaim()
	tx, _, err := s.Begin(ctx, store.Opening{ID: p.ID, Claim: &p})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO effect VALUES ('effect')`); err != nil {
		return err
	}
	unlimited, err := limitTo(file + "-wal")
	if err != nil {
		return err
	}
	err = s.Commit(ctx, tx, store.Closing{})
	var se *store.Error
	if !errors.As(err, &se) {
		return fmt.Errorf("commit: %w", err)
	}
	fmt.Println("commit:", se, "kind:", se.Kind)
	look := store.LookupParams{ID: p.ID, Barrier: true}
	_, err = s.Own().Lookup(ctx, look)
	fmt.Println("blind:", err != nil)
	if err := unlimited(); err != nil {
		return err
	}
	standing, err := s.Own().Lookup(ctx, look)
	if err != nil {
		return err
	}
	var effects int
	if err := s.DB().QueryRowContext(ctx, `SELECT count(*) FROM effect`).Scan(&effects); err != nil {
		return err
	}
	fmt.Println("claimed:", standing.Claim != nil, "effects:", effects)
	return claimAgain(ctx, s, p)
}

func claimAgain(ctx context.Context, s *sqlitestore.Store, p store.ClaimParams) error {
	standing, err := s.Own().Claim(ctx, p)
	if err != nil {
		return err
	}
	fmt.Println("won:", standing.Claim.Attempt == p.Attempt)
	return s.Close()
}

// limitTo keeps this process from growing any file beyond the size of this one.
func limitTo(file string) (unlimited func() error, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return nil, err
	}
	limit := syscall.Rlimit{Cur: uint64(info.Size()), Max: old.Max}
	return func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old) },
		syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}
