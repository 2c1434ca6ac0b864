package dispatch

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// keysSQL lists what a tenant's rows are named by: the claims' keys, and the values' names.
const keysSQL = `SELECT boundary || ' ' || coalesce(request_id, '') || ' ' || coalesce(item_id, '') FROM %s WHERE firm_id = $1 ORDER BY 1`

// keys tells what there is in this process's database, so that a step can be seen to make nothing.
func (n *node[TTx]) keys(ctx context.Context, _ order) (answer, error) {
	var told answer
	err := n.rolledBack(ctx, func(ctx context.Context, tx TTx) (err error) {
		switch tx := any(tx).(type) {
		case pgx.Tx:
			rows, _ := tx.Query(ctx, fmt.Sprintf(keysSQL, "agents.agent_idempotency_key"), n.cfg.Tenant)
			told.Lines, err = pgx.CollectRows(rows, pgx.RowTo[string]) // its error is also the query's
		case *sql.Tx:
			told.Lines, err = texts(tx.QueryContext(ctx, fmt.Sprintf(keysSQL, "agent_idempotency_key"), n.cfg.Tenant))
		}
		return err
	})
	return told, err
}

func texts(rows *sql.Rows, err error) (lines []string, _ error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}
