package tree

import "testing"

// S1, A3: a comment, which names SHA1, J3 and, further on, R1.
func TestComment(t *testing.T) {
	// R3: a comment elsewhere.
	t.Log("R3 another string")
}

// R3: it stands apart from the test.

func TestApart(t *testing.T) {
	t.Run("S2a a subtest", func(*testing.T) {})
	t.Run("S2a: "+t.Name(), func(*testing.T) {})
}

func TestTable(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(*testing.T)
		want string
	}{
		"S2a a key":                {onNothing, "R3 is not a name"},
		"a key without a number":   {caseWithComment, ""},
		"J7 R1 a key with numbers": {caseOfNamed, ""},
	} {
		t.Run(name, c.run)
	}
	for _, c := range []struct{ name, want string }{
		{"S2a, R1", "R3 is not a name"},
		{name: "S2a a field", want: "R3 is not a name"},
	} {
		t.Run(c.name, func(t *testing.T) { t.Log(c.want) })
	}
	for _, name := range []string{"R3 an element is no name by itself"} {
		t.Log(name)
	}
}

func onNothing(*testing.T) {}

// R1: a case function whose key has no number.
func caseWithComment(*testing.T) {}

// R1: a case function whose key has numbers is not counted again.
func caseOfNamed(*testing.T) {}

// caseOfNobody mentions R3, and does not begin with it.
func caseOfNobody(*testing.T) {}

func TestRunners(t *testing.T) {
	one := func(mode, name string) { t.Run(mode+"/"+name, onNothing) }
	one("mode", "S2a through a function")
	two := func(name string) { one("mode", name) }
	two("S2a through two functions")
	t.Run("mode/S2a in the middle is no name", onNothing)
}

// R1, R2, R4: an example too.
func ExampleTree() {}

// S1, S2a, R1, R4, R5: too many.
func FuzzTooMany(*testing.F) {}

// R12, S2: there are none.
func BenchmarkUnknown(*testing.B) {}
