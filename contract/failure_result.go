package contract

// Result is the result code of the request that a failure answers (A2): CONFLICT where it disagrees with the operation that stands
// (R27, R62), REFUSED where the request itself is wrong (R5), STOPPED where only a new authorization goes on (R7), NOT_APPLIED where it
// is known otherwise that nothing happened, and UNKNOWN where it is not known. It is total: nil and a code that is none of the ten
// tell nothing.
//
// It is about that one delivery. The operation of a key that was used again keeps the receipt that it has, one that [Decide] allows
// to be sent again is not over, and an earlier delivery whose outcome is unknown stays so.
//
// It follows from Code, Reason and Effect, which every transport carries: a reader computes it, and no message has a field for it.
func (f *Failure) Result() ResultCode {
	if !f.KnownNoEffect() {
		return ResultUnknown
	}
	if _, known := f.Code.Rule(); !known {
		return ResultUnknown
	}
	switch f.Code { //nolint:exhaustive // of the others nothing more is to be said
	case InvalidArgument:
		return ResultRefused
	case PermissionDenied:
		return ResultStopped
	case Aborted:
		if f.Reason == ReasonKeyReused || f.Reason == ReasonSecondOperation {
			return ResultConflict
		}
	}
	return ResultNotApplied
}
