package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// The words of broker.AnswerOf that a confirm may be answered with.
const (
	firstRun   = "executed"
	replay     = "replayed"
	inProgress = "in_progress"
)

// report is what a process was answered for one key.
type report struct {
	Answers  map[string]int  `json:"answers"`  // how often each word
	Applied  []string        `json:"applied"`  // the items that some result said were applied
	Results  []string        `json:"results"`  // the digests of the results' outcomes: one when all tell the same
	Took     []time.Duration `json:"took"`     // each confirm
	Examples []example       `json:"examples"` // of answers that are not expected
}

// example is one unexpected answer and its error, without the key.
type example struct {
	Answer string `json:"answer"`
	Error  string `json:"error"`
}

// maxExamples bounds what is told of unexpected answers.
const maxExamples = 10

// reportOn counts what a process was answered for a key.
func reportOn(key contract.OperationConfirmation, answers []told) report {
	r := report{Answers: map[string]int{}}
	for _, t := range answers {
		word := t.word(len(key.Items))
		r.Answers[word]++
		r.Took = append(r.Took, t.took)
		if t.err == nil && t.result != nil {
			r.addResult(t.result.Outcomes)
		}
		if !expected(word) && len(r.Examples) < maxExamples {
			r.Examples = append(r.Examples, example{word, withoutKey(t.err, key.IdempotencyKey.String())})
		}
	}
	return r
}

func expected(word string) bool { return word == firstRun || word == replay || word == inProgress }

// word is the answer in one word; of a result that does not say that everything was applied, an unexpected one.
func (t told) word(items int) string {
	word := broker.AnswerOf(t.result, t.err)
	if t.err == nil && t.result != nil && t.result.Tally().Applied != items {
		word += ", not all applied"
	}
	return word
}

func (r *report) addResult(outcomes []contract.OperationItemOutcome) {
	sum := sha256.Sum256(contract.EncodeOutcomes(outcomes))
	r.Results = with(r.Results, hex.EncodeToString(sum[:]))
	for _, o := range outcomes {
		if o.State == contract.Applied {
			r.Applied = with(r.Applied, o.ItemID)
		}
	}
}

// with is the set all together with one.
func with(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}

// withoutKey is the error's text, in which the key is not to be read.
func withoutKey(err error, key string) string {
	return strings.ReplaceAll(withCauses(err), key, "KEY")
}

// withCauses is err's text together with the causes that it does not tell by itself: the storm's data is its own.
func withCauses(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	for err = errors.Unwrap(err); err != nil; err = errors.Unwrap(err) {
		if cause := err.Error(); !strings.Contains(text, cause) {
			text += ": " + cause
		}
	}
	return text
}
