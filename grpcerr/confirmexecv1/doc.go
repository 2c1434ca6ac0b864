// Package confirmexecv1 holds the messages of the contract as they are on the wire, generated from proto/confirmexec/v1. Package
// grpcerr turns them into the types of package contract and back.
package confirmexecv1
