package contract

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"strconv"
)

// Digest stands for the content of an operation: the same content has the same digest, in whatever way its JSON was
// written, and other content has another. The key is not content.
type Digest [sha256.Size]byte

const (
	digestDomain  = "confirmexec/operation"
	digestVersion = 1
)

// DigestOf returns p's digest: SHA-256 over the domain tag, the digest version, the surface key, the contract version,
// the number of items, and each item's id, op and params in the form of [CanonicalJSON]. A number is eight bytes, big
// endian; a text is its length, as such a number, and its bytes.
//
// The error is an *[InvalidError] for params that [OperationProposal.Validate] refuses under the default limits;
// nothing else is checked.
func DigestOf(p OperationProposal) (Digest, error) {
	l := DefaultLimits()
	h := fieldHash{sha256.New()}
	h.text(digestDomain)
	h.number(digestVersion)
	h.text(string(p.SurfaceKey))
	h.text(p.ContractVersion)
	h.number(len(p.Items))
	for i, it := range p.Items {
		path := "/items/" + strconv.Itoa(i) + "/params"
		if err := checkParams(path, it.Params, l); err != nil {
			return Digest{}, err
		}
		params, err := canonicalize(path, it.Params)
		if err != nil {
			return Digest{}, err
		}
		h.text(it.ID)
		h.text(it.Op)
		h.text(string(params))
	}
	return Digest(h.Sum(nil)), nil
}

type fieldHash struct{ hash.Hash }

func (h fieldHash) number(n int) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) //nolint:gosec // a hash never fails; n is a length
}

func (h fieldHash) text(s string) {
	h.number(len(s))
	h.Write([]byte(s)) //nolint:gosec // a hash never fails
}
