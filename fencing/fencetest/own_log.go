package fencetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/confirmexec/confirmexec/store"
)

// read runs a read in a transaction of its own.
func (o *own[TTx]) read(ctx context.Context, read func(v store.Values) error) error {
	tx, err := o.begin(ctx)
	if err != nil {
		return err
	}
	err = read(o.st.Values(tx))
	if endErr := o.st.Rollback(ctx, tx); err == nil {
		err = endErr
	}
	return err
}

func (o *own[TTx]) snapshot(ctx context.Context) (text string, err error) {
	o.mu.Lock()
	names := slices.Sorted(maps.Keys(o.written))
	o.mu.Unlock()
	var b strings.Builder
	err = o.read(ctx, func(v store.Values) error {
		for _, name := range names {
			value, err := v.Load(ctx, o.id(name))
			if err != nil {
				return err
			}
			if value.Revision > 0 {
				fmt.Fprintf(&b, "%s %d %s\n", name, value.Revision, value.Content)
			}
		}
		return nil
	})
	return b.String(), err
}

func (o *own[TTx]) append(ctx context.Context, tx TTx, line string) error {
	v := o.st.Values(tx)
	last, err := v.Load(ctx, o.id(logName))
	for err == nil {
		p := store.SwapParams{ValueID: o.id(logName), Revision: last.Revision, Content: append(slices.Clip(last.Content), line+"\n"...)}
		if last, err = v.Swap(ctx, p); !errors.Is(err, store.ErrRevision) {
			return err
		}
		err = nil
	}
	return err
}

func (o *own[TTx]) lines(ctx context.Context) (lines []string, err error) {
	err = o.read(ctx, func(v store.Values) error {
		all, err := v.Load(ctx, o.id(logName))
		lines = strings.Split(strings.TrimSuffix(string(all.Content), "\n"), "\n")
		if len(all.Content) == 0 {
			lines = nil
		}
		return err
	})
	return lines, err
}
