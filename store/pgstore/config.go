package pgstore

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/confirmexec/confirmexec/contract"
)

// Config names the table and its surroundings. The zero value is the default of every field.
type Config struct {
	// Schema of the claim table. Default "agents".
	Schema string
	// Table of the claims, at most 40 characters. Default "agent_idempotency_key".
	Table string
	// TenantColumn of that table. Default "firm_id".
	TenantColumn string
	// TenantSetting is the run-time setting that the row-level security policies read, "prefix.name". Default "app.firm_id".
	TenantSetting string
	// OtherBoundaries are the values of the boundary column that the table's owner uses beside this library's. A row of any
	// other boundary is refused by the schema. Default none.
	OtherBoundaries []string
	// LockTimeout bounds the wait for another transaction that holds the same key. Default 5 seconds.
	LockTimeout time.Duration
}

var (
	identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
	boundary   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,63}$`)
	setting    = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,30}\.[a-z_][a-z0-9_]{0,30}$`)
)

// ownBoundaries are the values of the boundary column that are this library's.
var ownBoundaries = []string{"operation", "proposal", "item", "observation", "value"}

// maxTable leaves room for the suffixes of index and constraint names: PostgreSQL cuts names at 63 bytes.
const maxTable = 40

// withDefaults fills what is empty and refuses every name that is not on the allow-list: nothing of a Config is ever
// concatenated into SQL unchecked.
func (c Config) withDefaults() (Config, error) {
	for _, f := range []struct {
		name  string
		value *string
		def   string
		allow *regexp.Regexp
		limit int
	}{
		{"Schema", &c.Schema, "agents", identifier, 63},
		{"Table", &c.Table, "agent_idempotency_key", identifier, maxTable},
		{"TenantColumn", &c.TenantColumn, "firm_id", identifier, 63},
		{"TenantSetting", &c.TenantSetting, "app.firm_id", setting, 63},
	} {
		if *f.value == "" {
			*f.value = f.def
		}
		if !f.allow.MatchString(*f.value) || len(*f.value) > f.limit {
			return c, &contract.InvalidError{Path: "/pgstore.Config/" + f.name, Problem: fmt.Sprintf(
				"must be lower-case letters, digits and _, not starting with a digit, at most %d characters%s", f.limit,
				map[bool]string{true: ", as prefix.name"}[f.allow == setting])}
		}
	}
	for i, b := range c.OtherBoundaries {
		if !boundary.MatchString(b) {
			return c, &contract.InvalidError{Path: fmt.Sprintf("/pgstore.Config/OtherBoundaries/%d", i),
				Problem: "must be letters, digits, _, . and -, at most 63 characters"}
		}
		if slices.Contains(ownBoundaries, b) {
			return c, &contract.InvalidError{Path: fmt.Sprintf("/pgstore.Config/OtherBoundaries/%d", i),
				Problem: "is a boundary of this library's own"}
		}
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = 5 * time.Second
	}
	if c.LockTimeout < time.Millisecond {
		return c, &contract.InvalidError{Path: "/pgstore.Config/LockTimeout", Problem: "must be at least a millisecond"}
	}
	return c, nil
}

// render puts the configured names into SQL text. It runs once, at construction.
func (c Config) render(sql string) string {
	if strings.Contains(sql, "{row_security}") {
		sql = strings.ReplaceAll(sql, "{row_security}", rowSecuritySQL)
	}
	boundaries := "'" + strings.Join(append(slices.Clone(ownBoundaries), c.OtherBoundaries...), "', '") + "'"
	table := pgx.Identifier{c.Schema, c.Table}.Sanitize()
	return strings.NewReplacer(
		"{boundaries}", boundaries,
		"{table_literal}", "'"+table+"'",
		"{tenant_literal}", "'"+c.TenantColumn+"'",
		"{schema}", pgx.Identifier{c.Schema}.Sanitize(),
		"{table}", table,
		"{name}", c.Table,
		"{tenant}", pgx.Identifier{c.TenantColumn}.Sanitize(),
		"{setting}", "'"+c.TenantSetting+"'",
		"{lock_timeout}", "'"+strconv.FormatInt(c.LockTimeout.Milliseconds(), 10)+"ms'",
	).Replace(sql)
}
