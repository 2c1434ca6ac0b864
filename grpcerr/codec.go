package grpcerr

import (
	"google.golang.org/grpc/status"

	"github.com/confirmexec/confirmexec/contract"
)

// ToStatus is [Codec.ToStatus] of the zero Codec.
func ToStatus(err error) *status.Status { return Codec{}.ToStatus(err) }

// FromError is [Codec.FromError] of the zero Codec.
func FromError(err error) (f *contract.Failure, ok bool) { return Codec{}.FromError(err) }
