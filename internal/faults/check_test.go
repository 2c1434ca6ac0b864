package faults

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// checkNow checks an answer against what is there at this moment. A record that follows later would be no excuse.
func (c *trial) checkNow(a answer) {
	if a.err != nil {
		c.checkError(a)
	}
	c.checkTruth("now", a, c.effects())
}

// checkError checks the form of a refusal: it is the library's own, and names neither tenant nor key (I16).
func (c *trial) checkError(a answer) {
	if _, outside := errors.AsType[errCaller](a.err); outside {
		return
	}
	if _, ok := contract.FailureOf(a.err); !ok {
		c.Errorf("%v: it is no failure of the contract", a)
	}
	for _, secret := range []string{c.tenant, c.c.IdempotencyKey.String()} {
		if strings.Contains(a.err.Error(), secret) {
			c.Errorf("I16: %v", a)
		}
	}
}

// checkTruth checks what an answer says of effects (I10, I11).
func (c *trial) checkTruth(when string, a answer, effects []effect) {
	count := map[string]int{}
	for _, e := range effects {
		count[e.item]++
	}
	if f, ok := contract.FailureOf(a.err); ok && a.confirm > 0 && f.Code == contract.Unavailable && f.KnownNoEffect() {
		for _, e := range effects {
			if c.madeBefore(a, e.attempt) {
				c.Errorf("I11 %s: %v, and an effect on %s is there", when, a, e.item)
			}
		}
	}
	if errors.Is(a.err, contract.ErrStale) && len(effects) > 0 {
		c.Errorf("I4 %s: %v, and there are effects", when, a)
	}
	if a.res == nil || a.res.Pruned() {
		return
	}
	var ids []string
	for _, o := range a.res.Outcomes {
		ids = append(ids, o.ItemID)
		switch {
		case !o.State.Valid():
			c.Errorf("I10: %v", a)
		case o.Provisional && c.contradicted[o.ItemID]: // which Lookup tells
		case o.State == contract.Applied && count[o.ItemID] != 1, o.State != contract.Applied && o.State != contract.Ambiguous && count[o.ItemID] != 0:
			c.Errorf("I11 %s: item %s is told %s, and has %d effects: %v", when, o.ItemID, o.State, count[o.ItemID], a)
		}
	}
	assert.Equal(c, items, ids, "I10: one outcome per item, in order")
	assert.Equal(c, len(items), a.res.Tally().Total(), "I10")
}

// madeBefore says whether an attempt is of the confirm that was answered so, or of one that was over before it began.
func (c *trial) madeBefore(a answer, attempt uuid.UUID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := map[int]bool{a.confirm: true}
	for _, earlier := range c.told[:a.asked] {
		over[earlier.confirm] = true
	}
	for _, call := range c.calls {
		if call.attempt == attempt && over[call.confirm] {
			return true
		}
	}
	return false
}

// checkAll checks at the end, over everything that was told, in order.
func (c *trial) checkAll() {
	effects := c.effects()
	count := map[string]int{}
	for _, e := range effects {
		if count[e.item]++; count[e.item] > 1 {
			c.Errorf("I1: item %s has %d effects", e.item, count[e.item])
		}
	}
	for _, a := range c.told {
		c.checkTruth("in the end", a, effects)
	}
	c.checkMonotone()
	c.checkFresh(effects)
}

// checkFresh checks that who was told that the surface has moved was told the truth, and that it stays true: the key was not claimed
// then and never is, except to cancel it (I4). That holds for every trial, since nobody reads an older surface after a newer one:
// it is locked while it is read, or a first confirm has claimed before. And nothing is done about a surface that had moved before
// the claim, or the effect, was committed (I5): whoever moved it then saw the one and the other.
func (c *trial) checkFresh(effects []effect) {
	ctx, cancel := c.bounded(patience)
	defer cancel()
	cl, found, err := c.claim(ctx, c.tenant, c.c.IdempotencyKey)
	require.NoError(c, err)
	claimed := found && cl.mode != string(store.ModeCancel)
	for _, a := range c.told {
		if errors.Is(a.err, contract.ErrStale) && claimed {
			c.Errorf("I4: %v, and the key was claimed", a)
		}
	}
	if c.surface == nil {
		return
	}
	claims, before, err := c.seenByMover(ctx)
	require.NoError(c, err)
	if claimed && claims == 0 {
		c.Errorf("I5: the key was claimed though the surface had moved")
	}
	if len(effects) > before {
		c.Errorf("I5: %d effects, of which %d were there when the surface moved", len(effects), before)
	}
}

// checkMonotone checks that nothing that was told was taken back (I6, I7, I12): a settled result is told for ever, byte for byte,
// and what is known of an item stays.
func (c *trial) checkMonotone() {
	var settled []byte
	since := 0                                                          // the number of answers with which it was told
	known, told := map[string]contract.OutcomeState{}, map[string]int{} // what of an item, and with which answer first
	for i, a := range c.told {
		if a.err != nil && settled != nil && a.asked >= since {
			c.checkStillSettled(settled, a)
		}
		if a.res == nil || a.res.Pruned() {
			continue
		}
		encoded, later := contract.EncodeOutcomes(a.res.Outcomes), a.asked >= since
		if settled != nil && !bytes.Equal(settled, encoded) && (later || a.res.Recovery() == nil) {
			c.Errorf("I6: %v, after %s", a, settled)
		}
		if a.res.Recovery() == nil && settled == nil {
			settled, since = encoded, i+1
		}
		for _, o := range a.res.Outcomes {
			if was := known[o.ItemID]; was != "" && was != o.State && (o.State != contract.Ambiguous || told[o.ItemID] <= a.asked) {
				c.Errorf("I12: item %s is told %s after %s: %v", o.ItemID, o.State, was, a)
			}
			if o.State != contract.Ambiguous {
				if known[o.ItemID] == "" {
					told[o.ItemID] = i + 1
				}
				known[o.ItemID] = o.State
			}
		}
	}
}

// checkStillSettled: once it is told how a key is settled, only the way to the database can be the reason for not telling it
// again, or that the completion itself has yet to be recorded.
func (c *trial) checkStillSettled(settled []byte, a answer) {
	if _, outside := errors.AsType[errCaller](a.err); outside || errors.Is(a.err, contract.ErrUnavailable) || errors.Is(a.err, contract.ErrInProgress) {
		return
	}
	c.Errorf("I12: %v, after %s", a, settled)
}

// checkOthers checks what everybody else is told of the key, whatever its state: other content is a conflict (I3), and another
// tenant is told what it is told of a key that never was (I13). Nothing of it runs.
func (c *trial) checkOthers(ctx context.Context) {
	never := func(context.Context, broker.Item) (broker.Outcome, error) {
		c.Errorf("I3, I13: somebody else's executor runs")
		return broker.Outcome{}, nil
	}
	other := c.request()
	other.Confirmation = proposal("another").Confirmation(c.c.IdempotencyKey)
	if _, err := c.calm.Execute(ctx, other, never); !errors.Is(err, contract.ErrKeyReused) {
		c.Errorf("I3: other content is answered %v", err)
	}
	foreign, unknown := c.request(), c.request()
	foreign.Tenant = "firm-" + uuid.NewString()
	unknown.Confirmation.IdempotencyKey = uuid.Must(uuid.NewV7())
	_, err := c.calm.Execute(ctx, foreign, never)
	_, unknownErr := c.calm.Execute(ctx, unknown, never)
	if !errors.Is(err, contract.ErrNotMinted) || err.Error() != unknownErr.Error() {
		c.Errorf("I13: another tenant is told %v, and of an unknown key %v", err, unknownErr)
	}
	if _, err := c.calm.Lookup(ctx, foreign.Tenant, c.c.IdempotencyKey); !errors.Is(err, contract.ErrNotMinted) {
		c.Errorf("I13: Lookup tells another tenant %v", err)
	}
}

// checkFence checks that the fence only rises (I8).
func (c *trial) checkFence(ctx context.Context) {
	cl, found, err := c.claim(ctx, c.tenant, c.c.IdempotencyKey)
	switch {
	case err != nil:
		c.Errorf("read the claim: %v", err)
	case !found && c.fence > 0:
		c.Errorf("I7: the claim is gone")
	case cl.fence < c.fence:
		c.Errorf("I8: the fence is %d after %d", cl.fence, c.fence)
	}
	c.fence = max(c.fence, cl.fence)
	if !found && len(c.effects()) > 0 {
		c.Errorf("I2: there are effects, and no claim")
	}
}

// checkQuiet checks that nothing is left open (I14), and nothing in a session that the next borrower would find (I20).
func (c *trial) checkQuiet(ctx context.Context) {
	c.eventually("I14: no transaction, no lock and no acquired connection is left", func() bool {
		_, busy, err := c.backends(ctx, c.application())
		return err == nil && busy == 0 && c.shaky.Stat().AcquiredConns() == 0
	})
	for _, conn := range c.shaky.AcquireAllIdle(ctx) {
		var left [4]string
		var locks int
		err := conn.QueryRow(ctx, `SELECT coalesce(current_setting('app.firm_id', true), ''), current_setting('lock_timeout'),
			coalesce(current_setting('confirmexec.lock_timeout', true), ''), current_setting('synchronous_commit'),
			(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')`).
			Scan(&left[0], &left[1], &left[2], &left[3], &locks)
		if want := [4]string{"", "0", "", "on"}; err == nil && (left != want || locks != 0) {
			c.Errorf("I20: left in the session: %q, %d advisory locks", left, locks)
		}
		conn.Release()
	}
	c.shaky.Close()
	c.eventually("I14: no connection is left", func() bool {
		all, _, err := c.backends(ctx, c.application())
		return err == nil && all == 0
	})
}

// eventually waits for something that must happen.
func (c *trial) eventually(what string, happened func() bool) {
	deadline := time.Now().Add(patience)
	for pause := time.Millisecond; !happened(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(pause)
	}
}
