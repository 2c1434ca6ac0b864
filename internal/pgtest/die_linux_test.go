package pgtest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// However a test process ends, its server ends with it; asked politely, it removes its files too.
func TestServerEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	New(t) // skipped without a server
	needRung(t, rungLocal)
	for signal, status := range map[syscall.Signal]string{
		syscall.SIGKILL: "signal: killed",
		syscall.SIGTERM: "exit status 143",
		syscall.SIGINT:  "exit status 130",
	} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			child := holdServer(t)
			connected, err := net.Dial("tcp", child.address)
			require.NoError(t, err)
			require.NoError(t, connected.Close())
			require.NoError(t, child.cmd.Process.Signal(signal))
			require.EqualError(t, child.cmd.Wait(), status)
			require.Eventually(t, func() bool { return refuses(child.address) }, 20*time.Second, 5*time.Millisecond)
			if signal != syscall.SIGKILL {
				require.NoDirExists(t, child.folder)
			}
		})
	}
}

type holder struct {
	cmd             *exec.Cmd
	address, folder string
}

// holdServer starts a test process that has a server and keeps it until it is ended.
func holdServer(t *testing.T, env ...string) holder {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestHoldServer$")
	cmd.Env = childEnvironment(append(env, childHold+"=1")...)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	fields := strings.Fields(line)
	require.Len(t, fields, 2, line)
	t.Cleanup(func() { _ = os.RemoveAll(fields[1]) })
	return holder{cmd: cmd, address: fields[0], folder: fields[1]}
}

// TestHoldServer is the other side of holdServer.
func TestHoldServer(t *testing.T) {
	if os.Getenv(childHold) == "" {
		t.Skip("runs in a process that TestServerEndsWithItsProcess starts")
	}
	db := New(t)
	config, err := pgx.ParseConfig(db.AdminDSN)
	require.NoError(t, err)
	var data string
	require.NoError(t, db.AdminPool(t).QueryRow(t.Context(), "SHOW data_directory").Scan(&data))
	fmt.Printf("127.0.0.1:%d %s\n", config.Port, strings.TrimSuffix(data, "/data"))
	select {}
}

func refuses(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}
