module sibling

go 1.26.0

require (
	github.com/confirmexec/confirmexec v0.0.0
	github.com/google/uuid v1.6.0
)

require github.com/go-json-experiment/json v1.27.2 // indirect

replace github.com/confirmexec/confirmexec => ../..
