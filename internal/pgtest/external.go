package pgtest

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// roleLock is the advisory lock under which test processes make AppRole on a server that they share.
const roleLock = 0x636f6e6669726d // "confirm"

// startExternal uses the server that CONFIRMEXEC_TEST_DSN points at.
func startExternal(ctx context.Context, dsn string, template Template) (*cluster, error) {
	c, err := newCluster(ctx, dsn, template)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envDSN, err)
	}
	if err := c.prepareExternal(ctx); err != nil {
		_ = c.conn.Close(ctx)
		return nil, fmt.Errorf("%s: %w", envDSN, err)
	}
	return c, nil
}

func (c *cluster) prepareExternal(ctx context.Context) error {
	c.password = appPassword(c.conn.Config())
	if err := c.shareRole(ctx); err != nil {
		return err
	}
	c.dropLeftovers(ctx)
	return nil
}

// appPassword is the same for all processes that use the server as the same role with the same password, so that they
// can share AppRole, and is known to nobody else. Processes that log in differently must not use it at the same time.
func appPassword(config *pgx.ConnConfig) string {
	mac := hmac.New(sha256.New, []byte(config.Password))
	mac.Write([]byte(AppRole + " of " + config.User))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// shareRole makes AppRole, or checks the one that is there. The role stays: other processes may be using it.
func (c *cluster) shareRole(ctx context.Context) error {
	if err := c.exec(ctx, fmt.Sprintf("SELECT pg_advisory_lock(%d)", roleLock)); err != nil {
		return err
	}
	defer func() { _ = c.exec(ctx, fmt.Sprintf("SELECT pg_advisory_unlock(%d)", roleLock)) }()
	var state string
	err := c.query(ctx, &state, `SELECT coalesce((SELECT CASE
		WHEN rolsuper OR rolbypassrls OR rolcreatedb OR rolcreaterole THEN 'too mighty' ELSE 'plain' END
		FROM pg_roles WHERE rolname = $1), 'absent')`, AppRole)
	if err != nil {
		return err
	}
	switch state {
	case "absent":
		err = c.createRole(ctx)
	case "plain":
		err = c.takeRole(ctx)
	default:
		return fmt.Errorf("the role %s must not be a superuser, bypass row security, or create databases or roles", AppRole)
	}
	if err != nil {
		return fmt.Errorf("the role %s: %w", AppRole, err)
	}
	c.joinRole(ctx)
	return nil
}

// takeRole gives an existing AppRole our password unless it lets us in already.
func (c *cluster) takeRole(ctx context.Context) error {
	config := c.conn.Config()
	config.User, config.Password = AppRole, c.password
	if conn, err := pgx.ConnectConfig(ctx, config); err == nil {
		return conn.Close(ctx)
	}
	return c.exec(ctx, "ALTER ROLE "+AppRole+" LOGIN PASSWORD '"+c.password+"'") // only a superuser may say NOSUPERUSER
}

// joinRole lets an owner that is no superuser end the application's connections when it drops a database. A server
// that refuses is good enough: the tests' pools are closed by then.
func (c *cluster) joinRole(ctx context.Context) {
	var super bool
	if err := c.query(ctx, &super, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"); err == nil && !super {
		_ = c.exec(ctx, "GRANT "+AppRole+" TO CURRENT_USER")
	}
}

// dropLeftovers drops the databases, older than an hour, of processes that are no longer connected. Others may be
// doing the same at this moment, so a failure means nothing.
func (c *cluster) dropLeftovers(ctx context.Context) {
	_ = c.dropMatching(ctx, `split_part(d.datname, '_', 3)::bigint < extract(epoch FROM now()) - 3600
		AND NOT EXISTS (SELECT FROM pg_stat_activity a
			WHERE a.application_name = $1 || split_part(d.datname, '_', 4))`, databasePrefix)
}
