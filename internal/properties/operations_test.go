package properties

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/confirmexec/confirmexec/contract"
)

// name is a text that the contract may or may not take for a name.
func name() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9:@._-]{1,20}`), rapid.StringN(0, 140, -1), bytesAsText(),
		rapid.SampledFrom([]string{"", " ", "a b", "matter:7/forums", "http://x", "Größe", "\u202e", "é"}))
}

// bytesAsText is any bytes, mostly not UTF-8.
func bytesAsText() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 40), func(b []byte) string { return string(b) })
}

func key() *rapid.Generator[uuid.UUID] {
	return rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) uuid.UUID { return uuid.UUID(b) })
}

// operation is a confirmation that is often, but not always, valid.
func operation() *rapid.Generator[contract.OperationConfirmation] {
	return rapid.Custom(func(t *rapid.T) contract.OperationConfirmation {
		good := rapid.StringMatching(`[a-z0-9:._-]{0,6}[a-z0-9]`)
		if rapid.IntRange(0, 3).Draw(t, "odd") == 0 {
			good = name()
		}
		c := contract.OperationConfirmation{
			IdempotencyKey: key().Draw(t, "key"), SurfaceKey: contract.SurfaceKey(good.Draw(t, "surface")), ContractVersion: good.Draw(t, "version"),
		}
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			c.Items = append(c.Items, contract.Item{
				ID: good.Draw(t, "id"), Op: good.Draw(t, "op"), Params: json.RawMessage(spell(t, object(2).Draw(t, "params"))),
			})
		}
		return c
	})
}

// S5: stale is exactly: an axis differs, or the version is empty; the drift names the axes that do.
func TestStalenessAgainstAnOracle(t *testing.T) {
	axis := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "b"}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		surface, version, nowSurface, nowVersion := axis.Draw(t, "s"), axis.Draw(t, "v"), axis.Draw(t, "now s"), axis.Draw(t, "now v")
		c := contract.OperationConfirmation{SurfaceKey: contract.SurfaceKey(surface), ContractVersion: version}
		now := contract.CurrentSurfaceState{SurfaceKey: contract.SurfaceKey(nowSurface), ContractVersion: nowVersion}
		movedSurface, movedVersion := surface != nowSurface, version != nowVersion || version == ""
		require.Equal(t, movedSurface || movedVersion, contract.IsStale(c, now))
		var want contract.Drift
		if movedSurface {
			want = append(want, contract.AxisDrift{Axis: "surface_key", Proposed: surface, Current: nowSurface})
		}
		if movedVersion {
			want = append(want, contract.AxisDrift{Axis: "contract_version", Proposed: version, Current: nowVersion})
		}
		require.Equal(t, want, contract.DriftOf(c, now))
	})
}

// S1, S20: whatever is written reads back with the same meaning; whatever is not valid is not written.
func TestOperationsRoundTrip(t *testing.T) {
	written := 0
	rapid.Check(t, func(t *rapid.T) {
		c := operation().Draw(t, "confirmation")
		data, err := c.MarshalJSON()
		require.Equal(t, err == nil, c.Validate(contract.Limits{}) == nil, "what is valid is written, and nothing else")
		if err != nil {
			require.ErrorIs(t, err, contract.ErrInvalid)
			return
		}
		written++
		back, err := contract.DecodeConfirmation(data, contract.Limits{})
		require.NoError(t, err)
		sameOperation(t, c, back)
		again, err := back.MarshalJSON()
		require.NoError(t, err)
		require.Equal(t, string(data), string(again), "and is written so again")

		data, err = c.Proposal().MarshalJSON()
		require.NoError(t, err)
		p, err := contract.DecodeProposal(data, contract.Limits{})
		require.NoError(t, err)
		sameOperation(t, c, p.Confirmation(c.IdempotencyKey))
		_, err = contract.DecodeConfirmation(data, contract.Limits{})
		require.ErrorIs(t, err, contract.ErrInvalid, "a proposal is no confirmation")
	})
	require.Positive(t, written, "the generator makes valid ones")
}

func sameOperation(t *rapid.T, want, got contract.OperationConfirmation) {
	require.Equal(t, want.IdempotencyKey, got.IdempotencyKey)
	require.Equal(t, want.SurfaceKey, got.SurfaceKey)
	require.Equal(t, want.ContractVersion, got.ContractVersion)
	require.Len(t, got.Items, len(want.Items))
	for i, it := range want.Items {
		require.Equal(t, it.ID, got.Items[i].ID)
		require.Equal(t, it.Op, got.Items[i].Op)
	}
	first, err := contract.DigestOf(want.Proposal())
	require.NoError(t, err)
	second, err := contract.DigestOf(got.Proposal())
	require.NoError(t, err)
	require.Equal(t, first, second)
}

// S20: two operations that differ in a field, in an item or in the order of items have different digests.
func TestDigestCoversTheOperation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := operation().Draw(t, "operation").Proposal()
		p.Items = append(p.Items, contract.Item{ID: "last", Op: "op", Params: json.RawMessage(`{}`)})
		before, err := contract.DigestOf(p)
		require.NoError(t, err)
		i := rapid.IntRange(0, len(p.Items)-1).Draw(t, "item")
		more := rapid.StringN(1, 5, -1).Draw(t, "more")
		q := p
		q.Items = append([]contract.Item(nil), p.Items...)
		switch rapid.IntRange(0, 6).Draw(t, "change") {
		case 0:
			q.SurfaceKey += contract.SurfaceKey(more)
		case 1:
			q.ContractVersion += more
		case 2:
			q.Items[i].ID += more
		case 3:
			q.Items[i].Op += more
		case 4:
			q.Items = q.Items[:len(q.Items)-1]
		case 5: // a letter goes over the border between two fields
			q.SurfaceKey, q.ContractVersion = q.SurfaceKey+contract.SurfaceKey(more), p.ContractVersion
			p.ContractVersion = more + p.ContractVersion
			before, err = contract.DigestOf(p)
			require.NoError(t, err)
		case 6:
			last := len(q.Items) - 1
			if i == last || q.Items[i].ID == q.Items[last].ID {
				t.Skip("nothing to swap")
			}
			q.Items[i], q.Items[last] = q.Items[last], q.Items[i]
		}
		after, err := contract.DigestOf(q)
		require.NoError(t, err)
		require.NotEqual(t, before, after)
	})
}

// S1, S6: bytes that were a document, however they are damaged, never make a decoder panic, and are refused as invalid or
// read as something that is valid.
func TestDamagedDocuments(t *testing.T) {
	decoders := map[string]func([]byte) (again func() ([]byte, error), err error){
		"confirmation": func(b []byte) (func() ([]byte, error), error) {
			c, err := contract.DecodeConfirmation(b, contract.Limits{})
			return c.MarshalJSON, err
		},
		"proposal": func(b []byte) (func() ([]byte, error), error) {
			p, err := contract.DecodeProposal(b, contract.Limits{})
			return p.MarshalJSON, err
		},
		"result": func(b []byte) (func() ([]byte, error), error) {
			var r contract.OperationResult
			err := r.UnmarshalJSON(b)
			return r.MarshalJSON, err
		},
		"outcomes": func(b []byte) (func() ([]byte, error), error) {
			o, err := contract.DecodeOutcomes(b)
			return func() ([]byte, error) { return contract.EncodeOutcomes(o), nil }, err
		},
	}
	rapid.Check(t, func(t *rapid.T) {
		data := document().Draw(t, "document")
		for range 10 {
			data = damage(t, data)
			for kind, decode := range decoders {
				again, err := decode(append([]byte(nil), data...))
				if err != nil {
					require.ErrorIs(t, err, contract.ErrInvalid, "%s: %q", kind, data)
					continue
				}
				out, err := again()
				require.NoError(t, err, "%s: %q", kind, data)
				_, err = decode(out)
				require.NoError(t, err, "%s: %q", kind, data)
			}
		}
	})
}

// document is a valid document of one of the four kinds.
func document() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		c := operation().Filter(func(c contract.OperationConfirmation) bool { return c.Validate(contract.Limits{}) == nil }).Draw(t, "operation")
		var data []byte
		var err error
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			data, err = c.MarshalJSON()
		case 1:
			data, err = c.Proposal().MarshalJSON()
		case 2:
			data, err = result().Draw(t, "result").MarshalJSON()
		default:
			data = contract.EncodeOutcomes(result().Draw(t, "result").Outcomes)
		}
		require.NoError(t, err)
		return data
	})
}

// damage makes one change to bytes: it removes, repeats, overwrites or puts in a piece.
func damage(t *rapid.T, data []byte) []byte {
	piece := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 1, 4), rapid.SampledFrom([][]byte{
		[]byte(`"`), []byte(`\u0000`), []byte(`\ud800`), []byte("null"), []byte("{}"), []byte(`,"x":1`), []byte("1e400"), []byte("-0"),
		[]byte("[[[[[[[["), []byte("\xff"), []byte(`"state":"applied"`), []byte("}"), []byte(","),
	})).Draw(t, "piece")
	from := rapid.IntRange(0, len(data)).Draw(t, "from")
	to := min(len(data), from+rapid.IntRange(0, 12).Draw(t, "length"))
	head, middle, tail := data[:from], data[from:to], data[to:]
	var parts [][]byte
	switch rapid.IntRange(0, 3).Draw(t, "damage") {
	case 0:
		parts = [][]byte{head, tail}
	case 1:
		parts = [][]byte{head, middle, middle, tail}
	case 2:
		parts = [][]byte{head, piece, tail}
	default:
		parts = [][]byte{head, piece, middle, tail}
	}
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
