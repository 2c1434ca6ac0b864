package dispatch

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// rpcs show the thirteen methods, one after the other.
var rpcs = []scenario{
	{"activate-agent", "a session for an approved agent", expectation{"applied, replayed", 0}, activateAgent},
	{"set-admission-state", "open and close, behind barriers", expectation{"applied, replayed", 1}, setAdmissionState},
	{"execute", "with a permit, once", expectation{"applied, replayed", 2}, executeWithPermit},
	{"execute-authorized", "what was decided on, once", expectation{"applied, replayed", 2}, executeAuthorized},
	{"query-execution", "what became of an execution", expectation{"applied, replayed", 1}, queryExecution},
	{"get-execution-permit", "the one permit of a reservation", expectation{"applied, replayed", 1}, getExecutionPermit},
	{"apply-task-control", "pause, resume, and no resume twice", expectation{"applied, replayed", 1}, applyTaskControl},
	{"apply-approved-task-control", "closed, hung up, drained", expectation{"applied", 1}, applyApprovedTaskControl},
	{"report-execution-event", "a fact, in whatever session", expectation{"applied, replayed", 1}, reportExecutionEvent},
	{"request-upload", "a place at an approved target", expectation{"applied, replayed", 1}, requestUpload},
	{"complete-upload", "the recording is there, and its fact queued", expectation{"applied, replayed", 1}, completeUpload},
	{"get-agent-status", "read on both sides, without a write", expectation{"ok", 0}, getAgentStatus},
	{"get-bootstrap", "read before there is a session", expectation{"ok", 0}, getBootstrap},
}

// R36-R40.
func activateAgent(s *stage) {
	s.pair()
	act := func(op string, change ...func(*order)) answer {
		o := order{Do: "activate", Op: op, Raw: true}
		for _, c := range change {
			c(&o)
		}
		return s.ask(s.agent, o)
	}
	first := s.applied("activate", act("act-1"))
	repeated := s.want("the same again", "applied, replayed", act("act-1"))
	s.expect(first.receipt().After == 1 && repeated.receipt().After == 1, "the repeated activation has another generation")
	s.expect(first.Text == repeated.Text && first.Text != "", "the epoch is %q, and then %q", first.Text, repeated.Text)
	s.expect(first.bytes() == repeated.bytes(), "the receipt is %s, and then %s", first.bytes(), repeated.bytes())
	s.want("the same operation, another boot", "key_reused", act("act-1", func(o *order) { o.Boot = "boot-x" }))
	s.want("the same operation, another cell", "key_reused", act("act-1", func(o *order) { o.Cell = "cell-4" }))
	renewed := s.begin(roleAgent, "renewed")
	if s.broken == nil {
		s.ask(renewed, order{Do: "connect", Address: s.dispatcher.Address})
		s.want("the same operation, another certificate", "key_reused",
			s.ask(renewed, order{Do: "activate", Op: "act-1", Boot: "boot-1"}))
	}
	stranger := s.begin(roleAgent, "stranger")
	if s.broken == nil {
		s.ask(stranger, order{Do: "connect", Address: s.dispatcher.Address})
		s.want("somebody with a certificate, not approved", "not_approved", s.ask(stranger, order{Do: "activate", Op: "act-9"}))
	}
	second := s.applied("a newer activation", act("act-2"))
	s.expect(second.receipt().After == 2, "the generation is %d, not 2", second.receipt().After)
	s.decide("the first activation, once more", act("act-1"))
	s.expect(s.told.Flag && s.told.receipt().After == 1, "the older activation is not told to be history")
	now := s.ask(s.agent, order{Do: "status"})
	s.expect(now.Status != nil && now.Status.Generation == 2, "the older activation has moved the session")
	s.say(`The agent activates, and a repeated request is told the same generation. The operation with another boot, cell or
		certificate is in conflict; an agent that nobody approved is denied, whatever its certificate says. After a newer activation the
		first one is history: its receipt is told, as superseded, and the session stays what it is.`)
}

// R42-R47, R49.
func setAdmissionState(s *stage) {
	s.pair()
	s.applied("activation", s.activate())
	set := func(op, barrier string, expected int64, open bool) answer {
		return s.ask(s.dispatcher, order{Do: "admission", Op: op, Barrier: barrier, Expected: expected, Open: open, Raw: true})
	}
	s.applied("open", set("op-1", "b-1", 1, true))
	stale := s.want("a new barrier that expects what was", "revision_moved", set("op-2", "b-2", 1, false))
	s.expect(stale.Failure != nil && stale.Failure.Current == 2, "the refusal does not tell the current generation")
	s.want("the operation with another expectation", "key_reused", set("op-1", "b-1", 2, true))
	s.want("another operation with the barrier", "second_operation", set("op-3", "b-1", 2, true))
	s.want("without an expected generation", "invalid", set("op-4", "b-4", 0, true))
	s.decide("the opening, once more", set("op-1", "b-1", 1, true))
	s.expect(s.told.receipt().Before == 1 && s.told.receipt().After == 2, "the receipt does not say 1 to 2")
	died := s.agent.kill()
	s.restartAgent()
	s.applied("activation after a SIGKILL", s.activate())
	now := s.ask(s.dispatcher, order{Do: "agent_status"})
	s.expect(now.Status != nil && now.Status.AdmissionGeneration == 2 && now.Status.Open, "the generation is not 2 after the restart")
	s.closeWithCall(set)
	s.say(`Opening moves the generation from 1 to 2, once: the repeated request is told the receipt. What expects another generation than
		the one that stands is refused with the one that does, and a barrier is one operation's. The agent was killed (%s): the
		generation is what it was. A close with a call that lasts is accepted, and applied once the call has ended.`, died)
}

// closeWithCall closes while a call is active (R48).
func (s *stage) closeWithCall(set func(op, barrier string, expected int64, open bool) answer) {
	s.applied("a call that lasts", s.issue("e-1", "+49301hold"))
	s.want("close meanwhile", "accepted", set("op-c", "b-c", 2, false))
	s.want("the same again", "accepted, replayed", set("op-c", "b-c", 2, false))
	s.ask(s.agent, order{Do: "end_call", Execution: "e-1"})
	told := answer{}
	for range 100 {
		if told = set("op-c", "b-c", 2, false); told.receipt().Applied() || s.broken != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.want("the close, once the call has ended", "applied, replayed", told)
	s.expect(told.receipt().Barrier != nil && told.receipt().After == 3, "there is no barrier in the receipt")
}

// R50-R57.
func executeWithPermit(s *stage) {
	s.ready()
	s.want("reserve", "ok", s.ask(s.dispatcher, order{Do: "reserve", Reservation: "line-1/1"}))
	permit := order{Do: "permit", Op: "p-1", Reservation: "line-1/1", Execution: "e-1", Expected: 1}
	first := s.applied("permit", s.ask(s.agent, permit))
	execute := order{Do: "execute", Op: "x-1", Execution: "e-1", Number: "+49301"}
	s.applied("execute", s.ask(s.dispatcher, execute))
	execute.Raw = true
	s.decide("the same, once more, at the agent", s.ask(s.dispatcher, execute))
	other := execute
	other.Op, other.Permit, other.Reservation, other.Token, other.Generation = "x-2", "permit-of-nobody", "line-1/1", 9, 1
	s.want("another permit for the execution", "second_operation", s.ask(s.dispatcher, other))
	other.Op, other.Execution, other.Permit, other.Token = "x-6", "e-5", first.Text, 1
	s.want("the permit for another execution", "second_operation", s.ask(s.dispatcher, other))
	s.want("release, with the evidence", "ok", s.ask(s.dispatcher, order{Do: "release", Reservation: "line-1/1", Execution: "e-1"}))
	reserved := s.ask(s.dispatcher, order{Do: "reserve", Reservation: "line-1/2"})
	permit.Op, permit.Reservation, permit.Execution, permit.Expected = "p-2", "line-1/2", "e-2", reserved.Count
	s.applied("the next permit", s.ask(s.agent, permit))
	s.applied("execute with it", s.ask(s.dispatcher, order{Do: "execute", Op: "x-3", Execution: "e-2", Number: "+49302"}))
	late := order{Do: "execute", Op: "x-4", Execution: "e-3", Permit: "late", Reservation: "line-1/1", Token: 1, Generation: 1, Raw: true}
	s.want("a token below the highest seen", "token_stale", s.ask(s.dispatcher, late))
	late.Op, late.Permit, late.Token, late.Generation = "x-7", "of another session", 7, 9
	s.want("a permit of another session", "permit_fenced", s.ask(s.dispatcher, late))
	late.Op, late.Generation, late.PermitBoot = "x-8", 1, "boot-0"
	s.want("a permit of another boot", "permit_fenced", s.ask(s.dispatcher, late))
	late.PermitBoot = ""
	closing := order{Do: "admission", Op: "op-c", Barrier: "b-c", Expected: 2}
	s.applied("close", s.ask(s.dispatcher, closing))
	late.Op, late.Execution, late.Permit, late.Token, late.Generation = "x-5", "e-4", "new", 3, 1
	s.want("while admission is closed", "admission_closed", s.ask(s.dispatcher, late))
	closing.Op, closing.Barrier, closing.Expected, closing.Open = "op-o", "b-o", 3, true
	s.applied("open", s.ask(s.dispatcher, closing))
	s.voidPermit()
	s.say(`The permit is consumed in the transaction that claims the operation, before the adapter is invoked. A repeated request gets the
		receipt. Another permit for the execution, another execution for the permit, a token that is not the newest, a permit of another
		session, and a closed admission are refused, and consume nothing. A permit whose reservation was fenced or released is void: the
		dispatcher sends it no more, and the agent refuses it, by what the message says itself, or by what it was told before of the
		lowest token in force.`)
}

// voidPermit has the permits of reservations that are over sent (R72, R73).
func (s *stage) voidPermit() {
	permit := func(op, reservation, execution string, expected int64) answer {
		return s.ask(s.agent, order{Do: "permit", Op: op, Reservation: reservation, Execution: execution, Expected: expected, Raw: true})
	}
	s.want("reserve another line", "ok", s.ask(s.dispatcher, order{Do: "reserve", Reservation: "line-2/1"}))
	first := s.applied("its permit", permit("p-v1", "line-2/1", "e-v1", 1))
	s.ask(s.dispatcher, order{Do: "connect", Address: nowhere})
	execute := order{Do: "execute", Op: "x-v1", Execution: "e-v1", Number: "+49303"}
	s.want("execute, and the agent is not reached", "not_applied", s.ask(s.dispatcher, execute))
	s.introduce()
	s.want("release, with that evidence", "ok", s.ask(s.dispatcher, order{Do: "release", Reservation: "line-2/1", Execution: "e-v1"}))
	again := s.ask(s.dispatcher, order{Do: "reserve", Reservation: "line-2/2"})
	execute.Raw = true
	s.want("void permit, by its own message", "permit_void", s.ask(s.dispatcher, execute))
	s.applied("the permit of the line reserved anew", permit("p-v2", "line-2/2", "e-v2", again.Count))
	slept := order{
		Do: "execute", Op: "x-v1", Execution: "e-v1", Number: "+49303", Permit: first.Text, Reservation: "line-2/1", Token: 1, Generation: 1,
		Raw: true,
	}
	s.want("void permit, in a message that slept", "permit_void", s.ask(s.dispatcher, slept))
	told := s.want("the void permit, asked for again", "applied, replayed", permit("p-v1", "line-2/1", "e-v1", 1))
	s.expect(told.Flag, "it is not told to be void")

	s.want("fence the reservation", "ok", s.ask(s.dispatcher, order{Do: "fence", Reservation: "line-2/2"}))
	s.want("execute with the permit of a fenced one", "permit_void",
		s.ask(s.dispatcher, order{Do: "execute", Op: "x-v2", Execution: "e-v2", Number: "+49304"}))
	s.want("the same, straight to the agent", "permit_void",
		s.ask(s.dispatcher, order{Do: "execute", Op: "x-v2", Execution: "e-v2", Number: "+49304", Raw: true}))
	calls, err := invocations(s.ledger())
	s.expect(err == nil && calls["e-v1"]+calls["e-v2"] == 0, "a void permit was executed: %v (%v)", calls, err)
}

// R58-R63, R67, R68.
func executeAuthorized(s *stage) {
	s.ready()
	s.applied("issued", s.issue("e-1", "+49301"))
	s.decide("the same, once more, at the agent", s.issue("e-1", "+49301", raw))
	s.want("other content", "key_reused", s.issue("e-1", "+49302", raw))
	s.want("a second operation", "second_operation", s.issue("e-1", "+49301", raw, func(o *order) { o.Op = "op-again" }))
	for _, adapter := range []string{"real", "mock,real", "Mock", "mock "} {
		s.want("the adapter "+strconv.Quote(adapter), "not_mock",
			s.issue("e-2", "+49301", raw, func(o *order) { o.Adapter = adapter }))
	}
	s.want("decided against", "refused", s.issue("e-3", "+0900"))
	s.want("decided against, again", "refused, replayed", s.issue("e-3", "+0900"))
	standing := s.ask(s.dispatcher, order{Do: "standing", Execution: "e-3"})
	s.expect(standing.Text == refused, "the decision is %q", standing.Text)
	s.want("a number that the dispatcher would decide against, at the agent", "applied", s.issue("e-4", "+0900", raw))
	heard := s.ask(s.agent, order{Do: "log"}).Lines
	s.expect(!slices.ContainsFunc(heard, func(l string) bool { return strings.HasSuffix(l, "op-e-3") }), "the refused one was sent")
	s.expect(!slices.ContainsFunc(heard, func(l string) bool { return strings.HasPrefix(l, "Execute ") }), "the agent heard Execute")
	kept := strings.Join(s.ask(s.agent, order{Do: "keys"}).Lines, "\n")
	s.expect(strings.Contains(kept, "session") && !strings.Contains(kept, "permit"), "the agent keeps %s", kept)
	s.say(`The dispatcher decides once, in the transaction that claims the operation, before anything is sent. The agent commits UNKNOWN
		before it invokes the adapter. The same request again gets the receipt; other content and a second operation are in conflict;
		what was refused never reaches the agent. The agent decides nothing again, and needs no permit.`)
}

// R110.
func queryExecution(s *stage) {
	s.ready()
	s.want("before it", "no_mutation", s.ask(s.dispatcher, order{Do: "query", Execution: "e-1"}))
	s.applied("issued", s.issue("e-1", "+49301"))
	s.ask(s.agent, order{Do: "arm"}) // counts, and kills at no commit
	s.decide("after it", s.ask(s.dispatcher, order{Do: "query", Execution: "e-1"}))
	commits := s.ask(s.agent, order{Do: "commits"})
	s.expect(commits.Count == 0, "the query made %d commits", commits.Count)
	s.say(`An execution that is not recorded is NOT_FOUND, which is no proof that it will not arrive. One that is recorded is told with its
		receipt, and nothing is written.`)
}

// R70-R76.
func getExecutionPermit(s *stage) {
	s.ready()
	s.ask(s.dispatcher, order{Do: "reserve", Reservation: "line-1/1"})
	s.ask(s.dispatcher, order{Do: "reserve", Reservation: "line-2/1"})
	permit := func(op, reservation, execution string, expected int64) answer {
		return s.ask(s.agent, order{
			Do: "permit", Op: op, Reservation: reservation, Execution: execution, Expected: expected, Raw: true,
		})
	}
	first := s.applied("permit", permit("p-1", "line-1/1", "e-1", 1))
	repeated := s.want("the same again", "applied, replayed", permit("p-1", "line-1/1", "e-1", 1))
	s.expect(first.Text == repeated.Text && first.Count == repeated.Count && first.Text != "", "it is another permit")
	s.want("a revision that does not stand", "revision_moved", permit("p-2", "line-2/1", "e-2", 9))
	s.want("a second permit for the execution", "permit_issued", permit("p-3", "line-2/1", "e-1", 1))
	s.want("release without evidence", "execution_unknown", s.ask(s.dispatcher, order{Do: "release", Reservation: "line-1/1"}))
	s.applied("execute", s.ask(s.dispatcher, order{Do: "execute", Op: "x-1", Execution: "e-1", Number: "+49301"}))
	s.want("release with it", "ok", s.ask(s.dispatcher, order{Do: "release", Reservation: "line-1/1", Execution: "e-1"}))
	s.want("a permit of what is released", "reservation_released", permit("p-4", "line-1/1", "e-4", 3))
	s.want("fence another reservation", "ok", s.ask(s.dispatcher, order{Do: "fence", Reservation: "line-2/1"}))
	s.want("a permit of what is fenced", "reservation_fenced", permit("p-5", "line-2/1", "e-5", 2))
	s.decide("the first permit, once more", permit("p-1", "line-1/1", "e-1", 1))
	s.expect(s.told.Flag && s.told.Text == first.Text, "the permit is not told to be void")
	s.say(`A mutation in spite of its name. The same request is told the same permit and token; an execution has one permit for ever. The
		reservation is released on the evidence of the receipt alone, and then the permit is told as void. What is released or fenced
		has no permit any more.`)
}

// R77-R84.
func applyTaskControl(s *stage) {
	s.ready()
	s.applied("issued", s.issue("e-1", "+49301hold"))
	control := func(op, action string, expected int64, authorization string) answer {
		return s.ask(s.dispatcher, order{
			Do: "control", Op: op, Execution: "e-1", Action: action, Expected: expected, Authorization: authorization, Raw: true,
		})
	}
	s.applied("pause", control("c-1", "PAUSE", 1, ""))
	s.want("resume with the authorization of the start", "not_authorized", control("c-2", "RESUME", 2, "op-e-1"))
	s.applied("resume with a new one", control("c-3", "RESUME", 2, "auth-2"))
	s.want("the operation with another action", "key_reused", control("c-1", "STOP", 1, ""))
	stale := s.want("a stale revision", "revision_moved", control("c-4", "PAUSE", 2, ""))
	s.expect(stale.Failure != nil && stale.Failure.Current == 3, "the refusal does not tell the current revision")
	s.want("without a revision", "invalid", control("c-5", "PAUSE", 0, ""))
	s.applied("pause again", control("c-6", "PAUSE", 3, ""))
	s.decide("the first resume, once more", control("c-3", "RESUME", 2, "auth-2"))
	s.want("the state after the late resume", "revision_moved", control("c-7", "PAUSE", 3, ""))
	s.say(`Each control expects a revision, and moves it by one. A resume needs an authorization that was never used. The first resume
		arrives once more while the task is paused again: it is told its receipt, and the task stays paused.`)
}

// R85-R88, R91-R93.
func applyApprovedTaskControl(s *stage) {
	s.ready()
	s.applied("issued", s.issue("e-1", "+49301hold"))
	stop := func(tenant, task string) answer {
		return s.ask(s.dispatcher, order{Do: "approved_stop", Tenant: tenant, Task: task})
	}
	s.want("another task", "not_approved", stop("7", "42"))
	s.want("a task that is no number", "invalid", stop("7", "forty-one"))
	own := s.ask(s.dispatcher, order{Do: "task"})
	s.expect(own.Text == "RUNNING", "the stop of another task has made the dispatcher's %s", own.Text)
	s.applied("stop", stop("7", "41"))
	var steps []string
	for _, heard := range s.ask(s.agent, order{Do: "log"}).Lines {
		if strings.Contains(heard, " with ") {
			steps = append(steps, strings.Fields(heard)[0])
		}
	}
	s.expect(strings.Join(steps, " ") == "closed persisted hung_up drained applied", "the steps are %v", steps)
	s.want("an opening afterwards", "terminal_state",
		s.ask(s.dispatcher, order{Do: "admission", Op: "op-late", Barrier: "b-late", Expected: 3, Open: true}))
	s.decide("the stop, delivered again", stop("7", "41"))
	s.note("order", "%s", strings.Join(steps, ", "))
	s.say(`The call lasts until it is hung up. The gate is closed before that, also durably, and success is told when no call is active.
		Nothing opens it any more, and a redelivery is processed again. The dispatcher's own record of the task was stopped first.`)
}

// R94, R95, R97, R98.
func reportExecutionEvent(s *stage) {
	s.ready()
	fact := order{Do: "report", Fact: "f-1", Kind: "call.answered", Content: `{"execution":"e-1"}`}
	s.applied("report", s.ask(s.agent, fact))
	fact.Do = "send_fact"
	s.want("the same again", "applied, replayed", s.ask(s.agent, fact))
	wrong := fact
	wrong.Fact, wrong.Sum = "f-2", "something else"
	s.want("a checksum that is not the content's", "invalid", s.ask(s.agent, wrong))
	s.agent.kill()
	s.restartAgent()
	s.applied("a new session, after a SIGKILL", s.activate())
	s.decide("the fact of the session before", s.ask(s.agent, fact))
	s.awaitPublished(ofAgent, "f-1")
	s.forge()
	s.say(`The fact goes through the agent's own outbox, and the dispatcher takes it once by its id. In the next session it is the same
		fact: the receipt is the first one's. It is handed on through the dispatcher's outbox, which the queue has confirmed. The kinds
		that the dispatcher makes itself are not an agent's to report, and an id that looks like its own is the agent's all the same:
		the true recording.uploaded comes after it.`)
}

// forge has the agent report what only the dispatcher may say (R100, R105).
func (s *stage) forge() {
	s.applied("issued", s.issue("e-1", "+49301"))
	granted := s.applied("an upload", s.ask(s.agent, order{
		Do: "request_upload", Op: "u-1", Execution: "e-1", Content: "audio", Target: s.set.target.prefix,
	}))
	id := "recording.uploaded/" + granted.receipt().Ref
	forged := order{Do: "send_fact", Fact: id, Kind: "recording.uploaded", Content: `{"queued":true}`}
	s.want("a kind that is the dispatcher's", "kind", s.ask(s.agent, forged))
	forged.Kind = "call.answered"
	s.applied("a fact with an id like the dispatcher's", s.ask(s.agent, forged))
	s.want("the dispatcher's own, meanwhile", "no_fact", s.ask(s.dispatcher, order{Do: "fact", Source: ofDispatcher, Fact: id}))
	s.applied("the true completion", s.ask(s.agent, order{
		Do: "complete_upload", Op: "d-1", Upload: granted.receipt().Ref, Content: "audio",
	}))
	s.awaitPublished(ofDispatcher, id)
	s.awaitPublished(ofAgent, id)
}

// awaitPublished waits until the queue has confirmed a fact, and sees that it has it once.
func (s *stage) awaitPublished(source, id string) {
	told := ""
	for range 500 {
		if s.broken != nil {
			return
		}
		if told = s.ask(s.dispatcher, order{Do: "fact", Source: source, Fact: id}).Text; told == "PUBLISHED" {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.expect(told == "PUBLISHED", "%s is %q, and not PUBLISHED", id, told)
	lines, err := readLines[published](s.queue())
	n := 0
	for _, l := range lines {
		if l.Source == source && l.ID == id {
			n++
		}
	}
	s.expect(err == nil && n == 1, "the queue has %s %d times (%v)", id, n, err)
}

// R99, R104, R106.
func requestUpload(s *stage) {
	s.ready()
	s.applied("issued", s.issue("e-1", "+49301"))
	ask := order{Do: "request_upload", Op: "u-1", Execution: "e-1", Content: "audio", Target: s.set.target.prefix, Raw: true}
	first := s.applied("request", s.ask(s.agent, ask))
	s.decide("the same again", s.ask(s.agent, ask))
	s.expect(first.Text == s.told.Text && first.Text != "", "the place is another one: %q, %q", first.Text, s.told.Text)
	conflict := func(what string, change func(*order)) {
		other := ask
		change(&other)
		s.want("the same operation, another "+what, "key_reused", s.ask(s.agent, other))
	}
	conflict("content", func(o *order) { o.Content = "other" })
	conflict("content of another size", func(o *order) { o.Content = "other audio" })
	conflict("target", func(o *order) { o.Target = "https://elsewhere.example/" })
	conflict("execution", func(o *order) { o.Execution = "e-9" })
	ask.Op, ask.Target = "u-2", "https://elsewhere.example/"
	s.want("another target", "target", s.ask(s.agent, ask))
	ask.Op, ask.Target, ask.Execution = "u-3", s.set.target.prefix, "e-9"
	s.want("an execution that it was not given", "not_approved", s.ask(s.agent, ask))
	s.say(`The agent tells the checksum and the size, and is granted one place at an approved target. A repeated request is told the same, and
		with another asset, target or execution it is in conflict.`)
}

// R99-R105.
func completeUpload(s *stage) {
	s.ready()
	s.applied("issued", s.issue("e-1", "+49301"))
	const audio = "the sound of a call"
	granted := s.applied("request", s.ask(s.agent, order{
		Do: "request_upload", Op: "u-1", Execution: "e-1", Content: audio, Target: s.set.target.prefix,
	}))
	id := granted.receipt().Ref
	s.expect(s.ask(s.agent, order{Do: "put", Target: granted.Text, Content: audio}).Count == 201, "the PUT was not stored")
	for what, place := range map[string]string{
		"beside the prefix":            strings.Replace(granted.Text, recordings, "/other/", 1),
		"under a name of its own":      strings.Replace(granted.Text, id, "of-its-own", 1),
		"without a grant":              s.set.target.prefix + "of-its-own",
		"where it was, of what is not": granted.Text,
	} {
		content := map[bool]string{true: "another sound", false: audio}[place == granted.Text]
		s.expect(s.ask(s.agent, order{Do: "put", Target: place, Content: content}).Count == 403, "a PUT %s was stored", what)
	}
	done := order{Do: "complete_upload", Op: "d-1", Upload: id, Content: audio}
	other := done
	other.Op, other.Content = "d-2", "another sound"
	s.want("another checksum", "checksum", s.ask(s.agent, other))
	s.want("before it is completed", "no_fact", s.ask(s.dispatcher, order{Do: "fact", Source: ofDispatcher, Fact: "recording.uploaded/" + id}))
	s.applied("complete", s.ask(s.agent, done))
	s.decide("the same again", s.ask(s.agent, done))
	s.awaitPublished(ofDispatcher, "recording.uploaded/"+id)
	s.expect(s.set.target.stored(id) == audio, "the target does not have the recording")
	s.say(`The recording goes straight to the target; what the dispatcher is told, and hands on, is its checksum, its size and its place.
		The completion and the fact recording.uploaded are one transaction. What the queue has confirmed is PUBLISHED, and nothing is
		said of whoever receives it.`)
}

// R107, R109.
func getAgentStatus(s *stage) {
	s.ready()
	s.ask(s.agent, order{Do: "arm"})
	s.ask(s.dispatcher, order{Do: "arm"})
	s.decide("the agent's own", s.ask(s.dispatcher, order{Do: "agent_status"}))
	own := s.ask(s.agent, order{Do: "status"})
	s.expect(s.told.Status != nil && s.told.Status.Open && s.told.Status.AdmissionGeneration == 2, "the agent is %+v", s.told.Status)
	s.expect(own.Status != nil && own.Status.Generation == 1, "the session is %+v", own.Status)
	s.expect(s.ask(s.agent, order{Do: "commits"}).Count+s.ask(s.dispatcher, order{Do: "commits"}).Count == 0, "a read has made a commit")
	s.say(`The agent tells its session, its admission and how many calls are active; the dispatcher tells the session that it gave. Neither
		has committed anything.`)
}

// R107, A24.
func getBootstrap(s *stage) {
	s.pair()
	s.ask(s.dispatcher, order{Do: "arm"})
	s.decide("with a certificate alone", s.ask(s.agent, order{Do: "bootstrap"}))
	epoch := s.ask(s.dispatcher, order{Do: "epoch"})
	s.expect(s.told.Text == epoch.Text && epoch.Text != "", "the epoch is not the dispatcher's")
	s.expect(slices.Equal(s.told.Lines, []string{protocolVersion}), "the versions are %v", s.told.Lines)
	s.expect(s.ask(s.dispatcher, order{Do: "commits"}).Count == 0, "a read has made a commit")
	s.say(`Before there is a session, an agent with a certificate is told the versions and the epoch, and no secret.`)
}
