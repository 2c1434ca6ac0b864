package main

import (
	"fmt"
	"os"
	"strings"
)

// requirement is one of the numbered requirements.
type requirement struct {
	number  string
	summary string
}

// readRequirements reads lines of a number and its summary; those that begin with # are comments.
func readRequirements(file string) ([]requirement, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reqs []requirement
	seen := map[string]bool{}
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		number, summary, _ := strings.Cut(line, " ")
		if !isNumber(number) || summary == "" || seen[number] {
			return nil, fmt.Errorf("%s:%d: not a new number and its summary: %s", file, i+1, line)
		}
		seen[number] = true
		reqs = append(reqs, requirement{number, summary})
	}
	return reqs, nil
}
