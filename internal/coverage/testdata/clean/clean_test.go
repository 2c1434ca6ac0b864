package clean

import "testing"

// S1: the one test.
func TestClean(t *testing.T) {}
