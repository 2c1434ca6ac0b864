package fencing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/confirmexec/confirmexec/contract"
)

// R64, A10: a deadline is exclusive, without any skew, and what comes too late is known to have done nothing.
func TestBefore(t *testing.T) {
	deadline := time.UnixMilli(1_000_000)
	for name, c := range map[string]struct {
		now      time.Time
		deadline time.Time
		want     error
	}{
		"long before":            {deadline.Add(-time.Hour), deadline, nil},
		"a nanosecond before":    {deadline.Add(-1), deadline, nil},
		"at the deadline":        {deadline, deadline, ErrExpired},
		"a nanosecond after":     {deadline.Add(1), deadline, ErrExpired},
		"in another zone":        {deadline.In(time.FixedZone("", 3600)), deadline, ErrExpired},
		"no deadline":            {deadline, time.Time{}, ErrExpired},
		"neither":                {time.Time{}, time.Time{}, ErrExpired},
		"a deadline of the past": {deadline, time.UnixMilli(0), ErrExpired},
	} {
		assert.Equal(t, c.want == nil, Before(c.now, c.deadline) == nil, name)
		if c.want != nil {
			assert.ErrorIs(t, Before(c.now, c.deadline), c.want, name)
		}
	}
	assert.Equal(t, contract.PermissionDenied, ErrExpired.Code)
	assert.Equal(t, contract.EffectNone, ErrExpired.Effect)
}

// R65: right before the effect it is asked again, of a later clock: what was in time then may be over now.
func TestBeforeIsAskedAgain(t *testing.T) {
	deadline, over := time.UnixMilli(1_000_000), false
	for now := deadline.Add(-5); now.Before(deadline.Add(5)); now = now.Add(1) {
		expired := Before(now, deadline) != nil
		assert.False(t, over && !expired, "it is never in time again")
		over = over || expired
	}
	assert.True(t, over)
}
