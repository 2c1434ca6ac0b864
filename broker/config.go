package broker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
)

// Config changes what a [Broker] does by default. The zero value of every field is its default.
type Config struct {
	// Lease is how long an attempt may hold a key without a word, and an executor's time limit: the context that Execute
	// hands it ends with the lease. Every progress write renews it. Its end lets nobody run the executor again; it turns
	// "in progress" into "ambiguous". Default 5 minutes.
	Lease time.Duration

	// ReplayWait is how long a second confirm waits for a first one that is running, so that a double tap gets the real
	// result; negative: not at all. ExecuteTx does not wait for a committed claim, since it would hold the caller's
	// transaction open. Default 5 seconds.
	ReplayWait time.Duration

	// ProposalExpiry is how long after Propose a key may be confirmed. Default 24 hours.
	ProposalExpiry time.Duration

	// PayloadRetention is how long Purge keeps content and outcomes of what is settled or has expired. Default 30 days.
	PayloadRetention time.Duration

	// StoreTimeout bounds each call on the store that the broker makes of its own. It should be longer than the store's lock
	// timeout. Default 15 seconds.
	StoreTimeout time.Duration

	// AcceptUnmintedKeys also executes keys that Propose did not mint here. Whoever can choose keys can then defeat the
	// protection against double execution; keep it off unless another service mints them. Default false.
	AcceptUnmintedKeys bool

	// NoProgress spares Execute the write between two items. A crash then leaves every item of a batch ambiguous instead of
	// one, and the whole batch must fit into one lease. Default false.
	NoProgress bool

	// Limits of what is accepted; they can only be lowered. Default [contract.DefaultLimits].
	Limits contract.Limits

	// Authorize is asked on every call but Propose, before anything that is stored is shown or changed (S33): a replay is only shown
	// to those who may see it now. But a guard that is not met, and a key that stands for other content, are told before a denial:
	// whoever may ask at all can find out whether a guess is the content. A nil error allows; any other refuses with
	// contract.ErrDenied, unless its chain holds a [contract.Failure], which is then the answer. Default: everything is allowed.
	Authorize func(ctx context.Context, a Access) error

	// Observer is told the end of every call. Default none.
	Observer Observer

	// Logger gets one record per call, at the levels Info (answered) and Warn (unavailable, ambiguous): method, answer,
	// counts and duration, never keys, tenants or content. The call's context is passed on, so that a handler can add the
	// active trace id. Default none.
	Logger *slog.Logger
}

// Access is what an authoriser decides about.
type Access struct {
	Method string // the method's name, such as "execute", "execute_tx", "lookup", "cancel" or "resolve"
	Tenant string
	Key    uuid.UUID // the nil UUID for "list_unresolved" and "purge", which are about no one key
}

func (c Config) withDefaults() (Config, error) {
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Lease", &c.Lease, 5 * time.Minute},
		{"ProposalExpiry", &c.ProposalExpiry, 24 * time.Hour},
		{"PayloadRetention", &c.PayloadRetention, 30 * 24 * time.Hour},
		{"StoreTimeout", &c.StoreTimeout, 15 * time.Second},
	} {
		if *f.value == 0 {
			*f.value = f.def
		}
		if *f.value < 0 {
			return c, &contract.InvalidError{Path: "/broker.Config/" + f.name, Problem: fmt.Sprintf("must not be negative; 0 means %s", f.def)}
		}
	}
	if c.ReplayWait == 0 {
		c.ReplayWait = 5 * time.Second
	}
	return c, c.Limits.Validate()
}
