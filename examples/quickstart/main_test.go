package main

func Example() {
	main()
	// Output:
	// the registry is called for item 1
	// executed: 1 of 1 item applied.
	// replayed: 1 of 1 item applied.
}
