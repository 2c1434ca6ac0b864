package fencetest_test

import (
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/fencing/fencetest"
	"github.com/confirmexec/confirmexec/store/memstore"
)

const tenant = "firm-1"

// Package fencing keeps the rules, on a store that is only in memory; and so what TestTheSuiteFindsFaults shows is the faults' doing.
func TestFencing(t *testing.T) {
	fencetest.Run(t, func(*testing.T) harness { return memory() })
}

func memory() harness {
	return fencetest.Of(memstore.New(&memstore.Config{LockTimeout: 2 * time.Second}), tenant)
}
