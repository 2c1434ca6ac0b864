package fencing

import (
	"context"

	"github.com/confirmexec/confirmexec/contract"
)

// Mark is the highest fencing token that a resource has seen, and who showed it. Its zero value has seen none.
type Mark struct {
	Token  int64  `json:"token"`
	Holder string `json:"holder"`
}

// Show is the pure decision about a token that is shown to the resource: a lower one than the highest is stale, the same one is for
// the same holder only, and a higher one becomes the mark (R56, A28).
func (m Mark) Show(token int64, holder string) (Mark, error) {
	if err := contract.ValidateText("/holder", holder, contract.MaxMetaText); err != nil {
		return m, err
	}
	switch {
	case token <= 0:
		return m, &contract.InvalidError{Path: "/fencing_token", Problem: problemToken}
	case token < m.Token || token == m.Token && holder != m.Holder:
		return m, standing(ErrTokenStale, m.Token)
	}
	return Mark{token, holder}, nil
}

func (m Mark) sound() bool { return m.Token > 0 && m.Holder != "" }

const problemToken = "must be at least 1"

// ShowToken shows a fencing token to a resource, whose mark is durable with the transaction's commit. The error is ErrTokenStale with
// the highest token seen.
func (f Fence) ShowToken(ctx context.Context, resource string, token int64, holder string) (Mark, error) {
	if err := f.mayWrite("/resource", resource, contract.MaxMetaText, epochIs|sessionIs); err != nil {
		return Mark{}, err
	}
	_, m, err := change(ctx, f, "token/"+resource, func(m Mark) (Mark, error) { return m.Show(token, holder) })
	return m, err
}
