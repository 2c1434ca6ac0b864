package contract

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkText refuses everything but one line of visible text: empty, longer than limit bytes, not UTF-8, with control or
// format characters, or with white space at an end. The error is an *InvalidError at path.
func checkText(path, s string, limit int) error {
	switch {
	case s == "":
		return invalid(path, "must not be empty")
	case len(s) > limit:
		return invalid(path, fmt.Sprintf("is %d bytes long, the limit is %d", len(s), limit))
	case !utf8.ValidString(s):
		return invalid(path, "must be valid UTF-8")
	case strings.ContainsFunc(s, hidden):
		return invalid(path, "must not hold control or format characters")
	case strings.TrimSpace(s) != s:
		return invalid(path, "must not begin or end with white space")
	}
	return nil
}

// hidden says whether r does not show as itself: control and format characters (bidirectional overrides among them),
// line and paragraph separators.
func hidden(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// cutText makes any text storable in at most limit bytes (at least 3): what is not UTF-8 or is hidden is replaced, and
// a longer text is cut between two characters and ends in "…". It is idempotent.
func cutText(s string, limit int) string {
	const mark = "…"
	s = strings.Map(visible, s) // also turns each byte that is not UTF-8 into U+FFFD
	if len(s) <= limit {
		return s
	}
	end := limit - len(mark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// visible keeps the two joiners, which many scripts need inside words.
func visible(r rune) rune {
	const nonJoiner, joiner = '\u200c', '\u200d'
	switch {
	case !hidden(r) || r == nonJoiner || r == joiner:
		return r
	case unicode.IsSpace(r):
		return ' '
	}
	return unicode.ReplacementChar
}
