package contracttest

import (
	"encoding/hex"
	"strconv"

	"github.com/confirmexec/confirmexec/contract"
)

// digestTopics are about the canonical form and what is made of it.
var digestTopics = []topic{
	newTopic("canonical", gotCanonical, "Canonical"),
	newTopic("digests", gotDigest, "Digest"),
	newTopic("digest_pairs", gotPair, "Digest"),
	newTopic("content_digests", gotContentDigest, "ContentDigest"),
}

type canonicalWant struct {
	refusal
	Canonical raw `json:"canonical,omitempty"`
}

func gotCanonical(i Implementation, in documentIn, want canonicalWant) canonicalWant {
	form, err := i.Canonical(in.Document)
	if err != nil {
		return canonicalWant{refusal: refusalOf(err, want.refusal)}
	}
	return canonicalWant{Canonical: form}
}

type digestWant struct {
	refusal
	Digest string `json:"digest,omitempty"`
}

func gotDigest(i Implementation, in operation, want digestWant) digestWant {
	d, err := i.Digest(in.proposal())
	if err != nil {
		return digestWant{refusal: refusalOf(err, want.refusal)}
	}
	return digestWant{Digest: hex.EncodeToString(d[:])}
}

type pairIn struct {
	A operation `json:"a"`
	B operation `json:"b"`
}

type pairWant struct {
	refusal
	Same bool `json:"same"`
}

func gotPair(i Implementation, in pairIn, want pairWant) pairWant {
	var digests [2]contract.Digest
	for n, o := range []operation{in.A, in.B} {
		d, err := i.Digest(o.proposal())
		if err != nil {
			return pairWant{refusal: refusalOf(err, want.refusal)}
		}
		digests[n] = d
	}
	return pairWant{Same: digests[0] == digests[1]}
}

type contentIn struct {
	Method string         `json:"method"`
	Fields []contentField `json:"fields"`
}

type contentField struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Value raw    `json:"value"` // of an int its decimal digits, of a bool its name
}

func (f contentField) read() (Field, error) {
	value := []byte(f.Value)
	switch f.Kind {
	case "int":
		n, err := strconv.ParseInt(string(f.Value), 10, 64)
		if err != nil {
			return Field{}, err
		}
		value = bytesOf(n)
	case "bool":
		value = []byte{0}
		if string(f.Value) == "true" {
			value = []byte{1}
		}
	}
	return Field{f.Name, f.Kind, value}, nil
}

func gotContentDigest(i Implementation, in contentIn, want digestWant) digestWant {
	fields := make([]Field, len(in.Fields))
	for n, f := range in.Fields {
		var err error
		if fields[n], err = f.read(); err != nil {
			return digestWant{refusal: refusalOf(err, want.refusal)}
		}
	}
	d := i.ContentDigest(in.Method, fields)
	return digestWant{Digest: hex.EncodeToString(d[:])}
}
