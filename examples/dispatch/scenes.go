package dispatch

import (
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/contract"
)

// scenes are the methods, each with the agent killed and then with the dispatcher. What a process does not commit in a method has a
// row with no kills.
func scenes() []scene {
	var all []scene
	for _, victim := range []string{roleAgent, roleDispatcher} {
		for _, sc := range []scene{
			{method: "ActivateAgent", call: callActivate, check: checkActivate},
			{method: "SetAdmissionState", call: callAdmission, recover: callAdmission, check: checkAdmission},
			{method: "Execute", prepare: preparePermit, call: callExecute, recover: recoverExecute, check: checkExecution},
			{method: "ExecuteAuthorized", call: callAuthorized, recover: recoverAuthorized, check: checkExecution},
			{method: "QueryExecution", prepare: callAuthorized, call: callQuery, recover: recoverAuthorized, check: checkExecution},
			{method: "GetExecutionPermit", prepare: reserveLine, call: callPermit, recover: callPermit, check: checkPermit},
			{method: "ApplyTaskControl", prepare: callAuthorized, call: callControl, recover: callControl, check: checkControl},
			{method: "ApplyApprovedTaskControl", prepare: prepareCall, call: callApproved, recover: callApproved, check: checkApproved},
			{method: "ReportExecutionEvent", call: callReport, recover: callReport, check: checkReport},
			{method: "RequestUpload", prepare: callAuthorized, call: callUpload, recover: callUpload, check: checkUpload},
			{method: "CompleteUpload", prepare: prepareUpload, call: callComplete, recover: callComplete, check: checkComplete},
			{method: "GetAgentStatus", call: callStatus},
			{method: "GetBootstrap", call: callBootstrap},
		} {
			sc.victim, sc.commits = victim, commits[victim][sc.method]
			all = append(all, sc)
		}
	}
	return append(all,
		scene{
			method: "(drain a close)", victim: roleAgent, commits: 3, prepare: prepareClose, call: callEnd, recover: recoverClose,
			check: checkAdmission,
		},
		scene{
			method: "(settle what failed)", victim: roleAgent, commits: 2, prepare: prepareFailure, call: callSettle, recover: (*stage).settleBoth,
			check: checkMade,
		},
		scene{
			method: "(settle what crashed)", victim: roleAgent, commits: 2, prepare: prepareCrash, call: callSettle, recover: (*stage).settleBoth,
			check: checkMade,
		},
		scene{
			method: "(reconcile a lost reply)", victim: roleDispatcher, commits: 2, prepare: prepareLost, call: callReconcile,
			recover: (*stage).settleBoth, check: checkMade,
		})
}

// prepareCall leaves a call that lasts until it is hung up.
func prepareCall(s *stage) {
	s.try(s.dispatcher, authorized(func(o *order) { o.Number = "+49301hold" }))
}

// prepareClose leaves a close that is accepted, behind which a call is active.
func prepareClose(s *stage) {
	prepareCall(s)
	callAdmission(s)
	s.want("close", "accepted", s.told)
}

// callEnd ends the call: what follows is the agent's own doing.
func callEnd(s *stage) {
	s.try(s.agent, order{Do: "end_call", Execution: "e-1"})
	recoverClose(s)
}

// recoverClose asks for the close until it is applied, or its receiver has died.
func recoverClose(s *stage) {
	for range 250 {
		if callAdmission(s); s.broken != nil || s.told.Failure != nil || s.told.receipt().Applied() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// prepareFailure leaves an UNKNOWN that the adapter's error made.
func prepareFailure(s *stage) {
	s.try(s.dispatcher, authorized(func(o *order) { o.Number = "+49301fail" }))
}

// prepareCrash leaves an UNKNOWN that nobody completed: the agent dies when it has invoked the adapter. Its lease is over then.
func prepareCrash(s *stage) {
	dead := s.agent
	s.ask(dead, order{Do: "arm", At: 2, When: before})
	s.try(s.dispatcher, authorized())
	s.dying = dead
	s.expect(s.diesOf(2, 1000), "the agent did not die")
	s.dying = nil
	s.restartAgent()
	s.applied("a new session", s.activate())
	time.Sleep(s.lease)
}

// prepareLost leaves an UNKNOWN at the dispatcher alone.
func prepareLost(s *stage) {
	s.ask(s.agent, order{Do: "lose_reply", Method: "ExecuteAuthorized"})
	callAuthorized(s)
}

func callSettle(s *stage) { s.try(s.agent, order{Do: "settle"}) }

func callReconcile(s *stage) { s.try(s.dispatcher, order{Do: "reconcile", Execution: "e-1"}) }

// checkMade: the ledger has the call, and so have both records.
func checkMade(s *stage) {
	checkExecution(s)
	here := s.ask(s.dispatcher, order{Do: "standing", Execution: "e-1"})
	s.expect(here.receipt().Applied(), "the dispatcher says %s", here.word())
}

// commits are how many a process makes in a method, from the first message to what it does by itself afterwards.
var commits = map[string]map[string]int{
	roleAgent: {
		"ActivateAgent":            1, // the session is joined
		"SetAdmissionState":        1,
		"Execute":                  2, // UNKNOWN with the permit, and the receipt
		"ExecuteAuthorized":        2,
		"ApplyTaskControl":         1,
		"ApplyApprovedTaskControl": 3, // the check, closed, drained
		"ReportExecutionEvent":     2, // queued, and the cursor
	},
	roleDispatcher: {
		"ActivateAgent":            1,
		"Execute":                  2, // the decision with UNKNOWN, and the receipt
		"ExecuteAuthorized":        2,
		"GetExecutionPermit":       1,
		"ApplyApprovedTaskControl": 1, // its own task
		"ReportExecutionEvent":     2, // the fact with its place in the outbox, and the cursor
		"RequestUpload":            1,
		"CompleteUpload":           2,
	},
}

// try gives an order. That the process which is to die does so, now or before, is no fault; a call on it fails then.
func (s *stage) try(c *child, o order) answer {
	if s.broken != nil {
		return answer{}
	}
	told, err := c.do(o)
	if err != nil && c != s.dying {
		s.fail(err)
	}
	return told
}

func callActivate(s *stage) { s.try(s.agent, order{Do: "activate", Op: "act-2", Raw: true}) }

func checkActivate(s *stage) {
	s.applied("another activation", s.activate())
	here, there := s.ask(s.dispatcher, order{Do: "agent_status"}), s.ask(s.agent, order{Do: "status"})
	if s.broken != nil {
		return
	}
	if here.Status == nil || there.Status == nil {
		s.expect(false, "there is no status: %s, %s", here.word(), there.word())
		return
	}
	same := here.Status.Generation == there.Status.Generation && here.Status.Epoch == there.Status.Epoch
	s.expect(same && here.Status.Generation >= 3, "the sessions are %+v and %+v", here.Status, there.Status)
}

// callAdmission is sent again with the same operation, which the contract allows: the receiver answers with its receipt.
func callAdmission(s *stage) {
	s.told = s.try(s.dispatcher, order{Do: "admission", Op: "op-close", Barrier: "b-close", Expected: 2, Raw: true})
}

func checkAdmission(s *stage) {
	now := s.ask(s.dispatcher, order{Do: "agent_status"})
	s.expect(s.told.receipt().Applied() && s.told.receipt().After == 3, "the receipt is %+v (%s)", s.told.receipt(), s.told.word())
	s.expect(now.Status != nil && now.Status.AdmissionGeneration == 3 && !now.Status.Open, "the admission is %+v", now.Status)
}

func reserveLine(s *stage) {
	s.want("reserve", "ok", s.ask(s.dispatcher, order{Do: "reserve", Reservation: "line-1/1"}))
}

func callPermit(s *stage) {
	s.told = s.try(s.agent, order{Do: "permit", Op: "p-1", Reservation: "line-1/1", Execution: "e-1", Expected: 1, Raw: true})
}

func checkPermit(s *stage) {
	first := s.told
	callPermit(s)
	s.expect(first.Text != "" && first.Text == s.told.Text && s.told.Count == 1, "the permits are %q and %q", first.Text, s.told.Text)
	second := order{Do: "permit", Op: "p-2", Reservation: "line-1/1", Execution: "e-1", Expected: 2, Raw: true}
	s.want("a second permit", "permit_issued", s.ask(s.agent, second))
}

func preparePermit(s *stage) {
	reserveLine(s)
	callPermit(s)
}

func callExecute(s *stage) {
	s.told = s.try(s.dispatcher, order{Do: "execute", Op: "op-e-1", Execution: "e-1", Number: "+49301"})
}

var theDeadline = time.Now().Add(time.Hour).UnixMilli()

func authorized(change ...func(*order)) order {
	o := order{Do: "execute_authorized", Op: "op-e-1", Execution: "e-1", Number: "+49301", DeadlineMS: theDeadline}
	for _, c := range change {
		c(&o)
	}
	return o
}

func callAuthorized(s *stage) { s.told = s.try(s.dispatcher, authorized()) }

func callQuery(s *stage) { s.try(s.dispatcher, order{Do: "query", Execution: "e-1"}) }

func recoverAuthorized(s *stage) { s.recoverExecution(authorized()) }

func recoverExecute(s *stage) {
	s.recoverExecution(order{Do: "execute", Op: "op-e-1", Execution: "e-1", Number: "+49301"})
}

// recoverExecution asks the dispatcher for the same execution once more, which it answers from its own record if it has one; lets
// both settle what is unknown, by evidence; has the request arrive at the agent twice more, as from a network that repeats it; and
// settles again.
func (s *stage) recoverExecution(o order) {
	s.ask(s.dispatcher, o)
	s.settleBoth()
	late := o
	late.Raw = true
	s.ask(s.dispatcher, late)
	s.ask(s.dispatcher, late)
	s.settleBoth()
}

// settleBoth settles at the agent by the adapter's ledger, and at the dispatcher by the agent's receipt, until leases have ended.
func (s *stage) settleBoth() {
	for end := time.Now().Add(30 * time.Second); s.broken == nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		settled := s.ask(s.agent, order{Do: "settle"})
		there := s.ask(s.dispatcher, order{Do: "query", Execution: "e-1"})
		here := s.ask(s.dispatcher, order{Do: "reconcile", Execution: "e-1"})
		running := here.word() == "in_progress" || settled.Failure != nil
		missing := there.word() == "no_mutation"
		if !running && (missing || there.receipt().Result.Terminal()) {
			return
		}
	}
	s.expect(false, "it could not be settled")
}

// checkExecution: both say APPLIED exactly when the ledger has the call. UNKNOWN is left only where the agent has no record and the
// adapter was not invoked.
func checkExecution(s *stage) {
	counts, err := invocations(s.ledger())
	s.expect(err == nil, "the ledger cannot be read: %v", err)
	made := counts["e-1"] > 0
	there := s.ask(s.dispatcher, order{Do: "query", Execution: "e-1"})
	here := s.ask(s.dispatcher, order{Do: "standing", Execution: "e-1"})
	s.expect(there.receipt().Applied() == made, "the ledger has it: %t; the agent says %s", made, there.word())
	s.expect(here.receipt().Applied() == made, "the ledger has it: %t; the dispatcher says %s", made, here.word())
	if here.receipt().Result == contract.ResultUnknown {
		s.expect(there.word() == "no_mutation" && !made, "the dispatcher says %s, the agent %s", here.word(), there.word())
	}
}

func callControl(s *stage) {
	s.told = s.try(s.dispatcher, order{Do: "control", Op: "c-1", Execution: "e-1", Action: "PAUSE", Expected: 1, Raw: true})
}

func checkControl(s *stage) {
	s.expect(s.told.receipt().Applied() && s.told.receipt().After == 2, "the receipt is %+v (%s)", s.told.receipt(), s.told.word())
	next := s.ask(s.dispatcher, order{Do: "control", Op: "c-2", Execution: "e-1", Action: "PAUSE", Expected: 2, Raw: true})
	s.applied("the next revision", next)
}

func callApproved(s *stage) {
	s.told = s.try(s.dispatcher, order{Do: "approved_stop", Tenant: "7", Task: "41"})
}

func checkApproved(s *stage) {
	now := s.ask(s.dispatcher, order{Do: "agent_status"})
	stopped := now.Status != nil && now.Status.Stopped
	s.expect(s.told.receipt().Applied() && stopped, "the answer is %s, the agent %+v", s.told.word(), now.Status)
}

func callReport(s *stage) {
	s.try(s.agent, order{Do: "report", Fact: "f-1", Kind: "call.answered", Content: "one"})
	s.tryPublished(ofAgent, "f-1")
}

// tryPublished waits for the dispatcher's publisher, unless it dies.
func (s *stage) tryPublished(source, id string) {
	for range 250 {
		told := s.try(s.dispatcher, order{Do: "fact", Source: source, Fact: id})
		if told.Text == "PUBLISHED" || told.Text == "" || s.broken != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func checkReport(s *stage) { s.checkPublished(ofAgent, "f-1", "one") }

// checkPublished: the fact is in the queue, at least once, and always the same.
func (s *stage) checkPublished(source, id, content string) {
	s.expect(s.ask(s.dispatcher, order{Do: "fact", Source: source, Fact: id}).Text == "PUBLISHED", "%s is not published", id)
	lines, err := readLines[published](s.queue())
	n := 0
	for _, l := range lines {
		if l.Source == source && l.ID == id && strings.Contains(l.Content, content) && l.Ordinal == 1 {
			n++
		}
	}
	s.expect(err == nil && n > 0 && n == len(lines), "the queue has %v (%v)", lines, err)
}

func callUpload(s *stage) {
	s.told = s.try(s.agent, order{
		Do: "request_upload", Op: "u-1", Execution: "e-1", Content: "audio", Target: s.set.target.prefix, Raw: true,
	})
}

func checkUpload(s *stage) {
	first := s.told
	callUpload(s)
	s.expect(first.Text != "" && first.Text == s.told.Text, "the places are %q and %q", first.Text, s.told.Text)
}

func prepareUpload(s *stage) {
	callAuthorized(s)
	callUpload(s)
	s.title = s.told.receipt().Ref // of the upload, for what follows
}

func callComplete(s *stage) {
	s.told = s.try(s.agent, order{Do: "complete_upload", Op: "d-1", Upload: s.title, Content: "audio", Raw: true})
	s.tryPublished(ofDispatcher, "recording.uploaded/"+s.title)
}

func checkComplete(s *stage) {
	s.expect(s.told.receipt().Applied(), "the answer is %s", s.told.word())
	s.checkPublished(ofDispatcher, "recording.uploaded/"+s.title, "asset_sha256")
}

func callStatus(s *stage) {
	s.try(s.dispatcher, order{Do: "agent_status"})
	s.try(s.agent, order{Do: "status"})
}

func callBootstrap(s *stage) { s.try(s.agent, order{Do: "bootstrap"}) }
