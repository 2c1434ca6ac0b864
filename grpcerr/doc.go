// Package grpcerr carries the contract's failures over gRPC, and sees to it that a call that failed is understood and is not sent
// again against the contract's rules.
//
// A team adds one line at each end:
//
//	grpc.NewServer(grpcerr.ServerOptions(&grpcerr.ServerConfig{Methods: methods})...)
//	grpc.NewClient(target, append(grpcerr.DialOptions(&grpcerr.ClientConfig{Methods: methods}), creds)...)
//
// where methods, such as [contract.AgentMethods], lists what is read-only; what is not listed is a mutation.
//
// # What a failure is on the wire
//
// A handler returns a [contract.Failure], wrapped or not. Its caller gets the status code of the same name, one Failure and one
// ErrorInfo among the status details, and the same in plain trailers ([Codec.ToStatus], [Codec.FromReply]). An OK reply tells the
// outcome in its receipt, and an OK without one tells nothing. [Adapter] is for a service that has a failure message of its own.
//
// # What a failed call tells
//
// Libraries and proxies make most status codes by themselves: UNAVAILABLE says as little about where a request got to as
// CANCELLED. So the client concludes from evidence, and every call that failed is a *[CallError] with its [contract.Delivery]:
//
//   - NeverSent: no attempt has put the message on a connection. The original operation may be sent.
//   - SentUnknown: it may have arrived. Query the original operation.
//   - ServerSeen: the receiver has begun with it. Query the original operation.
//   - Answered: the receiver's own failure arrived; its rule says what comes next.
//
// and the [contract.Decision] that follows from it:
//
//	_, err := client.Execute(ctx, req)
//	if call, ok := errors.AsType[*grpcerr.CallError](err); ok {
//		switch call.Decision.Action {
//		case contract.SendOriginal: // nothing was sent: req again, as it is
//		case contract.Reconcile, contract.TreatAsUnknown: // query the operation; start no other
//		case …
//		}
//	}
//
// This is what the tests saw of a mutation, with how often its handler ran:
//
//	nobody listens; no or a foreign certificate           NeverSent    send_original     0
//	cancelled or closed before the call                   NeverSent    send_original     0
//	the deadline is over while waiting for a connection   NeverSent    send_original     0
//	the request is larger than the client may send        NeverSent    send_original     0
//	the request is larger than the server receives        SentUnknown  reconcile         0
//	the method is not there (UNIMPLEMENTED)               SentUnknown  reconcile         0
//	the server dies before the handler                    SentUnknown  reconcile         0
//	the server dies, the reply is lost                    SentUnknown  reconcile         1
//	a gateway strips all but the status code              SentUnknown  by the code       1
//	a gateway forces OK                                   SentUnknown  reconcile         1
//	the server dies in the handler                        ServerSeen   reconcile         1
//	the deadline is over in the handler, which goes on    ServerSeen   reconcile         1
//	the connection is closed during the call              ServerSeen   reconcile         1
//	the reply is larger than the client receives          ServerSeen   reconcile         1
//	the handler panics                                    ServerSeen   reconcile         1
//	the handler returns a failure                         Answered     by the failure    1
//
// Codes that have no failure code, and codes without the receiver's envelope, are unknown outcomes, UNIMPLEMENTED among them. Of a
// bare code that only a server makes, such as ABORTED, the action is believed and the effect is not ([BareFailure]). What a
// library or a proxy wrote is in the error's GRPCStatus, for people.
//
// Interceptors of the caller's own that stand before the options of this package run once for each call, and may refuse it. What
// those behind them do is within the call. Of a mutation, only an error that is handed on as it came proves that nothing was done:
// one that an interceptor makes or wraps, or brings from another connection, may be about anything. An interceptor that sends on
// other connections has to have a [Guard] on each of them: it is seen there whether a call was executed.
//
// # What is not sent again
//
// A [Guard], which [DialOptions] makes, remembers the operations whose decision forbids another send, or asks for an action
// before it. It refuses such a send with [ErrNotResent], before anything goes out and whichever layer sends: a retrying
// interceptor, a loop of the caller's. [WithActionDone] lets the same operation out once more, if the decision is about that action
// and allows the same operation. What was never sent goes out with the same content at any time. An outcome that is unknown stays
// unknown: the answer to a later send does not tell what an earlier one did, nor, where gRPC repeated a send by itself, the answer
// to the repetition what the first delivery did.
//
// That is memory: it is bounded, and gone with the process. A caller that must know over its restarts that an operation was refused
// or stopped keeps a record of its own: it makes the call in the Invoke of a broker.Mutation and returns what the failure says of it,
//
//	f, failed := contract.FailureOf(err)
//	...
//	return contract.Receipt{Result: f.Result(), Detail: f.Error(), Failure: f}, nil // REFUSED, STOPPED, CONFLICT, NOT_APPLIED or UNKNOWN
//
// Otherwise durable is only the receiver's claim, which gives a second delivery the receipt of the first. It is needed even with one
// client that never restarts, since gRPC itself repeats a request when the peer says that it has not begun with it, and a proxy that
// says so may be wrong.
//
// Read-only methods are repeated, three times by default: the same bytes, the same metadata, within the deadline.
//
// # What the server adds
//
// [ServerOptions] converts every error of a handler, contains panics, and protects the server from other people's clients: for a
// mutation the response headers leave before the handler runs, and its errors forbid retries, so that no retry policy of a client
// or of a service mesh that heeds them repeats it. It can refuse unknown protocol versions and requests without a key.
package grpcerr
