package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Fact is something that happened and that others must be told: at least once, and in order with the other facts of its source.
// Its texts are one line of at most contract.MaxMetaText bytes each.
type Fact struct {
	Tenant string
	Source string // whose order it is part of, for example an agent
	ID     string // the fact's own, by which receivers know it again: the same whenever and in whatever session it is sent (R98)
	Kind   string // such as "recording.uploaded"
	// Content is what is told, at most [MaxFact] bytes. The library does not look into it.
	Content []byte
}

// MaxFact is how large a fact's content may be, in bytes.
const MaxFact = 256 << 10

// Digest is what a receiver computes too, and compares: of the kind and the content, with nothing of the session (R97, R98).
func (f Fact) Digest() contract.Digest {
	sum := sha256.Sum256(f.Content)
	return contract.NewContent("fact").Text("kind", f.Kind).Text("content_sha256", hex.EncodeToString(sum[:])).Digest()
}

// QueuedFact is a fact with its place in its source's order.
type QueuedFact struct {
	Fact
	Ordinal   int64 // at least 1, and higher than those of the facts before it; 0 once it is purged
	Published bool  // its publisher has confirmed it; that says nothing of what a receiver made of it (R105)
}

// factDoc is how a fact is stored at its place.
type factDoc struct {
	Source  string `json:"source"`
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Content []byte `json:"content"`
}

// QueueFact puts a fact into the outbox in the caller's transaction: if that commits, the fact will be published, and else it never
// was there (R100). The same fact again is told with the place that it has; other content under its ID is a conflict, and the
// first one stays (R95, R96). Transactions that queue for one source commit one after the other, in the order of the ordinals.
//
// Errors: *[contract.InvalidError], *[contract.ConflictError] and [contract.ErrDenied], after which the transaction is as it was;
// [contract.ErrInProgress] when others queue for longer than the store waits. After [contract.ErrRetryTx] it must be run again from its
// start, and after [contract.ErrUnavailable] rolled back.
func (b *Broker[TTx]) QueueFact(ctx context.Context, tx TTx, f Fact) (q QueuedFact, err error) {
	defer func(start time.Time) { b.observeFact(ctx, "queue_fact", "queued", start, err) }(time.Now())
	if err := f.validate(); err != nil {
		return q, err
	}
	if err := b.authorize(ctx, "queue_fact", factID(f)); err != nil {
		return q, err
	}
	q, found, err := b.lookupFact(ctx, b.store.In(tx), f)
	if err != nil || found {
		return q, err
	}
	ctx, cancel := b.detached(ctx) // a caller that leaves in the middle leaves no half of a fact
	defer cancel()
	undone, err := b.store.Isolate(ctx, tx, 1, func(_ int, tx TTx) (err error) {
		if q.Ordinal, err = b.nextOrdinal(ctx, tx, f); err != nil {
			return err
		}
		return b.place(ctx, b.store.In(tx), q)
	})
	if err == nil {
		err = undone[0]
	}
	if err != nil {
		return QueuedFact{}, fromStore(err)
	}
	return q, nil
}

// place claims a fact's two keys: its own, which leads to its place, and the place, which holds the content. Neither is completed,
// and so neither is ever purged, before the fact is published.
func (b *Broker[TTx]) place(ctx context.Context, claims store.Claims, q QueuedFact) error {
	attempt, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	content, err := json.Marshal(factDoc{q.Source, q.ID, q.Kind, q.Content})
	if err != nil {
		return unreadable(err)
	}
	place := store.ClaimParams{
		ID: placeID(q.Tenant, q.Source, q.Ordinal), Digest: q.Digest(), Attempt: attempt, Mode: store.ModeFact, Lease: b.cfg.Lease,
		AcceptUnminted: true, Content: content,
	}
	name := place
	name.ID, name.Content = factID(q.Fact), strconv.AppendInt(nil, q.Ordinal, 10)
	for _, p := range []store.ClaimParams{name, place} {
		s, err := claims.Claim(ctx, p)
		if err != nil {
			return err
		}
		if s.Claim == nil || s.Claim.Attempt != attempt { // somebody was quicker, between the look and the claim
			return contract.ErrRetryTx
		}
	}
	return nil
}

// nextOrdinal counts the source's facts on, in the transaction: its row lock is what makes the order of ordinals that of commits.
func (b *Broker[TTx]) nextOrdinal(ctx context.Context, tx TTx, f Fact) (int64, error) {
	values, last := b.store.Values(tx), lastQueued(f.Tenant, f.Source)
	v, err := values.Load(ctx, last)
	for err == nil {
		v, err = values.Swap(ctx, store.SwapParams{ValueID: last, Revision: v.Revision, Content: counted})
		if err == nil {
			return v.Revision, nil
		}
		if errors.Is(err, store.ErrRevision) {
			err = nil // somebody was quicker: v is what stands now
		}
	}
	return 0, err
}

// LookupFact tells a fact's place in the outbox, without its kind and content. Errors: *[contract.InvalidError], [contract.ErrDenied],
// [ErrNoFact], [contract.ErrUnavailable].
func (b *Broker[TTx]) LookupFact(ctx context.Context, tenant, source, id string) (q QueuedFact, err error) {
	f := Fact{Tenant: tenant, Source: source, ID: id, Kind: "any"}
	if err := f.validate(); err != nil {
		return q, err
	}
	f.Kind = ""
	if err := b.authorize(ctx, "lookup_fact", factID(f)); err != nil {
		return q, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	q, found, err := b.lookupFact(ctx, b.store.Own(), f)
	if err == nil && !found {
		err = ErrNoFact
	}
	return q, err
}

// ErrNoFact is the answer about a fact that is not in the outbox.
var ErrNoFact = &contract.Failure{
	Code: contract.NotFound, Reason: "pramaan.agent_operation.no_fact", Message: "no such fact was queued",
}

// lookupFact tells the place that f has. A fact with a kind is compared with what stands.
func (b *Broker[TTx]) lookupFact(ctx context.Context, claims store.Claims, f Fact) (q QueuedFact, found bool, err error) {
	q.Fact = f
	s, err := claims.Lookup(ctx, store.LookupParams{ID: factID(f), Content: true})
	if err != nil || s.Claim == nil {
		return q, false, fromStore(err)
	}
	if f.Kind != "" && s.Claim.Digest != f.Digest() {
		return q, false, &contract.ConflictError{Failure: *contract.ErrKeyReused}
	}
	q.Published = s.Claim.Completed
	if s.Claim.Content == nil { // purged
		return q, true, nil
	}
	if q.Ordinal, err = strconv.ParseInt(string(s.Claim.Content), 10, 64); err != nil {
		return q, false, unreadable(err)
	}
	return q, true, nil
}

func (f Fact) validate() error {
	if err := contract.ValidateTenant(f.Tenant); err != nil {
		return err
	}
	for _, text := range []struct{ path, value string }{{"/source", f.Source}, {"/id", f.ID}, {"/kind", f.Kind}} {
		if err := contract.ValidateText(text.path, text.value, contract.MaxMetaText); err != nil {
			return err
		}
	}
	if len(f.Content) > MaxFact {
		return &contract.InvalidError{Path: "/content", Problem: fmt.Sprintf("is %d bytes long, the limit is %d", len(f.Content), MaxFact)}
	}
	return nil
}

// counted is the content of a value that only counts: its revision is the count.
var counted = []byte("{}")

func lastQueued(tenant, source string) store.ValueID {
	return store.ValueID{Tenant: tenant, Name: "outbox/" + source + "/queued"}
}

func lastPublished(tenant, source string) store.ValueID {
	return store.ValueID{Tenant: tenant, Name: "outbox/" + source + "/published"}
}

func factID(f Fact) store.ID {
	return store.ID{Tenant: f.Tenant, Key: derivedKey("fact", f.Source, f.ID)}
}

func placeID(tenant, source string, ordinal int64) store.ID {
	return store.ID{Tenant: tenant, Key: derivedKey("place", source, strconv.FormatInt(ordinal, 10))}
}
