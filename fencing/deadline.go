package fencing

import "time"

// Before refuses what is not before its exclusive deadline: at the deadline it is over, and a zero deadline is over too. The clock
// is the caller's, with no allowance for skew; check again right before the effect (R64, R65). The error is ErrExpired.
func Before(now, deadline time.Time) error {
	if now.Before(deadline) {
		return nil
	}
	return ErrExpired
}
