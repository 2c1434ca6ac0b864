package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

// A claim rides in the caller's transaction, together with what the caller writes.
func ExampleStore_In() {
	if err := claimInTransaction(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// won: true
	// won: false
}

func claimInTransaction(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "confirmexec")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := sqlitestore.Open(ctx, filepath.Join(dir, "claims.db"), nil)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()

	key := store.ID{Tenant: "firm 1", Key: uuid.New()}
	for range 2 {
		tx, err := s.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		p := store.ClaimParams{
			ID: key, Attempt: uuid.New(), Mode: store.ModeAtomic, Lease: time.Minute, AcceptUnminted: true,
		}
		standing, err := s.In(tx).Claim(ctx, p)
		if err != nil {
			_ = tx.Rollback()
			return err
		}
		fmt.Println("won:", standing.Claim.Attempt == p.Attempt)
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}
