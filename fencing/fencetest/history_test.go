package fencetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// J1, J2, J3, J4, J9, J10, J11, J13: what the suite reads from a log, line by line; the last line breaks the rule.
func TestHistory(t *testing.T) {
	const begin = "office 1 a\nsession p 1 a\nwrite p 1 a\n"
	for name, c := range map[string]struct{ lines, rule string }{
		"a good one":          {begin + "token r 1 x\ntoken r 1 x\noffice 2 b\nsession p 2 b\nwrite p 2 b\ncount t 1 2\ncount t 2 3", ""},
		"an office's number":  {begin + "office 1 b", "J1"},
		"an epoch twice":      {begin + "office 2 b\noffice 3 a", "R111"},
		"a generation twice":  {begin + "session p 1 a", "J1 J2"},
		"a lower generation":  {begin + "session p 3 a\nsession p 2 a", "J1 J2"},
		"an old activation":   {begin + "office 2 b\nsession p 2 a", "J3"},
		"an old epoch":        {begin + "office 2 b\nwrite p 1 a", "J3 J4"},
		"an old session":      {begin + "session p 2 a\nwrite p 1 a", "J3 J4"},
		"a session's epoch":   {begin + "office 2 b\nwrite p 1 b", "J3 J4"},
		"a lower token":       {"token r 2 x\ntoken r 1 x", "J4"},
		"a token of another":  {"token r 2 x\ntoken r 2 y", "J2"},
		"a change from afar":  {"count t 1 2\ncount t 1 2", "J1"},
		"a change by two":     {"count t 1 3", "J1 J9"},
		"a change at the end": {"count t 1 2\nend t\ncount t 2 3", "J10"},
		"once and again":      {"once t x\nonce t y\nonce t x", "J9 J13"},
		"once and too late":   {"once t x\nend t\nonce t y", "J11 J13"},
		"no line":             {"x", "the harness's log"},
	} {
		t.Run(name, func(t *testing.T) {
			h, lines := newHistory(), strings.Split(c.lines, "\n")
			for i, line := range lines {
				rule := h.next(line)
				if i < len(lines)-1 || c.rule == "" {
					assert.Empty(t, rule, line)
				} else {
					assert.True(t, strings.HasPrefix(rule, c.rule), "%q is %q, not %q", line, rule, c.rule)
				}
			}
		})
	}
}
