package contracttest_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/contract/contracttest"
)

type field = contracttest.Field

// unchecked is the library's canonical form without a look at the numbers.
func unchecked(document []byte) ([]byte, error) {
	v := jsontext.Value(bytes.Clone(document))
	if err := v.Canonicalize(); err != nil {
		return contract.CanonicalJSON(document)
	}
	return v, nil
}

// reencoded is what a careless program takes for a canonical form.
func reencoded(document []byte) ([]byte, error) {
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		return contract.CanonicalJSON(document)
	}
	return json.Marshal(v)
}

// hasher is a digest with something wrong.
type hasher struct {
	form      func([]byte) ([]byte, error)
	noLengths bool
	noSurface bool
	inRunes   bool
	noDomain  bool
}

func (h hasher) field(b *bytes.Buffer, text string) {
	n := len(text)
	if h.inRunes {
		n = len([]rune(text))
	}
	if !h.noLengths {
		_ = binary.Write(b, binary.BigEndian, uint64(n))
	}
	b.WriteString(text)
}

func (h hasher) digest(p contract.OperationProposal) (contract.Digest, error) {
	if _, err := contract.DigestOf(p); err != nil && h.form == nil {
		return contract.Digest{}, err
	}
	form := h.form
	if form == nil {
		form = contract.CanonicalJSON
	}
	var b bytes.Buffer
	if !h.noDomain {
		h.field(&b, "confirmexec/operation")
		_ = binary.Write(&b, binary.BigEndian, uint64(1))
	}
	if !h.noSurface {
		h.field(&b, string(p.SurfaceKey))
	}
	h.field(&b, p.ContractVersion)
	_ = binary.Write(&b, binary.BigEndian, uint64(len(p.Items)))
	for _, it := range p.Items {
		params, err := form(it.Params)
		if err != nil {
			return contract.Digest{}, err
		}
		h.field(&b, it.ID)
		h.field(&b, it.Op)
		h.field(&b, string(params))
	}
	return sha256.Sum256(b.Bytes()), nil
}

func wrongDigests() []wrong {
	asWritten := func(document []byte) ([]byte, error) { return document, nil }
	canonical := func(form func([]byte) ([]byte, error)) impl { return impl{Canonical: form} }
	hashing := func(h hasher) impl { return impl{Digest: h.digest} }
	flat := func(document []byte) ([]byte, error) { // the top level's names alone, as an array-form replacer leaves them
		form, err := contract.CanonicalJSON(document)
		if i := bytes.Index(form, []byte(`:[{`)); err == nil && i > 0 {
			form = append(form[:i:i], ":[{}]}"...)
		}
		return form, err
	}
	return append([]wrong{
		{"a form without number checks", canonical(unchecked), "canonical/number: 9007199254740993"},
		{"a form that lets 1e400 become the largest number", canonical(unchecked), "canonical/number: 1e400"},
		{"a form that lets minus zero become zero", canonical(unchecked), "canonical/number: -0"},
		{"a form that sorts names by their bytes", canonical(reencoded), "canonical/RFC 8785 3.2.3: names are sorted by UTF-16 code units"},
		{"a form that keeps the last of two names", canonical(reencoded), "canonical/duplicates"},
		{"a form that repairs lone surrogates", canonical(reencoded), "canonical/lone surrogates: reversed surrogates"},
		{"a form that escapes for HTML", canonical(reencoded), "canonical/texts: what HTML would escape"},
		{"a form that only loses white space", canonical(func(document []byte) ([]byte, error) {
			if form, err := contract.CanonicalJSON(document); err != nil {
				return form, err
			}
			var b bytes.Buffer
			err := json.Compact(&b, document)
			return b.Bytes(), err
		}), "canonical/names: sorted"},

		{"a digest without number checks", hashing(hasher{form: unchecked}), "digests/refused: 2^53 + 1"},
		{"a digest of what was written", hashing(hasher{form: asWritten}), "digests/params: the order of names"},
		{"a digest without lengths", hashing(hasher{noLengths: true}), "digests/a character moves from one text to the next"},
		{"a digest that counts characters", hashing(hasher{inRunes: true}), "digests/many scripts, counted in bytes"},
		{"a digest without the surface", hashing(hasher{noSurface: true}), "digests/another surface"},
		{"a digest without its domain", hashing(hasher{noDomain: true}), "digests/the story's operation"},

		{"a digest in which white space matters", hashing(hasher{form: asWritten}), "digest_pairs/white space"},
		{"a digest that loses nested members", hashing(hasher{form: flat}), "digest_pairs/a nested change"},
		{"a digest whose texts run together", hashing(hasher{noLengths: true}), "digest_pairs/texts that run together to the same"},
	}, wrongContents()...)
}

func wrongContents() []wrong {
	content := func(change func(method string, fields []field) (string, []field)) impl {
		right := contracttest.Contract().ContentDigest
		return impl{ContentDigest: func(method string, fields []field) contract.Digest {
			return right(change(method, slices.Clone(fields)))
		}}
	}
	each := func(change func(f *field)) impl {
		return content(func(method string, fields []field) (string, []field) {
			for i := range fields {
				change(&fields[i])
			}
			return method, fields
		})
	}
	return []wrong{
		{"a content without its method", content(func(_ string, fields []field) (string, []field) { return "", fields }),
			"content_digests/another method, no fields"},
		{"a content without kinds", each(func(f *field) { f.Kind = "bytes" }), "content_digests/true is not that text"},
		{"a content without names", each(func(f *field) { f.Name = "" }), "content_digests/another name"},
		{"a content that ignores the generation", each(func(f *field) {
			if f.Name == "expected_generation" {
				f.Value = make([]byte, 8)
			}
		}), "content_digests/another generation"},
		{"a content that sorts by the value too", content(func(m string, fields []field) (string, []field) {
			slices.SortFunc(fields, func(a, b field) int {
				return cmp.Or(cmp.Compare(a.Name, b.Name), bytes.Compare(a.Value, b.Value))
			})
			return m, fields
		}), "content_digests/two fields of one name, in the other order"},
		{"a content whose names are compared in one case", each(func(f *field) { f.Name = strings.ToLower(f.Name) }),
			"content_digests/names are sorted by their bytes"},
	}
}
