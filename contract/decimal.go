package contract

import (
	"strconv"
	"strings"
)

// decimal is the exact value of a number literal: ±0.digits × 10^exponent. Equal values are equal structs.
type decimal struct {
	negative bool
	digits   string // without zeros at either end; empty for zero
	exponent int
}

// isExact says whether a JSON number literal is the shortest decimal of a float64, -0 aside. It takes linear time and
// never expands an exponent.
func isExact(literal string) bool {
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil {
		return false
	}
	d := parseDecimal(literal)
	if d.digits == "" {
		return !d.negative
	}
	return d == parseDecimal(strconv.FormatFloat(f, 'e', -1, 64))
}

func parseDecimal(literal string) decimal {
	literal, negative := strings.CutPrefix(literal, "-")
	mantissa, exponent := literal, 0
	if i := strings.IndexAny(literal, "eE"); i >= 0 {
		mantissa = literal[:i]
		exponent, _ = strconv.Atoi(literal[i+1:]) // out of range: so far out that no digits make up for it
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	digits := strings.TrimLeft(all, "0")
	exponent += len(whole) - (len(all) - len(digits))
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		exponent = 0
	}
	return decimal{negative, digits, exponent}
}
