package main

import (
	"regexp"
	"slices"
)

var (
	anyNumber = regexp.MustCompile(`\b[SR][0-9]+[a-z]?\b`)
	oneNumber = regexp.MustCompile(`^[SR][0-9]+[a-z]?$`)
	// heading is what a name begins with: numbers, also those of lists other than the requirements, such as J12.
	heading = regexp.MustCompile(`^(?:[A-Z][0-9]+[a-z]?(?:[ ,:/]+|$))+`)
)

func isNumber(text string) bool { return oneNumber.MatchString(text) }

// numbersIn are the requirements that a text names anywhere, each once.
func numbersIn(text string) []string {
	var numbers []string
	for _, n := range anyNumber.FindAllString(text, -1) {
		if !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// numbersBefore are the requirements that a text names before it begins.
func numbersBefore(text string) []string { return numbersIn(heading.FindString(text)) }
