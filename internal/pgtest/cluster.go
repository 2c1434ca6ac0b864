package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// databasePrefix begins the name of every database made here: prefix, birth in Unix seconds, process token, number.
const databasePrefix = "confirmexec_t_"

// recoveryPoll is how often a server that recovers from a crash is asked again.
const recoveryPoll = 20 * time.Millisecond

// cluster is a running server in which this process makes databases. It is safe for concurrent use.
type cluster struct {
	rung     string // where it comes from
	adminDSN string // the maintenance database
	password string // AppRole's; empty where the server asks for none
	template Template
	token    string        // names this process on a server that it may share
	stop     func() error  // ends the server; nil if it is not ours
	logTail  func() string // the end of the server's log; nil if we cannot read it

	mu     sync.Mutex // one statement at a time: a template in use by one clone cannot be used by another
	conn   *pgx.Conn  // to the maintenance database, made again when it breaks
	born   int64      // the server's time in Unix seconds
	made   int        // databases so far
	source string     // the template database's name, once it is built
	broken error      // why it could not be built
}

// newCluster connects to the server.
func newCluster(ctx context.Context, adminDSN string, template Template) (*cluster, error) {
	c := &cluster{adminDSN: adminDSN, template: template, token: randomHex(4)}
	if err := c.query(ctx, &c.born, "SELECT extract(epoch FROM now())::bigint"); err != nil {
		return nil, err
	}
	return c, nil
}

// clone makes a database from the template, which it builds first if need be, and returns its name.
func (c *cluster) clone(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source == "" && c.broken == nil {
		c.source, c.broken = c.build(ctx)
	}
	if c.broken != nil {
		return "", c.broken
	}
	return c.createFrom(ctx, "TEMPLATE "+c.source)
}

// empty makes a database without the template's schema.
func (c *cluster) empty(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.createEmpty(ctx)
}

// build makes the template database. Afterwards it refuses connections, which would stand in the way of the clones.
func (c *cluster) build(ctx context.Context) (string, error) {
	name, err := c.createEmpty(ctx)
	if err != nil || c.template == nil {
		return name, err
	}
	if err := c.template(ctx, c.dsn(name), AppRole); err != nil {
		return "", c.explain("build the template database", err)
	}
	err = c.exec(ctx, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
	return name, c.explain("close the template database", err)
}

// createEmpty starts from template0, which nobody can have connected to or changed.
func (c *cluster) createEmpty(ctx context.Context) (string, error) {
	return c.createFrom(ctx, "TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
}

func (c *cluster) createFrom(ctx context.Context, source string) (string, error) {
	c.made++
	name := fmt.Sprintf("%s%d_%s_%d", databasePrefix, c.born, c.token, c.made)
	if err := c.exec(ctx, "CREATE DATABASE "+name+" "+source); err != nil {
		return "", c.explain("create a database", err)
	}
	return name, nil
}

// drop takes a database away, together with the connections to it.
func (c *cluster) drop(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.explain("drop the database "+name, c.dropNow(ctx, name))
}

func (c *cluster) dropNow(ctx context.Context, name string) error {
	return c.exec(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}

// database is the test's view of a database.
func (c *cluster) database(name string) *DB {
	app, err := WithDSN(c.adminDSN, "user", AppRole, "password", c.password, "dbname", name)
	if err != nil {
		panic(err) // the server was reached through this connection string
	}
	return &DB{AdminDSN: c.dsn(name), AppDSN: app}
}

func (c *cluster) dsn(name string) string {
	dsn, err := WithDSN(c.adminDSN, "dbname", name)
	if err != nil {
		panic(err) // as above
	}
	return dsn
}

// close drops what is left of this process on a server that is not ours, and ends one that is.
func (c *cluster) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	var err error
	if c.stop == nil {
		err = c.dropMatching(ctx, "split_part(d.datname, '_', 4) = $1", c.token)
	}
	if c.conn != nil {
		_ = c.conn.Close(ctx)
	}
	if c.stop != nil {
		err = c.stop()
	}
	return err
}

// dropMatching drops our kind of databases d that fit the condition.
func (c *cluster) dropMatching(ctx context.Context, condition string, args ...any) error {
	conn, err := c.connection(ctx)
	if err != nil {
		return err
	}
	rows, err := conn.Query(ctx, `SELECT d.datname FROM pg_database d
		WHERE d.datname ~ '^confirmexec_t_[0-9]+_[0-9a-f]{8}_[0-9]+$' AND pg_has_role(d.datdba, 'USAGE')
		AND `+condition, args...)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		err = errors.Join(err, c.dropNow(ctx, name))
	}
	return err
}

// exec runs a statement in the maintenance database. The caller holds mu, or nobody else knows the cluster yet.
func (c *cluster) exec(ctx context.Context, sql string) error {
	conn, err := c.connection(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}

// query is exec for one value.
func (c *cluster) query(ctx context.Context, to any, sql string, args ...any) error {
	conn, err := c.connection(ctx)
	if err != nil {
		return err
	}
	return conn.QueryRow(ctx, sql, args...).Scan(to)
}

// connection is kept open for the process's life: on a shared server its name shows that the process lives. Tests that
// crash the server break it, so it is tried before it is used and made again when need be.
func (c *cluster) connection(ctx context.Context) (*pgx.Conn, error) {
	if c.conn != nil && c.conn.Ping(ctx) == nil {
		return c.conn, nil
	}
	config, err := pgx.ParseConfig(c.adminDSN)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = databasePrefix + c.token
	for {
		c.conn, err = pgx.ConnectConfig(ctx, config)
		if !isRecovering(err) || pause(ctx, recoveryPoll) != nil {
			return c.conn, err
		}
	}
}

// isRecovering reports whether the server refuses connections for the moment, as it does after a crash.
func isRecovering(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "57P03"
}

// explain says what failed, and what the server's log says about it. It keeps nil.
func (c *cluster) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	if c.logTail == nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w\nthe end of the server's log:\n%s", what, err, strings.TrimSpace(c.logTail()))
}

// createRole makes AppRole if it is not there.
func (c *cluster) createRole(ctx context.Context) error {
	sql := "CREATE ROLE " + AppRole + " LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOREPLICATION"
	if c.password != "" {
		sql += " PASSWORD '" + c.password + "'" // hexadecimal: it needs no quoting
	}
	return c.exec(ctx, sql)
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// pause waits for a moment or for the context's end.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
