package grpcerr

import (
	"google.golang.org/protobuf/proto"

	"github.com/confirmexec/confirmexec/contract"
)

// Adapter lets a service that has a failure message of its own keep it: the message stands in the status details in the place of
// this package's Failure. The ErrorInfo and the trailer stay what they are, so a reader without the adapter loses nothing.
//
// What the service's message has no field for (an effect, a reason, the current revision) is read from those two copies; what it
// has must agree with them. Its Go type has to be linked into the reader.
type Adapter interface {
	// ToDetail returns the service's message for a failure; nil for this package's own.
	ToDetail(f *contract.Failure) proto.Message
	// FromDetail returns what a detail says; false for a message that is not the service's failure.
	FromDetail(m proto.Message) (*contract.Failure, bool)
}

// Codec turns errors into statuses and back. Its zero value is what the package's functions use; it may be copied and shared.
type Codec struct {
	Adapter Adapter // nil: this package's Failure
}
