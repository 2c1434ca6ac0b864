// Package httperr carries the failures of package contract over HTTP, as problem documents (RFC 9457), and reads the
// Idempotency-Key header. It is for services that are not gRPC services; it links the standard library and contract.
//
// A handler answers its errors with [Write] (or with [ProblemOf], to change the document first), and a client reads them back
// with [FromResponse] and asks [contract.Decide] what to do. A result is not an error, an ambiguous one neither: answer it with
// 200 and its JSON form, which says what is known.
//
// # Status codes
//
// Three codes share 409, and proxies make most of the others by themselves. So a status is for people and generic tools, and a
// failure is read from the members of the document alone.
//
//	INVALID_ARGUMENT     400  also a missing or unreadable Idempotency-Key, as its draft has it
//	UNAUTHENTICATED      401  the caller of Write sets WWW-Authenticate, which 401 needs: only it knows the scheme
//	PERMISSION_DENIED    403
//	NOT_FOUND            404
//	FAILED_PRECONDITION  409  and not 412, which is for conditions in header fields, such as If-Match
//	ABORTED              409
//	ABORTED, the key stands for other content (contract.ReasonKeyReused)  422, as the draft has it
//	ALREADY_EXISTS       409  as the draft has it for a request that is still running
//	RESOURCE_EXHAUSTED   429
//	UNAVAILABLE          503
//	DEADLINE_EXCEEDED    504
//
// An error that holds no failure of the ten codes is answered without a code, with a fixed text and an unknown effect: 504 (with
// the code DEADLINE_EXCEEDED) for [context.DeadlineExceeded], 503 for [context.Canceled], else 500. 499 is no registered status,
// and 408 invites a client to send the request again by itself.
//
// No Retry-After is ever set: generic clients take it as leave to send the same request again, which no code gives. A handler that
// wants one sets it before Write.
//
// The draft is draft-ietf-httpapi-idempotency-key-header-07. The key of a confirmation is in its body too; a handler that wants the
// header compares them.
package httperr
