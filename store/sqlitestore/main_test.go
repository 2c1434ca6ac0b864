package sqlitestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

// TestMain is also the main of the child processes that tests start.
func TestMain(m *testing.M) {
	role := os.Getenv("SQLITESTORE_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := roles[role](os.Getenv("SQLITESTORE_TEST_FILE")); err != nil {
		fmt.Println("error:", err, errors.Unwrap(err))
		os.Exit(1)
	}
}

// The key that child processes work on.
var (
	sharedID     = store.ID{Tenant: "firm", Key: uuid.MustParse("00000000-0000-4000-8000-000000000001")}
	sharedDigest = contract.Digest{1}
)

// roles are what a child process does with a file. Each waits for a line on its standard input before it begins.
var roles = map[string]func(file string) error{
	"claim":     claimRole,
	"interrupt": interruptRole,
	"item":      itemRole,
}

// claimRole opens the file, claims the shared key and tells whether it won.
func claimRole(file string) error {
	waitForLine()
	s, err := sqlitestore.Open(context.Background(), file, &sqlitestore.Config{LockTimeout: time.Minute})
	if err != nil {
		return err
	}
	p := sharedClaim()
	standing, err := s.Own().Claim(context.Background(), p)
	if err != nil {
		return err
	}
	fmt.Println("won:", standing.Claim.Attempt == p.Attempt)
	return s.Close()
}

// interruptRole claims the shared key, begins another claim in a transaction, and waits to be killed.
func interruptRole(file string) error {
	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	if _, err := s.Own().Claim(ctx, sharedClaim()); err != nil {
		return err
	}
	tx, err := s.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	p := sharedClaim()
	p.Key = uuid.MustParse("00000000-0000-4000-8000-000000000002")
	if _, err := s.In(tx).Claim(ctx, p); err != nil {
		return err
	}
	fmt.Println("claimed")
	waitForLine()
	return nil
}

func sharedClaim() store.ClaimParams {
	return store.ClaimParams{
		ID: sharedID, Digest: sharedDigest, Attempt: uuid.New(), Mode: store.ModeExternalProgress,
		Lease: time.Hour, AcceptUnminted: true, Content: []byte("content"), FirstItem: "i1",
	}
}

func waitForLine() { _, _ = bufio.NewReader(os.Stdin).ReadString('\n') }

// child is a process of the test binary in one of the roles.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t *testing.T, role, file string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SQLITESTORE_TEST_ROLE="+role, "SQLITESTORE_TEST_FILE="+file)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &child{cmd, in, bufio.NewReader(out)}
}

func (c *child) say(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(c.in, "\n")
	require.NoError(t, err)
}

func (c *child) line(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	require.NoError(t, err)
	return line
}
