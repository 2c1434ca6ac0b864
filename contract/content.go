package contract

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

const (
	contentDomain  = "confirmexec/mutation"
	contentVersion = 1
)

// Content collects the business fields and bindings of one mutation, for its digest (R35). Trace, deadline, attempt, session and
// epoch are not content: a request that is sent again in another session is the same request (R98). Its methods return the
// Content, so that calls can be chained. It is not safe for concurrent use.
//
// An encoding of one's own, not a message's bytes, since those are not canonical: a receiver must refuse a message with
// fields that it does not know.
type Content struct {
	method string
	fields []field
}

type field struct{ name, kind, value string }

// NewContent returns the content of a call of a method, without fields. The method is part of the content: a key that is used
// again for another method is in conflict.
func NewContent(method string) *Content { return &Content{method: method} }

// Text adds a text.
func (c *Content) Text(name, value string) *Content { return c.add(name, "text", value) }

// Bytes adds bytes.
func (c *Content) Bytes(name string, value []byte) *Content {
	return c.add(name, "bytes", string(value))
}

// Int adds a whole number.
func (c *Content) Int(name string, value int64) *Content {
	return c.add(name, "int", string(binary.BigEndian.AppendUint64(nil, uint64(value)))) //nolint:gosec // its bits
}

// Bool adds a truth value.
func (c *Content) Bool(name string, value bool) *Content {
	if value {
		return c.add(name, "bool", "\x01")
	}
	return c.add(name, "bool", "\x00")
}

func (c *Content) add(name, kind, value string) *Content {
	c.fields = append(c.fields, field{name, kind, value})
	return c
}

// Digest returns SHA-256 over the domain tag, the digest version, the method, the number of fields and each field's name, kind
// and value, in the order of their names. A number is eight bytes, big endian; a text is its length, as such a number, and its
// bytes. The order in which fields were added does not matter, but for fields of the same name.
func (c *Content) Digest() Digest {
	fields := slices.Clone(c.fields)
	slices.SortStableFunc(fields, func(a, b field) int { return cmp.Compare(a.name, b.name) })
	h := fieldHash{sha256.New()}
	h.text(contentDomain)
	h.number(contentVersion)
	h.text(c.method)
	h.number(len(fields))
	for _, f := range fields {
		h.text(f.name)
		h.text(f.kind)
		h.text(f.value)
	}
	return Digest(h.Sum(nil))
}
