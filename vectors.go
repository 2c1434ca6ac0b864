package confirmexec

import "embed"

// Vectors is the folder testdata: golden vectors and JSON Schemas of the contract, for services in any language. It is embedded
// so that `go mod vendor` keeps it. testdata/README.md says how to read it; contract/contracttest runs the vectors on a Go
// implementation, examples/js on one in JavaScript.
//
//go:embed testdata
var Vectors embed.FS
