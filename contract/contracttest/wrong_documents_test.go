package contracttest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/contract/contracttest"
)

type (
	impl         = contracttest.Implementation
	confirmation = contract.OperationConfirmation
	surfaceState = contract.CurrentSurfaceState
	limits       = contract.Limits
)

// lenient reads a confirmation as a careless program does.
func lenient(document []byte) (confirmation, error) {
	var doc struct {
		IdempotencyKey  uuid.UUID           `json:"idempotency_key"`
		SurfaceKey      contract.SurfaceKey `json:"surface_key"`
		ContractVersion string              `json:"contract_version"`
		Items           []struct {
			ItemID string          `json:"item_id"`
			Op     string          `json:"op"`
			Params json.RawMessage `json:"params"`
		} `json:"items"`
	}
	err := json.NewDecoder(bytes.NewReader(document)).Decode(&doc)
	c := confirmation{IdempotencyKey: doc.IdempotencyKey, SurfaceKey: doc.SurfaceKey, ContractVersion: doc.ContractVersion}
	for _, it := range doc.Items {
		c.Items = append(c.Items, contract.Item{ID: it.ItemID, Op: it.Op, Params: it.Params})
	}
	return c, err
}

// forgiving decodes like the contract, but lets the problems through of which this is part.
func forgiving(problem string) impl {
	return impl{DecodeConfirmation: func(document []byte, l limits) (confirmation, error) {
		c, err := contract.DecodeConfirmation(document, l)
		if err != nil && strings.Contains(err.Error(), problem) {
			return lenient(document)
		}
		return c, err
	}}
}

// changing decodes like the contract, and then changes what was read.
func changing(change func(*confirmation)) impl {
	return impl{DecodeConfirmation: func(document []byte, l limits) (confirmation, error) {
		c, err := contract.DecodeConfirmation(document, l)
		if err == nil {
			change(&c)
		}
		return c, err
	}}
}

// limiting decodes under other limits.
func limiting(change func(*limits)) impl {
	return impl{DecodeConfirmation: func(document []byte, l limits) (confirmation, error) {
		change(&l)
		return contract.DecodeConfirmation(document, l)
	}}
}

func wrongDocuments() []wrong {
	proposals := func(problem string) impl {
		return impl{DecodeProposal: func(document []byte, l limits) (contract.OperationProposal, error) {
			p, err := contract.DecodeProposal(document, l)
			if err != nil && strings.Contains(err.Error(), problem) {
				c, err := lenient(document)
				return c.Proposal(), err
			}
			return p, err
		}}
	}
	return append([]wrong{
		{"a decoder that passes over unknown members", forgiving("is not a member"), "confirmations/an unknown member"},
		{"a decoder that matches names in any case", forgiving("/…: is not a member"), "confirmations/a member whose name differs in case"},
		{"a decoder that keeps the last of two members", forgiving("must not appear twice"), "confirmations/surface_key twice with two values"},
		{"a decoder that stops after the first value", impl{DecodeConfirmation: func(document []byte, l limits) (confirmation, error) {
			var first json.RawMessage
			if json.NewDecoder(bytes.NewReader(document)).Decode(&first) == nil {
				document = first
			}
			return contract.DecodeConfirmation(document, l)
		}}, "confirmations/not JSON: another document after it"},
		{"a decoder that repairs lone surrogates", forgiving("valid JSON value in UTF-8"),
			"confirmations/not Unicode, in params: a lone high surrogate"},
		{"a decoder that repairs bad UTF-8", impl{DecodeConfirmation: func(document []byte, l limits) (confirmation, error) {
			return contract.DecodeConfirmation(bytes.ToValidUTF8(document, []byte("\ufffd")), l)
		}}, "confirmations/not UTF-8, in params: an encoded surrogate"},
		{"a decoder that takes null for absent", forgiving("must not be null"), "confirmations/null for params"},
		{"a decoder that takes the nil UUID", forgiving("must be a UUID"), "confirmations/idempotency_key: the nil UUID"},
		{"a decoder that takes any form of a UUID", forgiving("must be a UUID"), "confirmations/idempotency_key: a URN"},
		{"a decoder of every version", forgiving("operation_recovery.v1"), "confirmations/schema_version: a later version"},
		{"a decoder that takes a URL", forgiving("not a URL"), "confirmations/surface_key: a URL"},
		{"a decoder that takes an empty operation", forgiving("at least one item"), "confirmations/no items"},
		{"a decoder that takes an id twice", forgiving("repeats the id"), "confirmations/an item id twice"},
		{"a decoder that rounds numbers", forgiving("not exactly a float64"), "confirmations/number in params: 2^53 + 1"},
		{"a decoder that trims texts", forgiving("white space"), "confirmations/contract_version: a trailing space"},
		{"a decoder that sorts items", changing(func(c *confirmation) {
			c.Items[0], c.Items[len(c.Items)-1] = c.Items[len(c.Items)-1], c.Items[0]
		}),
			"confirmations/three items, in their order"},
		{"a decoder that normalizes ids", changing(func(c *confirmation) {
			for i := range c.Items {
				c.Items[i].ID = strings.ReplaceAll(c.Items[i].ID, "e\u0301", "\u00e9")
			}
		}), "confirmations/ids that differ only in normal form"},
		{"a decoder that tells the first item for every item", impl{DecodeConfirmation: func(document []byte, l limits) (confirmation, error) {
			c, err := contract.DecodeConfirmation(document, l)
			if invalid, ok := errors.AsType[*contract.InvalidError](err); ok {
				err = &contract.InvalidError{Path: strings.Replace(invalid.Path, "/items/1", "/items/0", 1), Problem: invalid.Problem}
			}
			return c, err
		}}, "confirmations/a second item without params"},

		{"a proposal that may bring its key", proposals("/idempotency_key"), "proposals/with a key"},
		{"a proposal that may hold more", proposals("is not a member"), "proposals/an unknown member"},

		{"limits of one more", limiting(func(l *limits) { l.ItemID = 127 }), "limits/item_id: 128 bytes"},
		{"limits in characters", impl{DecodeConfirmation: func(document []byte, l limits) (confirmation, error) {
			c, err := contract.DecodeConfirmation(document, l)
			if err == nil || !strings.Contains(err.Error(), "bytes long") {
				return c, err
			}
			if plain, _ := lenient(document); utf8.RuneCountInString(plain.Items[0].ID) <= 128 {
				return plain, nil
			}
			return c, err
		}}, "limits/item_id: 130 bytes of two-byte characters"},
		{"limits that nobody can lower", limiting(func(l *limits) { *l = contract.Limits{} }), "limits/items: lowered to 2, with 3"},
		{"a depth that counts from zero", limiting(func(l *limits) { l.Depth = max(l.Depth-1, 0) }),
			"limits/depth: lowered to 2, with an object of an object of an object"},

		{"an encoder that escapes for HTML", encoding(func(data []byte) []byte {
			var b bytes.Buffer
			json.HTMLEscape(&b, data)
			return b.Bytes()
		}), "encoding/only what must be escaped is escaped"},
		{"an encoder that rewrites params", encoding(func(data []byte) []byte { return bytes.ReplaceAll(data, []byte("1.0"), []byte("1")) }),
			"encoding/params lose white space and keep everything else"},
		{"an encoder that checks nothing", impl{
			EncodeProposal: contract.OperationProposal.MarshalJSON,
			EncodeConfirmation: func(c confirmation) ([]byte, error) {
				if c.IdempotencyKey == uuid.Nil {
					c.IdempotencyKey = uuid.New()
				}
				return c.MarshalJSON()
			},
		}, "encoding/what could not be read is not written: the nil key"},
	}, append(wrongSurfaces(), wrongStaleness()...)...)
}

func encoding(change func([]byte) []byte) impl {
	return impl{
		EncodeProposal: contract.OperationProposal.MarshalJSON,
		EncodeConfirmation: func(c confirmation) ([]byte, error) {
			data, err := c.MarshalJSON()
			return change(data), err
		},
	}
}

func wrongSurfaces() []wrong {
	only := func(refused func(key string) bool) impl {
		return impl{CheckSurfaceKey: func(key string) error {
			if key == "" || refused(key) {
				return &contract.InvalidError{Path: "/surface_key", Problem: "is a URL"}
			}
			return nil
		}}
	}
	return []wrong{
		{"a key that is only looked at for http", only(func(key string) bool { return strings.HasPrefix(strings.ToLower(key), "http") }),
			"surface_keys/refused: a host"},
		{"a key that is compared in one case", only(func(key string) bool { return strings.Contains(key, "http:") }),
			"surface_keys/refused: a URL in upper case"},
		{"a key that is not decoded", only(func(key string) bool { return strings.Contains(key, ":") }), "surface_keys/refused: an encoded www"},
		{"a key that is decoded once", impl{CheckSurfaceKey: func(key string) error {
			if strings.Contains(key, "%25") {
				return nil
			}
			return contract.SurfaceKey(key).Validate(contract.Limits{})
		}}, "surface_keys/refused: encoded twice"},
		{"a key that may have no colon", only(func(key string) bool { return strings.Contains(key, ":") }), "surface_keys/accepted: a matter"},
		{"a key that is trimmed", impl{CheckSurfaceKey: func(key string) error {
			return contract.SurfaceKey(strings.TrimSpace(key)).Validate(contract.Limits{})
		}}, "surface_keys/refused: a space before"},
	}
}

// fresh is staleness by an equality of one's own, axis by axis.
func fresh(same func(axis, proposed, current string) bool) impl {
	drift := func(c confirmation, now surfaceState) (d contract.Drift) {
		if !same("surface_key", string(c.SurfaceKey), string(now.SurfaceKey)) {
			d = append(d, contract.AxisDrift{Axis: "surface_key", Proposed: string(c.SurfaceKey), Current: string(now.SurfaceKey)})
		}
		if !same("contract_version", c.ContractVersion, now.ContractVersion) {
			d = append(d, contract.AxisDrift{Axis: "contract_version", Proposed: c.ContractVersion, Current: now.ContractVersion})
		}
		return d
	}
	return impl{DriftOf: drift, IsStale: func(c confirmation, now surfaceState) bool {
		return len(drift(c, now)) > 0
	}}
}

func wrongStaleness() []wrong {
	isSame := func(axis, a, b string) bool { return a == b && (axis == "surface_key" || a != "") }
	swapped := impl{IsStale: contract.IsStale, DriftOf: func(c confirmation, now surfaceState) contract.Drift {
		d := contract.DriftOf(c, now)
		for i := range d {
			d[i].Proposed, d[i].Current = d[i].Current, d[i].Proposed
		}
		return d
	}}
	axes := fresh(isSame)
	crossed := func(c confirmation) confirmation {
		return confirmation{SurfaceKey: contract.SurfaceKey(c.ContractVersion), ContractVersion: string(c.SurfaceKey)}
	}
	return []wrong{
		{"a swapped axis", impl{
			DriftOf: contract.DriftOf,
			IsStale: func(c confirmation, now surfaceState) bool {
				return axes.IsStale(crossed(c), now)
			},
		}, "staleness/the axes are not compared with each other"},
		{"a drift whose values are swapped", swapped, "staleness/the version moved"},
		{"only the version is compared", fresh(func(axis, a, b string) bool { return axis == "surface_key" || isSame(axis, a, b) }),
			"staleness/the surface moved"},
		{"only the surface is compared", fresh(func(axis, a, b string) bool { return axis == "contract_version" || a == b }),
			"staleness/the version moved"},
		{"an empty version matches itself", fresh(func(_, a, b string) bool { return a == b }),
			"staleness/an empty version never matches itself"},
		{"an empty surface matches nothing", fresh(func(_, a, b string) bool { return a == b && a != "" }),
			"staleness/an empty surface is compared like any other"},
		{"any case matches", fresh(func(axis, a, b string) bool { return isSame(axis, strings.ToLower(a), strings.ToLower(b)) }),
			"staleness/another case of the version"},
		{"white space does not matter", fresh(func(axis, a, b string) bool { return isSame(axis, strings.TrimSpace(a), strings.TrimSpace(b)) }),
			"staleness/white space is part of the version"},
		{"a later version is fresh", fresh(func(axis, a, b string) bool {
			return isSame(axis, a, b) || axis == "contract_version" && a != "" && a > b
		}),
			"staleness/an older version"},
	}
}
