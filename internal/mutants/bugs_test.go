package main

import "testing"

// Every bug finds its place in today's code; that each is caught takes minutes and is a step of the gate's.
func TestBugsAreInStepWithTheCode(t *testing.T) {
	for _, b := range bugs {
		if _, err := b.plant("../.."); err != nil {
			t.Errorf("%q: %v", b.name, err)
		}
	}
}
