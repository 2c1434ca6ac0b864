package main

import (
	"context"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// mode is a way to confirm. The table of modes is all that knows them: a new one is a row here and a method of target.
type mode struct {
	name    string
	effects effects
	confirm func(t target, ctx context.Context, req broker.Request) (*contract.OperationResult, error)
}

// effects says where a mode's executor leaves its effects, and so where they are counted.
type effects int

const (
	inLedger effects = iota // a line in a file: outside the database
	inTable                 // a row in a table of the database, in the transaction that the executor is given
)

// target is a broker over some database, with the executors of the storm.
type target interface {
	execute(ctx context.Context, req broker.Request) (*contract.OperationResult, error)
	executePerItem(ctx context.Context, req broker.Request) (*contract.OperationResult, error)
	executeTx(ctx context.Context, req broker.Request) (*contract.OperationResult, error)
	executeAtomic(ctx context.Context, req broker.Request) (*contract.OperationResult, error)
}

var modes = []mode{
	{"execute", inLedger, target.execute},
	{"execute_per_item", inTable, target.executePerItem},
	{"execute_tx", inTable, target.executeTx},
	{"execute_atomic", inTable, target.executeAtomic},
}

// allModes is the name of all modes together.
const allModes = "all"

// modesNamed returns the modes that a name stands for, nil if there is no such name.
func modesNamed(name string) []mode {
	if name == allModes {
		return modes
	}
	for _, m := range modes {
		if m.name == name {
			return []mode{m}
		}
	}
	return nil
}

func modeNames() []string {
	names := make([]string, 0, len(modes)+1)
	for _, m := range modes {
		names = append(names, m.name)
	}
	return append(names, allModes)
}
