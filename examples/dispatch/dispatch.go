// Package dispatch is the Agent contract running: a dispatcher and an agent, two processes that call each other over mutual TLS, each
// with a database of its own. The agent has an adapter, whose ledger is a file outside both databases, and puts recordings
// straight to an upload target that the dispatcher never sees the bytes of.
//
// Every handler is thin. It makes the digest of the business content, and hands the broker one mutation: a Guard that holds the
// fences, the Identities that one operation alone may have, and an Apply in the transaction or an Invoke outside of it. What is not
// in a handler is not needed: replays, conflicts, unknown outcomes and lost replies are the library's.
//
// [Walk] tells how the thirteen methods and nine stories go, [Matrix] kills both processes between any two of their commits, and
// [Process] is what they start as children.
package dispatch

import (
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
	"github.com/confirmexec/confirmexec/fencing"
)

// Who takes part. What counts is the certificate: these names are in it, or are approved for it.
const (
	trustDomain   = "calls.example"
	dispatcherURI = "spiffe://" + trustDomain + "/dispatcher"
	agentURI      = "spiffe://" + trustDomain + "/cell-3/agent-7"
	strangerURI   = "spiffe://" + trustDomain + "/cell-3/agent-9" // has a certificate, and nobody approved it

	agentID = "agent-7"
	cellID  = "cell-3"

	office          = "dispatcher" // the scope of the dispatcher's epochs
	protocolVersion = "w02.v0.1"   // the name of the package is not one (R17)
	service         = "agent.v1.AgentService"
)

// task is what the agent works for.
var task = fencing.TaskIdentity{Tenant: 7, Task: 41}

// methods are the contract's: three are read-only, and what is not listed is a mutation (R75, R107).
var methods = contract.AgentMethods(service)

// method is one of them, by the name without the service's.
func method(name string) contract.Method { return methods.Of("/" + service + "/" + name) }

// The roles of a process.
const (
	roleDispatcher = "dispatcher"
	roleAgent      = "agent"
)

// config is what a process is told when it starts, in the first line of its stdin.
type config struct {
	Role                   string
	Database               string   // sqlite:PATH or postgres://…
	Tenant                 string   // whose rows these are; both may share a database
	Boot                   string   // of the agent: a new one with every start
	Authority, Certificate string   // files
	Ledger                 string   // the adapter's
	Queue                  string   // the file that the dispatcher's facts are published to
	Trace                  trace    // where what happened is told, for people
	Targets                []string // where assets may be put: prefixes of URLs
	GrantKey               []byte   // of the grants for them, which the target has too
	Approved               []string // the identities of the agents that the dispatcher approves, in its cell
	Lease                  time.Duration
	Drain                  time.Duration // how long the agent waits for active calls
	Killable               bool          // the process may be told to kill itself at a commit
}

// policy is the dispatcher's decision about a number. The agent never makes it a second time (R67).
func policy(number string) bool { return len(number) > 1 && number[0] == '+' && number[1] != '0' }

// The contents of the mutations, as both sides compute them: business fields alone, and nothing of the session (R35).

func authorizedContent(q *agentv1.ExecuteAuthorizedRequest) contract.Digest {
	return contract.NewContent("ExecuteAuthorized").Text("execution_id", q.GetExecutionId()).Int("deadline_ms", q.GetDeadlineMs()).
		Text("number", q.GetNumber()).Text("adapter", q.GetAdapter()).Digest()
}

func executeContent(q *agentv1.ExecuteRequest) contract.Digest {
	return contract.NewContent("Execute").Text("execution_id", q.GetExecutionId()).Text("permit_id", q.GetPermit().GetPermitId()).
		Text("number", q.GetNumber()).Digest()
}
