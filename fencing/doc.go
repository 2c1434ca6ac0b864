// Package fencing keeps out what is too late: a deposed dispatcher, an agent that was started again, a message that slept in a
// queue. Each of them holds something that was true, and each check here is atomic with the write that it protects.
//
// A check that is made before a write, in an interceptor or by a SELECT, is only an early refusal: the fence can move between
// the two. Here a [Space] holds its fences under row locks until the transaction ends, and the [Fence] that it returns is the only
// way to write, each method under the checks that its write is for:
//
//	fence, err := space.Hold(ctx, st.Values(tx), fencing.SessionIs(caller), fencing.EpochIs("dispatcher", epoch))
//	...
//	receipt, err := fence.SetAdmission(ctx, agentID, request, activeCalls) // in the same transaction
//
// A fence lives in one row and many writers hold it (FOR SHARE); whoever moves it waits for them, and they for it. Under READ
// COMMITTED that is enough, and less is not: `WHERE EXISTS` and FOR KEY SHARE let stale writes through.
//
// # What is compared how
//
//   - An [Epoch] and a boot id are opaque: equal or not, never older or newer (R113).
//   - A session generation, an admission generation, a task revision and a fencing token are numbers from the store, durable before
//     they are told, and never from a clock. Zero is "not told", and never "any".
//   - A deadline is exclusive: at the deadline it is over (R64).
//   - What a request says of its sender authorizes nothing: it is compared with the session that was approved for the certificate
//     (R115).
//
// The decisions are pure functions of a state and a request ([Session.Activate], [Admission.Set], …), so that they can be read and
// tested on their own; the methods of [Space] and [Fence] load, decide and swap.
//
// Every refusal is a [contract.Failure] with EffectNone that tells the number that stands, if there is one, and it leaves nothing
// behind.
package fencing
