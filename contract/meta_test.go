package contract

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// R17: a version is compared as it is, and only with those that are supported; none is no version.
func TestCheckVersion(t *testing.T) {
	for _, tc := range []struct {
		version   string
		supported []string
		ok        bool
	}{
		{"1", []string{"1"}, true},
		{"2", []string{"1", "2"}, true},
		{"3", []string{"1", "2"}, false},
		{"", []string{"1"}, false},
		{"", []string{""}, false},
		{"", nil, false},
		{"1", nil, false},
		{"1.0", []string{"1"}, false},
		{" 1", []string{"1"}, false},
		{"agent.v1", []string{"v1"}, false},
	} {
		err := RequestMeta{ProtocolVersion: tc.version}.CheckVersion(tc.supported...)
		if tc.ok {
			assert.NoError(t, err, tc.version)
			continue
		}
		assert.ErrorIs(t, err, ErrUnsupportedVersion)
		code, _ := CodeOf(err)
		assert.Equal(t, FailedPrecondition, code)
	}
	assert.True(t, ErrUnsupportedVersion.KnownNoEffect())
}

// R30: a mutation names its operation and its key, each in one line of visible text.
func TestValidateMutation(t *testing.T) {
	good := RequestMeta{OperationID: "op-1", IdempotencyKey: "key-1"}
	assert.NoError(t, good.ValidateMutation(originating))
	assert.NoError(t, RequestMeta{OperationID: strings.Repeat("x", MaxMetaText), IdempotencyKey: "k"}.ValidateMutation(resend))
	for _, bad := range append(badTexts, strings.Repeat("x", MaxMetaText+1)) {
		for _, m := range []Method{originating, resend, {}} {
			requireInvalid(t, RequestMeta{OperationID: bad, IdempotencyKey: "k"}.ValidateMutation(m), "/meta/operation_id")
			err := RequestMeta{OperationID: "o", IdempotencyKey: bad}.ValidateMutation(m)
			requireInvalid(t, err, "/meta/idempotency_key")
			if len(bad) > 3 {
				assert.NotContains(t, err.Error(), bad, "no key is shown")
			}
		}
	}
}

// R85: a redelivered method is processed on every delivery: no lack of an id may hold up a stop.
func TestRedeliveredNeedsNoKey(t *testing.T) {
	assert.NoError(t, RequestMeta{}.ValidateMutation(redelivered))
	assert.NoError(t, RequestMeta{IdempotencyKey: "\x00"}.ValidateMutation(redelivered), "it is ignored")
}

// R115, R30: what a request says of its sender makes no difference to what it names.
func TestMetaClaimsAreNoNames(t *testing.T) {
	m := RequestMeta{AgentID: "\x00", CellID: "\xff", BootID: "", SessionGeneration: -1, DispatcherEpoch: "e"}
	requireInvalid(t, m.ValidateMutation(originating), "/meta/operation_id")
	m.OperationID, m.IdempotencyKey = "o", "k"
	assert.NoError(t, m.ValidateMutation(originating))
}
