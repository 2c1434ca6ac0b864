// Package tree is read by the scanner's tests.
package tree

// R3: a comment in the product.
func TestProduct() string { return "R3" }
