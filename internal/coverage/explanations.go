package main

import (
	"fmt"
	"os"
	"strings"
)

// explanation is why a requirement has no test, and what stands instead.
type explanation struct {
	why     string
	instead string
	line    int
}

// readExplanations reads the table of docs/coverage.md: number | why there is no test | what stands instead.
func readExplanations(file string) (map[string]explanation, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	explained := map[string]explanation{}
	for i, line := range strings.Split(string(text), "\n") {
		cells := cellsOf(line)
		if len(cells) == 0 || !isNumber(cells[0]) {
			continue
		}
		_, twice := explained[cells[0]]
		if len(cells) != 3 || cells[1] == "" || cells[2] == "" || twice {
			return nil, fmt.Errorf("%s:%d: not a new number, why, and what stands instead: %s", file, i+1, line)
		}
		explained[cells[0]] = explanation{cells[1], cells[2], i + 1}
	}
	return explained, nil
}

// cellsOf are the cells of a table's row; none if it is no row.
func cellsOf(line string) []string {
	row, found := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !found {
		return nil
	}
	cells := strings.Split(strings.TrimSuffix(row, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}
