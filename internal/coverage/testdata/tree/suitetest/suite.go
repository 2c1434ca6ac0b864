// Package suitetest is a suite for others.
package suitetest

import "testing"

type suite struct{ *testing.T }

func (s suite) run(name string, test func(*testing.T)) { s.Run(name, test) }

// TestR3 runs the suite; R3 is in no test's comment here.
func TestR3(t *testing.T) {
	suite{t}.run("J1 R4 through a method", first[int])
	suite{t}.run("without a number", second[int])
}

// R3: a case function whose name has a number.
func first[T any](*testing.T) {}

// R4: a case function whose name has none.
func second[T any](*testing.T) {}
