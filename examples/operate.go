package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
)

// unresolved prints a page of the keys that need somebody.
func unresolved(ctx context.Context, o *options, s streams) error {
	p := broker.Page{Tenant: o.tenant, Limit: o.limit}
	if o.after != "" {
		var err error
		if p.After, err = parseKey(o.after); err != nil {
			return err
		}
	}
	return o.withBroker(ctx, s.err, func(b confirmer) error {
		page, err := b.ListUnresolved(ctx, p)
		if err != nil {
			return err
		}
		return tellPage(s, page, o.limit)
	})
}

// tellPage prints the page as a table, and says how to go on.
func tellPage(s streams, page []broker.UnresolvedKey, limit int) error {
	if len(page) == 0 {
		fmt.Fprintln(s.err, "No key needs anybody.")
		return nil
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "KEY\tAGE\tWHY")
	for _, k := range page {
		fmt.Fprintf(table, "%s\t%s\t%s\n", k.Key, k.Age.Round(time.Second), why(k))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(page) == limit {
		fmt.Fprintf(s.err, "There may be more: go run ./examples unresolved -after %s\n", page[limit-1].Key)
	}
	return nil
}

// why says why the key needs somebody.
func why(k broker.UnresolvedKey) string {
	reasons := map[bool]string{false: "never completed, and its lease is over", true: "completed, but an item is unclear"}[k.Completed]
	switch {
	case k.Contested && k.Completed:
		reasons = "contested: a late attempt said otherwise, see lookup"
	case k.Contested:
		reasons += "; contested"
	}
	return reasons
}

// resolve settles a key by reading the registry's file, and prints the result.
func resolve(ctx context.Context, o *options, s streams) error {
	key, err := o.key()
	if err != nil {
		return err
	}
	r := broker.Resolution{Tenant: o.tenant, Key: key, By: cmp.Or(o.by, osUser())}
	if r.By == "" {
		return usageError("this system does not say who you are: give -by")
	}
	return o.withBroker(ctx, s.err, func(b confirmer) error {
		res, err := b.Resolve(ctx, r, o.reader())
		if err != nil {
			return err
		}
		how := map[bool]string{false: "Resolved by " + r.By, true: "It was settled before"}[res.Replayed]
		fmt.Fprintf(s.err, "%s. %s\n", how, res.Summary())
		return printResult(s, res)
	})
}

func osUser() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return u.Username
}

// reader reads from the registry's file what became of an item. The file refuses no late line, so that an item which is not in it
// is absent only for now.
func (o *options) reader() broker.StatusReader {
	return func(_ context.Context, it broker.Item) (broker.Verdict, error) {
		path := o.ledgerByHand()
		if _, err := os.Stat(path); err != nil { // which is not the same as a file without the item
			return broker.Verdict{}, fmt.Errorf("the registry could not be read: %w", err)
		}
		entries, err := readLedger(path)
		if err != nil {
			return broker.Verdict{}, err
		}
		return find(entries, it.IdempotencyKey, path), nil
	}
}

func find(entries []entry, key uuid.UUID, path string) broker.Verdict {
	for n, e := range entries {
		if e.ItemKey == key && e.Answer == "added" {
			return broker.FoundApplied("entry/"+key.String(), fmt.Sprintf("line %d of %s has the item's key", n+1, path))
		}
	}
	return broker.FoundAbsent(fmt.Sprintf("%s has no line with the item's key (lines read: %d)", path, len(entries)))
}
