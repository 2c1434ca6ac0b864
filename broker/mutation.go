package broker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Mutation is one durable mutation of the Agent contract, for [Broker.Mutate]. Its operation is named by the authenticated agent
// and Meta.OperationID, and has one Meta.IdempotencyKey (R24, R32).
//
// Guard, Apply and the claim are one transaction; Invoke comes after its commit. At least one of Apply and Invoke is set.
type Mutation[TTx any] struct {
	Tenant  string // whose rows these are: the authenticated one
	AgentID string // the agent that the caller is authenticated as; a Meta.AgentID that differs is refused
	Meta    contract.RequestMeta
	Method  contract.Method
	Digest  contract.Digest // of the business content and bindings: see [contract.Content]

	// Identities are further things of which each belongs to one operation for ever: its execution, its permit. An operation that
	// asks for one that another has is refused with contract.ErrSecondOperation (R53, R54, R62). At most [MaxIdentities].
	Identities []Identity

	// Guard checks fences, under locks that hold until the commit. It comes before the answer to a repeated request, so that a
	// fenced caller is told that it is fenced, and not a receipt (R121). Its error is the answer; nothing is claimed then.
	Guard func(ctx context.Context, tx TTx) error

	// Apply makes the effect inside the transaction, and returns the receipt. Its error refuses the mutation and leaves no claim
	// and no write; a receipt that says REFUSED is stored. With Invoke set, a receipt that is not terminal, such as the zero one,
	// is not stored but goes on to Invoke, and a terminal one keeps Invoke from being called. It may run again after a
	// serialization failure: it should do nothing but write through tx.
	Apply func(ctx context.Context, tx TTx) (contract.Receipt, error)

	// Invoke makes the effect outside the database, at most once per operation for all time, after UNKNOWN was committed (R60).
	// Whatever its error is, a definite one too, the receipt stays UNKNOWN until evidence comes (R69); what it knows it returns as
	// a receipt, such as NOT_APPLIED with Detail saying why. Its context ends with the lease and not with the caller's.
	Invoke func(ctx context.Context, c Call) (contract.Receipt, error)
}

// MaxIdentities is how many identities a mutation may have.
const MaxIdentities = 8

// Identity is something that one operation alone may have, such as {"execution", "e-17"}, in a tenant. Both texts are one line of
// at most contract.MaxMetaText bytes.
type Identity struct{ Kind, Value string }

// MutationRef names a mutation by its operation or, if Identity is set, by what it alone has.
type MutationRef struct {
	Tenant      string
	AgentID     string
	OperationID string
	Identity    Identity
}

// Call is what Invoke and an [EvidenceReader] get: what they may pass on to the target.
type Call struct {
	MutationRef // with the operation, and without an identity
	Method      string
	Digest      contract.Digest
	// Key is the operation's own key for the target, the same for every attempt.
	Key uuid.UUID
	// Fence rises whenever the operation is taken from an attempt: a target that keeps the highest one it saw can refuse a late one.
	Fence int64
}

// mutationDoc is what is stored of a mutation for people and for later queries: names, and no content.
type mutationDoc struct {
	AgentID        string `json:"agent_id"`
	OperationID    string `json:"operation_id"`
	IdempotencyKey string `json:"idempotency_key"`
	Method         string `json:"method"`
	Digest         []byte `json:"digest"`
}

// mutation is a Mutation on its way, by the same machine as a confirm.
type mutation[TTx any] struct {
	Mutation[TTx]
	*attempt
	doc     mutationDoc
	content []byte // doc, as stored
}

// newMutation is the first answer of all: shape and limits, before the store is touched.
func (b *Broker[TTx]) newMutation(m Mutation[TTx]) (*mutation[TTx], error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	id, err := uuid.NewRandom()
	if err != nil {
		return nil, unavailable(err)
	}
	doc := mutationDoc{m.AgentID, m.Meta.OperationID, m.Meta.IdempotencyKey, m.Method.Name, m.Digest[:]}
	content, err := json.Marshal(doc)
	if err != nil {
		return nil, unreadable(err)
	}
	m.Identities = slices.Clone(m.Identities) // the caller's stays as it is: another call may be reading it
	slices.SortFunc(m.Identities, func(a, b Identity) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Value, b.Value)) })
	a := newKeyAttempt("mutate", m.Tenant, operationKey(m.AgentID, m.Meta.OperationID), id)
	a.mode, a.digest = store.ModeMutation, doc.digest()
	return &mutation[TTx]{m, a, doc, content}, nil
}

// newKeyAttempt is an attempt at a key that is no confirmation's.
func newKeyAttempt(method, tenant string, key, id uuid.UUID) *attempt {
	a := &attempt{method: method, id: id}
	a.Tenant, a.Confirmation.IdempotencyKey = tenant, key
	return a
}

func (m *Mutation[TTx]) validate() error {
	if m.Apply == nil && m.Invoke == nil {
		return &contract.InvalidError{Path: "/executor", Problem: "one of Apply and Invoke must be set"}
	}
	if m.Method.ReadOnly || m.Method.Redelivered {
		return &contract.InvalidError{Path: "/method", Problem: "must be a deduplicated mutation; reads and redelivered methods have no claim"}
	}
	for _, text := range []struct {
		path, value string
		limit       int
	}{{"/agent_id", m.AgentID, contract.MaxMetaText}, {"/method", m.Method.Name, contract.MaxMethod}} {
		if err := contract.ValidateText(text.path, text.value, text.limit); err != nil {
			return err
		}
	}
	if err := contract.ValidateTenant(m.Tenant); err != nil {
		return err
	}
	if err := m.Meta.ValidateMutation(m.Method); err != nil {
		return err
	}
	if m.Digest == (contract.Digest{}) {
		return &contract.InvalidError{Path: "/digest", Problem: "must be that of the request's content"}
	}
	if m.Meta.AgentID != "" && m.Meta.AgentID != m.AgentID {
		return contract.ErrDenied // what a request says of itself never authorizes (R115)
	}
	if len(m.Identities) > MaxIdentities {
		return &contract.InvalidError{Path: "/identities", Problem: fmt.Sprintf("must be at most %d", MaxIdentities)}
	}
	for _, i := range m.Identities {
		if err := i.validate(); err != nil {
			return err
		}
	}
	return nil
}

func (i Identity) validate() error {
	if err := contract.ValidateText("/identity/kind", i.Kind, contract.MaxMetaText); err != nil {
		return err
	}
	return contract.ValidateText("/identity/value", i.Value, contract.MaxMetaText)
}

func (m *mutation[TTx]) call(held store.Fenced) Call { return m.doc.call(held) }

func (d mutationDoc) call(held store.Fenced) Call {
	return Call{
		MutationRef: d.ref(held.Tenant), Method: d.Method, Digest: contract.Digest(d.Digest), Key: held.Key, Fence: held.Fence,
	}
}

func (d mutationDoc) ref(tenant string) MutationRef {
	return MutationRef{Tenant: tenant, AgentID: d.AgentID, OperationID: d.OperationID}
}

// receipt begins a receipt of the operation.
func (d mutationDoc) receipt() contract.Receipt {
	return contract.Receipt{Result: contract.ResultUnknown, Method: d.Method, OperationID: d.OperationID, Digest: contract.Digest(d.Digest)}
}

// digest is what an operation's claim is compared by: all that a repeated request must have in common with the first.
func (d mutationDoc) digest() contract.Digest {
	return contract.NewContent(d.Method).Text("agent_id", d.AgentID).Text("operation_id", d.OperationID).
		Text("idempotency_key", d.IdempotencyKey).Bytes("content", d.Digest).Digest()
}

// decodeMutation reads what was stored of a mutation.
func decodeMutation(content []byte) (mutationDoc, error) {
	var d mutationDoc
	err := json.Unmarshal(content, &d, json.RejectUnknownMembers(true))
	if err == nil && len(d.Digest) != len(contract.Digest{}) {
		err = &contract.InvalidError{Path: "/digest", Problem: "must be 32 bytes"}
	}
	if err != nil {
		return d, unreadable(err)
	}
	return d, nil
}

// operationKey is the key of an agent's operation; the idempotency key is in the digest, since an operation has one (R32).
func operationKey(agentID, operationID string) uuid.UUID {
	return derivedKey("operation", agentID, operationID)
}

// key is the key of an identity.
func (i Identity) key() uuid.UUID { return derivedKey("identity", i.Kind, i.Value) }

// derivedKey is a UUID of version 8 (RFC 9562) over texts whose lengths are fixed by prefixes. Two that collided would be told a
// conflict, since the digests differ: never the other's receipt.
func derivedKey(texts ...string) uuid.UUID {
	var data []byte
	for _, text := range texts {
		data = append(binary.BigEndian.AppendUint64(data, uint64(len(text))), text...)
	}
	return uuid.NewHash(sha256.New(), uuid.Nil, data, 8)
}
