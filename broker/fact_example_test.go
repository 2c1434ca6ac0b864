package broker_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// outbox is a broker whose outbox has these facts of agent-7 that nobody has been told.
func outbox(ctx context.Context, ids ...string) *broker.Broker[*memstore.Tx] {
	st := memstore.New(nil)
	b, _ := broker.New(st, nil)
	for _, id := range ids {
		tx, _ := st.BeginTx(ctx)
		_, _ = b.QueueFact(ctx, tx, recording(id))
		_ = tx.Commit()
	}
	return b
}

func recording(id string) broker.Fact {
	return broker.Fact{
		Tenant: "cell-3", Source: "agent-7", ID: id, Kind: "recording.uploaded", Content: []byte(`{"file":"` + id + `.wav"}`),
	}
}

// A fact is queued in the transaction of what it tells: it is told if that commits, and else it never was there.
func ExampleBroker_QueueFact() {
	ctx, st := context.Background(), memstore.New(nil)
	b, _ := broker.New(st, nil)
	for _, commit := range []bool{false, true} {
		tx, _ := st.BeginTx(ctx)
		// … the rows that say that the recording was uploaded …
		q, err := b.QueueFact(ctx, tx, recording("r-1"))
		if commit {
			_ = tx.Commit()
		} else {
			_ = tx.Rollback()
		}
		fmt.Println("ordinal", q.Ordinal, err)
		_, err = b.LookupFact(ctx, "cell-3", "agent-7", "r-1")
		fmt.Println("committed:", commit, "- there is none:", errors.Is(err, broker.ErrNoFact))
	}
	// Output:
	// ordinal 1 <nil>
	// committed: false - there is none: true
	// ordinal 1 <nil>
	// committed: true - there is none: false
}

// Facts are handed on in order. The first one that is not confirmed keeps back the ones after it, until the next call.
func ExampleBroker_PublishFacts() {
	ctx := context.Background()
	b := outbox(ctx, "r-1", "r-2", "r-3")
	up := false
	publish := func(_ context.Context, f broker.QueuedFact) error {
		if f.ID == "r-2" && !up {
			return errors.New("the receiver is down")
		}
		fmt.Println(f.Ordinal, f.Kind, string(f.Content))
		return nil
	}
	fmt.Println(b.PublishFacts(ctx, "cell-3", "agent-7", publish))
	up = true
	fmt.Println(b.PublishFacts(ctx, "cell-3", "agent-7", publish))
	// Output:
	// 1 recording.uploaded {"file":"r-1.wav"}
	// 1 the receiver is down
	// 2 recording.uploaded {"file":"r-2.wav"}
	// 3 recording.uploaded {"file":"r-3.wav"}
	// 2 <nil>
}

func ExampleBroker_LookupFact() {
	ctx := context.Background()
	b := outbox(ctx, "r-1", "r-2")
	_, _ = b.PublishFacts(ctx, "cell-3", "agent-7", func(_ context.Context, f broker.QueuedFact) error {
		if f.ID == "r-2" {
			return errors.New("the receiver is down")
		}
		return nil
	})
	for _, id := range []string{"r-1", "r-2"} {
		q, err := b.LookupFact(ctx, "cell-3", "agent-7", id)
		fmt.Println(q.ID, q.Ordinal, "published:", q.Published, err)
	}
	// Output:
	// r-1 1 published: true <nil>
	// r-2 2 published: false <nil>
}

// A service has one of these for each source, for as long as it runs.
func ExampleBroker_KeepPublishing() {
	ctx, stop := context.WithCancel(context.Background())
	b := outbox(ctx, "r-1", "r-2")
	err := b.KeepPublishing(ctx, broker.Publishing{
		Tenant: "cell-3", Source: "agent-7",
		Publish: func(_ context.Context, f broker.QueuedFact) error {
			fmt.Println(f.Ordinal, f.ID)
			if f.ID == "r-2" {
				stop() // the service ends
			}
			return nil
		},
	})
	fmt.Println(err)
	// Output:
	// 1 r-1
	// 2 r-2
	// context canceled
}
