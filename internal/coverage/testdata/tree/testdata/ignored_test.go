package ignored

// R3: go ignores it.
func TestIgnored() {}
