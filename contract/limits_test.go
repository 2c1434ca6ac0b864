package contract

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func testProposal(items int) OperationProposal {
	p := OperationProposal{SurfaceKey: "matter:123/forums", ContractVersion: "v7"}
	for i := range items {
		p.Items = append(p.Items, Item{fmt.Sprint("item-", i), "add", json.RawMessage(`{"n":` + strconv.Itoa(i) + `}`)})
	}
	return p
}

// S4: every limit holds exactly at its value, and can be lowered.
func TestLimitsHold(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	params := func(n int) json.RawMessage { return json.RawMessage(`{"x":"` + x(n-8) + `"}`) }
	nested := func(n int) json.RawMessage {
		return json.RawMessage(`{"x":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
	}
	for name, tc := range map[string]struct {
		limit int
		lower Limits
		path  string
		set   func(p *OperationProposal, n int)
	}{
		"items":   {1000, Limits{Items: 4}, "/items", func(p *OperationProposal, n int) { *p = testProposal(n) }},
		"item id": {128, Limits{ItemID: 8}, "/items/0/item_id", func(p *OperationProposal, n int) { p.Items[0].ID = x(n) }},
		"op":      {128, Limits{Op: 8}, "/items/0/op", func(p *OperationProposal, n int) { p.Items[0].Op = x(n) }},
		"contract": {128, Limits{ContractVersion: 8}, "/contract_version",
			func(p *OperationProposal, n int) { p.ContractVersion = x(n) }},
		"surface": {512, Limits{SurfaceKey: 20}, "/surface_key",
			func(p *OperationProposal, n int) { p.SurfaceKey = SurfaceKey(x(n)) }},
		"params": {64 << 10, Limits{Params: 20}, "/items/0/params",
			func(p *OperationProposal, n int) { p.Items[0].Params = params(n) }},
		"depth": {32, Limits{Depth: 2}, "/items/0/params/x" + strings.Repeat("/0", 31),
			func(p *OperationProposal, n int) { p.Items[0].Params = nested(n) }},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(n int, l Limits) error {
				p := testProposal(1)
				tc.set(&p, n)
				return p.Validate(l)
			}
			for _, f := range tc.lower.fields() {
				if *f.value != 0 {
					assert.NoError(t, check(*f.value, tc.lower))
					assert.ErrorIs(t, check(*f.value+1, tc.lower), ErrInvalid)
					*f.value = tc.limit * 2
				}
			}
			assert.NoError(t, check(tc.limit, Limits{}))
			assert.ErrorIs(t, check(tc.limit+1, tc.lower), ErrInvalid, "limits cannot be raised")
			requireInvalid(t, check(tc.limit+1, Limits{}), tc.path)
		})
	}
}

// S4: a body is measured before it is read, and a proposal whose confirmation would be too large is not valid.
func TestBodyLimit(t *testing.T) {
	p := testProposal(1)
	data, err := p.Confirmation(uuid.MustParse(testKey)).MarshalJSON()
	require.NoError(t, err)
	fits, tight := Limits{Body: len(data)}, Limits{Body: len(data) - 1}
	assert.NoError(t, p.Validate(fits))
	requireInvalid(t, p.Validate(tight), "")
	_, err = DecodeConfirmation(data, fits)
	assert.NoError(t, err)
	_, err = DecodeConfirmation(data, tight)
	requireInvalid(t, err, "")
	_, err = DecodeConfirmation([]byte(strings.Repeat("[", 1<<20+1)), Limits{})
	assert.Contains(t, requireInvalid(t, err, "").Problem, "1048577 bytes")

	p = testProposal(17)
	for i := range p.Items {
		p.Items[i].Params = json.RawMessage(`{"x":"` + strings.Repeat("x", 64<<10-8) + `"}`)
	}
	requireInvalid(t, p.Validate(Limits{}), "")
	p.Items = p.Items[:15]
	assert.NoError(t, p.Validate(Limits{}))
}

// S4: item ids are unique, texts are one line of visible text.
func TestValidateItems(t *testing.T) {
	p := testProposal(3)
	p.Items[2].ID = p.Items[0].ID
	requireInvalid(t, p.Validate(Limits{}), "/items/2/item_id")
	for _, bad := range badTexts {
		p = testProposal(2)
		p.Items[1].ID = bad
		requireInvalid(t, p.Validate(Limits{}), "/items/1/item_id")
		p = testProposal(2)
		p.Items[1].Op = bad
		requireInvalid(t, p.Validate(Limits{}), "/items/1/op")
		p = testProposal(2)
		p.ContractVersion = bad
		requireInvalid(t, p.Validate(Limits{}), "/contract_version")
		p.SurfaceKey = SurfaceKey(bad)
		requireInvalid(t, p.Validate(Limits{}), "/surface_key")
	}
	p = testProposal(2)
	p.Items[0].Params = nil
	requireInvalid(t, p.Validate(Limits{}), "/items/0/params")
	p.Items = nil
	requireInvalid(t, p.Validate(Limits{}), "/items")
}

// S4: limits are configurable downward only.
func TestLimitsValidate(t *testing.T) {
	assert.NoError(t, Limits{}.Validate())
	assert.NoError(t, DefaultLimits().Validate())
	assert.Equal(t, Limits{1 << 20, 1000, 128, 128, 64 << 10, 32, 512, 128}, DefaultLimits())
	for i, name := range strings.Fields("Body Items ItemID Op Params Depth SurfaceKey ContractVersion") {
		var l Limits
		for _, bad := range []int{-1, l.fields()[i].ceiling + 1} {
			*l.fields()[i].value = bad
			requireInvalid(t, l.Validate(), "/limits/"+name)
		}
		*l.fields()[i].value = -1
		c, err := testProposal(1).Confirmation(uuid.MustParse(testKey)).MarshalJSON()
		require.NoError(t, err)
		_, err = DecodeConfirmation(c, l)
		assert.ErrorIs(t, err, ErrInvalid, "a negative limit refuses everything")
	}
}
