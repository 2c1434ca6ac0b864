package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// writeText writes a line per requirement, what is wrong, and the sums.
func (r *report) writeText(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, known := range r.Rows {
		fmt.Fprintf(out, "%-5s %3d  %s\n", known.Number, known.Tests, where(known))
	}
	for _, p := range r.Problems {
		fmt.Fprintln(out, p)
	}
	fmt.Fprintf(out, "%d numbers, %d tested, %d explained, %d open\n", r.Numbers, r.Tested, r.Explained, r.Open)
	return out.Flush()
}

func where(known row) string {
	switch {
	case known.open():
		return "OPEN: " + known.Summary
	case known.Tests == 0:
		return "explained: " + known.Explained
	}
	return known.First
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
