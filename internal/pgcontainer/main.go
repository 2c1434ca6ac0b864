// Command pgcontainer keeps a PostgreSQL server in a Docker container until its standard input ends: see
// internal/pgchild.
//
// CONFIRMEXEC_PG_IMAGE names another image, which must behave like the official one. The Docker engine is found, and
// left-over containers are removed, as testcontainers does it: DOCKER_HOST and the variables TESTCONTAINERS_… count.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"

	"github.com/confirmexec/confirmexec/internal/pgchild"
)

const defaultImage = "postgres:17-alpine"

// stopGrace is short: what the server holds is thrown away.
const stopGrace = 5 * time.Second

// logTailBytes is how much of the server's log an error carries.
const logTailBytes = 500

// flags are those of internal/pgtest's own server. The module itself sets fsync=off.
var flags = []string{"-c", "full_page_writes=off", "-c", "synchronous_commit=on", "-c", "max_connections=300"}

func main() {
	os.Exit(pgchild.Main(new(container)))
}

type container struct{ running *postgres.PostgresContainer }

// Start runs the container, for which the engine pulls the image if it has none.
func (c *container) Start(ctx context.Context) (string, error) {
	image := os.Getenv("CONFIRMEXEC_PG_IMAGE")
	if image == "" {
		image = defaultImage
	}
	var err error
	c.running, err = postgres.Run(ctx, image, postgres.WithUsername("postgres"), postgres.WithPassword(rand.Text()),
		postgres.BasicWaitStrategies(), testcontainers.WithCmdArgs(flags...))
	if err != nil {
		return "", fmt.Errorf("a container of %s: %w%s", image, err, c.logTail(ctx))
	}
	return c.running.ConnectionString(ctx, "sslmode=disable")
}

// Stop ends the container and removes it with its volume.
func (c *container) Stop(ctx context.Context) error {
	if c.running == nil {
		return nil
	}
	return testcontainers.TerminateContainer(c.running, testcontainers.StopContext(ctx),
		testcontainers.StopTimeout(stopGrace))
}

// logTail is the end of what the container has said, if it has come so far.
func (c *container) logTail(ctx context.Context) string {
	if c.running == nil {
		return ""
	}
	logs, err := c.running.Logs(context.WithoutCancel(ctx))
	if err != nil {
		return ""
	}
	defer func() { _ = logs.Close() }()
	text, _ := io.ReadAll(io.LimitReader(logs, 1<<20))
	return "; the end of its log: " + string(text[max(0, len(text)-logTailBytes):])
}
