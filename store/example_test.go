package store_test

import (
	"fmt"

	"github.com/confirmexec/confirmexec/store"
)

// A guard that names no revision is an error, never "any".
func ExampleValidateGuards() {
	fmt.Println(store.ValidateGuards([]store.Guard{{Name: "office/dispatcher", Revision: 3}}))
	fmt.Println(store.ValidateGuards([]store.Guard{{Name: "office/dispatcher"}}))
	// Output:
	// <nil>
	// INVALID_ARGUMENT: /guards/0/revision: must be at least 1: a value that does not exist guards nothing
}
