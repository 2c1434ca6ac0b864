package fencing

import "strings"

// kinds is a set of kinds of checks.
type kinds uint8

const (
	epochIs kinds = 1 << iota
	sessionIs
	admissionOpen
)

// String names the functions that make such checks, as they are told to callers.
func (k kinds) String() string {
	var names []string
	for i, name := range []string{"EpochIs", "SessionIs", "AdmissionOpen"} {
		if k&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// missing is ErrUnfenced of a write that needs one of the set.
func (k kinds) missing() error {
	told := *ErrUnfenced
	told.Message = "the fence lacks a check; nothing was done; hold " + k.String() + " in this transaction, and write through that"
	return &told
}
