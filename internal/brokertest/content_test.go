package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// S4, S17: what is within the limits when it is proposed can be read for ever, whatever its characters.
func TestContentWithinTheLimitsCanBeRead(t *testing.T) {
	for _, fill := range []string{"<", "&", "\u2028", "\\u0001", "é", `\"`} {
		onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
			b := newBench(t, h, execute, nil)
			p := proposal("a")
			p.Items[0].Params = json.RawMessage(`{"html":"` + strings.Repeat(fill, (60<<10)/len(fill)) + `"}`)
			c, err := b.Propose(b.ctx, firmA, p)
			require.NoError(t, err)
			_, err = b.Lookup(b.ctx, firmA, c.IdempotencyKey)
			require.NoError(t, err, "%q", fill)
			res, err := b.confirm(request(c), func(context.Context, broker.Item, func(string) error) (broker.Outcome, error) {
				return broker.Outcome{}, errors.New("timeout")
			})
			require.NoError(t, err)
			require.NotNil(t, res.Recovery())
			_, err = b.Resolve(b.ctx, resolution(c), func(context.Context, broker.Item) (broker.Verdict, error) {
				return broker.FoundApplied("", "seen"), nil
			})
			require.NoError(t, err, "%q", fill)
		})
	}
}

// S4, S20: an executor that changes what it was given changes neither what is stored, nor the caller's, nor what it is called with again.
func TestParamsAreTheExecutorsOwn(t *testing.T) {
	b := onPostgres(t).with(broker.Config{ReplayWait: -1, AcceptUnmintedKeys: true})
	for _, mode := range []string{perItem, atomically} {
		c := proposal("a").Confirmation(uuid.New())
		want := string(c.Items[0].Params)
		var seen []string
		exec := func(_ context.Context, _ pgx.Tx, it broker.Item) (broker.Outcome, error) {
			seen = append(seen, string(it.Params))
			copy(it.Params, strings.Repeat("x", len(it.Params)))
			if len(seen) == 1 {
				return broker.Outcome{}, &pgconn.PgError{Code: "40001", Severity: "ERROR"}
			}
			return broker.Applied(""), nil
		}
		var err error
		if mode == perItem {
			_, err = b.ExecutePerItem(b.ctx, request(c), exec)
		} else {
			_, err = b.ExecuteAtomic(b.ctx, broker.TxRequest[pgx.Tx]{Request: request(c)}, exec)
		}
		require.NoError(t, err, mode)
		assert.Equal(t, []string{want, want}, seen, mode)
		assert.Equal(t, want, string(c.Items[0].Params), mode)
		st, err := b.Lookup(b.ctx, firmA, c.IdempotencyKey)
		require.NoError(t, err)
		assert.Equal(t, want, string(st.Confirmation.Items[0].Params), mode)
	}
}

// S14: what the caller, or an executor, does to the request meanwhile changes no outcome's item.
func TestTheRequestIsTheCallersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, memory(), perItem, &broker.Config{ReplayWait: -1, Lease: time.Second})
		c := b.propose("a", "b")
		want := c.Items[1].ID
		res, err := b.ExecutePerItem(b.ctx, request(c), func(context.Context, *memstore.Tx, broker.Item) (broker.Outcome, error) {
			c.Items[1].ID = "another"
			time.Sleep(2 * time.Second)
			return broker.Applied(""), nil
		})
		require.NoError(t, err)
		assert.Equal(t, want, res.Outcomes[1].ItemID)
	})
}

// S14, S8: that a target's answer cannot be read does not prove that nothing happened.
func TestAnAnswerThatCannotBeReadProvesNothing(t *testing.T) {
	for name, answer := range map[string]func() error{
		"outcomes": func() error { _, err := contract.DecodeOutcomes([]byte(`{"outcomes":[`)); return err },
		"receipt":  func() error { return new(contract.Receipt).UnmarshalJSON([]byte(`<html>502`)) },
	} {
		onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
			b := newBench(t, h, execute, nil)
			res, err := b.confirm(request(b.propose("a")), func(context.Context, broker.Item, func(string) error) (broker.Outcome, error) {
				return broker.Outcome{}, answer()
			})
			require.NoError(t, err)
			assert.Equal(t, contract.Ambiguous, res.Outcomes[0].State, name)
		})
	}
}

// S22: of an SQL error, which quotes values, an outcome keeps the SQLSTATE, and what the executor said around it.
func TestDetailsQuoteNoValues(t *testing.T) {
	b := onPostgres(t)
	const value = "DE89370400440532013000"
	for name, wrap := range map[string]func(error) error{
		"plain":    func(err error) error { return err },
		"wrapped":  func(err error) error { return errors.Join(errors.New("no account"), err) },
		"definite": broker.NotApplied,
		"joined": func(err error) error {
			return errors.Join(&pgconn.PgError{Severity: "ERROR", Code: "23505", Message: "duplicate"}, err)
		},
		"swallowed": func(error) error { return nil },
	} {
		exec := func(ctx context.Context, tx pgx.Tx, _ broker.Item) (broker.Outcome, error) {
			_, err := tx.Exec(ctx, `SELECT '`+value+`'::int`)
			return broker.Applied(""), wrap(err)
		}
		for _, run := range []func(contract.OperationConfirmation) (*contract.OperationResult, error){
			func(c contract.OperationConfirmation) (*contract.OperationResult, error) {
				return b.ExecutePerItem(b.ctx, request(c), exec)
			},
			func(c contract.OperationConfirmation) (*contract.OperationResult, error) {
				return b.ExecuteAtomic(b.ctx, broker.TxRequest[pgx.Tx]{Request: request(c)}, exec)
			},
		} {
			res, err := run(b.propose("a"))
			require.NoError(t, err, name)
			assert.Equal(t, contract.Failed, res.Outcomes[0].State, name)
			assert.Contains(t, res.Outcomes[0].Detail, "SQLSTATE 22P02", name)
			assert.NotContains(t, res.Outcomes[0].Detail, value, name)
			assert.Equal(t, name == "wrapped", strings.Contains(res.Outcomes[0].Detail, "no account"), name)
		}
	}
}

// S32: whoever looks at the target by hand can tell the item's key.
func TestItemKey(t *testing.T) {
	onMemory(t, func(h storetest.Harness[*memstore.Tx]) {
		b := newBench(t, h, execute, nil)
		c := b.propose("a", "b")
		_, err := b.confirm(request(c), func(_ context.Context, it broker.Item, _ func(string) error) (broker.Outcome, error) {
			assert.Equal(t, it.IdempotencyKey, broker.ItemKey(firmA, c.IdempotencyKey, marked(it.ID)))
			return broker.Applied(""), nil
		})
		require.NoError(t, err)
	})
}
