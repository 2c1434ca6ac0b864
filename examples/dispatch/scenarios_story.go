package dispatch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/contract"
)

// stories are what goes wrong between the two.
var stories = []scenario{
	{"lost-reply", "the reply of an originate is lost", expectation{"applied", 1}, lostReply},
	{"newer-boot", "a newer boot fences the old one", expectation{"session_fenced", 1}, newerBoot},
	{"new-epoch", "another dispatcher takes office", expectation{"epoch_fenced", 1}, newEpoch},
	{"expired", "the authorization expires, before and after the claim", expectation{"not_applied", 0}, expired},
	{"stop-then-resume", "what was stopped is not resumed", expectation{"terminal_state", 1}, stopThenResume},
	{"stubborn-drain", "a call that does not end, then a redelivery", expectation{"applied", 1}, stubbornDrain},
	{"fact-conflict", "the same fact with another content", expectation{"key_reused", 0}, factConflict},
	{"queue-failure", "the upload is there, and the queue is not", expectation{"applied", 1}, queueFailure},
	{"adapter-failure", "the adapter fails, and it stays unknown until evidence", expectation{"applied", 1}, adapterFailure},
}

// R52, R60, R61, R63, R120.
func lostReply(s *stage) {
	s.ready()
	s.ask(s.agent, order{Do: "lose_reply", Method: "ExecuteAuthorized"})
	s.want("issued, and the connection is cut before the reply", "unknown", s.issue("e-1", "+49301"))
	s.want("the same again, at the dispatcher", "unknown, replayed", s.issue("e-1", "+49301"))
	kept := func() string {
		lines := slices.Concat(s.ask(s.agent, order{Do: "keys"}).Lines, s.ask(s.dispatcher, order{Do: "keys"}).Lines)
		s.expect(len(lines) > 4, "there is nothing in the databases: %v", lines)
		return strings.Join(lines, "\n")
	}
	keys := kept()
	s.decide("reconciled, by a query of the original", s.ask(s.dispatcher, order{Do: "reconcile", Execution: "e-1"}))
	s.expect(keys == kept(), "there is more than there was before it was reconciled: %s, then %s", keys, kept())
	heard := s.ask(s.agent, order{Do: "log"}).Lines
	at := slices.Index(heard, "ExecuteAuthorized op-e-1")
	s.expect(at >= 0 && at+1 < len(heard) && heard[at+1] == "QueryExecution", "after the lost reply the agent heard %v", heard)
	sent := slices.DeleteFunc(slices.Clone(heard), func(l string) bool { return !strings.HasPrefix(l, "Execute") })
	s.expect(len(sent) == 1, "it was sent %d times", len(sent))
	s.want("the same again", "applied, replayed", s.issue("e-1", "+49301"))
	s.note("the agent heard", "%s", strings.Join(heard[max(at, 0):], ", "))
	s.say(`The agent made the call, and the reply was lost with the connection. The dispatcher records UNKNOWN and sends nothing again. It
		queries the original execution: the receipt says that it was applied, and the dispatcher's own record advances on that
		evidence. No operation, execution or permit was made for it: both databases have the keys and the values that they had.`)
}

// R66, R112, R114, R116-R118, R121, R122.
func newerBoot(s *stage) {
	s.ready()
	s.ask(s.dispatcher, order{Do: "reserve", Reservation: "line-1/1"})
	s.ask(s.dispatcher, order{Do: "reserve", Reservation: "line-2/1"})
	done := order{Do: "permit", Op: "p-done", Reservation: "line-2/1", Execution: "e-9", Expected: 1}
	s.applied("a permit, before", s.ask(s.agent, done))
	old := s.agent
	s.restartAgent() // from the same database, while the old process lives
	toOld := func(o *order) { o.Boot, o.Generation = "boot-1", 1 }
	s.want("the new boot, before it has a session", "no_session", s.issue("e-0", "+49301", raw, toOld))
	s.applied("the new boot activates", s.activate())
	permit := order{Do: "permit", Op: "p-old", Reservation: "line-1/1", Execution: "e-1", Expected: 1}
	s.decide("a permit for the old process", s.ask(old, permit))
	s.want("what the old process was given, once more", "session_fenced", s.ask(old, done))
	s.want("a fact of the old process", "session_fenced", s.ask(old, order{Do: "send_fact", Fact: "f-1", Kind: "k", Content: "c"}))
	s.want("what was sent to the old boot, late", "session_fenced", s.issue("e-2", "+49302", raw, toOld))
	early := s.issue("e-3", "+49303", raw, func(o *order) { o.Boot, o.Generation = "boot-2", 9 })
	s.want("a generation that is not given yet", "session_fenced", early)
	s.applied("the reservation is untouched: the new boot gets its permit",
		s.ask(s.agent, permit))
	s.applied("and executes", s.ask(s.dispatcher, order{Do: "execute", Op: "x-1", Execution: "e-1", Number: "+49301"}))
	s.say(`A second process of the agent starts from the same database, and activates. From then on the first one, which still lives, is
		UNAUTHENTICATED at the dispatcher, and what was sent to it before is at the agent. What the old session held is as it was.`)
}

// R111-R113.
func newEpoch(s *stage) {
	s.ready()
	old := s.dispatcher
	epoch := s.ask(old, order{Do: "epoch"})
	s.restartDispatcher() // from the same database, while the old one lives
	next := s.ask(s.dispatcher, order{Do: "epoch"})
	s.expect(epoch.Text != next.Text && next.Text != "", "the epoch is the old one")
	s.want("the agent, with the epoch that it knows", "epoch_fenced",
		s.ask(s.agent, order{Do: "send_fact", Fact: "f-1", Kind: "k", Content: "c"}))
	s.applied("it activates with the new one", s.activate())
	issue := order{
		Do: "execute_authorized", Op: "op-e-1", Execution: "e-1", Number: "+49301", DeadlineMS: time.Now().Add(time.Hour).UnixMilli(),
	}
	s.want("the old dispatcher, at its own database", "epoch_fenced", s.ask(old, issue))
	issue.Raw = true
	s.decide("the old dispatcher, straight to the agent", s.ask(old, issue)) // to the agent, past its own database
	s.applied("the new dispatcher", s.issue("e-1", "+49301"))
	s.say(`Another instance takes office over the same database: a new epoch, which nobody had before. The old one, which still lives, is
		refused by its own database, and by the agent when it sends all the same. Epochs are equal or not, and that is all.`)
}

// R64, R65.
func expired(s *stage) {
	s.ready()
	past := func(o *order) { o.DeadlineMS = time.Now().Add(-time.Second).UnixMilli() }
	s.want("with a deadline that is over", "not_applied", s.issue("e-1", "+49301", past))
	refusal := s.issue("e-2", "+49301", past, raw)
	s.want("what the agent answers", "authorization_expired", refusal)
	kept := s.want("what it has recorded", "not_applied, replayed", s.ask(s.dispatcher, order{Do: "query", Execution: "e-1"}))
	s.expect(kept.receipt().Detail != "", "there is no evidence")
	s.ask(s.agent, order{Do: "delay", N: int64(900 * time.Millisecond)})
	soon := func(o *order) { o.DeadlineMS = time.Now().Add(700 * time.Millisecond).UnixMilli() }
	s.decide("with a deadline that passes before the adapter is invoked", s.issue("e-3", "+49301", soon))
	later := s.ask(s.dispatcher, order{Do: "query", Execution: "e-3"})
	s.note("evidence", "%s; %s", kept.receipt().Detail, later.receipt().Detail)
	s.say(`A deadline is exclusive, and judged by the agent's clock: once when the operation is claimed, and once more right before the
		adapter. Both times the adapter was not invoked, and that is known and recorded, and not unknown.`)
}

// R79, R80, A23.
func stopThenResume(s *stage) {
	s.ready()
	s.applied("issued", s.issue("e-1", "+49301hold"))
	control := func(op, action string, expected int64, authorization string) answer {
		return s.ask(s.dispatcher, order{
			Do: "control", Op: op, Execution: "e-1", Action: action, Expected: expected, Authorization: authorization, Raw: true,
		})
	}
	s.applied("stop", control("c-1", "STOP", 1, ""))
	s.decide("resume, with a new authorization", control("c-2", "RESUME", 2, "auth-new"))
	s.want("pause", "terminal_state", control("c-3", "PAUSE", 2, ""))
	s.want("another stop", "already_stopped", control("c-4", "STOP", 2, ""))
	s.want("the first stop again", "applied, replayed", control("c-1", "STOP", 1, ""))
	s.say(`STOP is for ever: neither a new authorization nor the right revision takes it back.`)
}

// R88, R90-R92.
func stubbornDrain(s *stage) {
	s.ready()
	s.applied("issued", s.issue("e-1", "+49301stubborn"))
	stop := order{Do: "approved_stop", Tenant: "7", Task: "41"}
	task := func() string {
		told := s.ask(s.dispatcher, order{Do: "task"})
		return fmt.Sprint(told.Text, " in ", told.Count)
	}
	s.expect(task() == "RUNNING in 1", "before it, the dispatcher's task is %s", task())
	s.want("stop", "drain_timeout", s.ask(s.dispatcher, stop))
	s.expect(task() == "STOPPED in 2", "after the timeout, the dispatcher's task is %s", task())
	now := s.ask(s.dispatcher, order{Do: "agent_status"})
	s.expect(now.Status != nil && now.Status.Stopped && now.Status.ActiveCalls == 1, "the agent is %+v", now.Status)
	s.want("new work meanwhile, at the dispatcher", "refused", s.issue("e-2", "+49302"))
	s.want("and straight at the agent", "terminal_state", s.issue("e-3", "+49302", raw))
	s.want("an opening meanwhile", "terminal_state",
		s.ask(s.dispatcher, order{Do: "admission", Op: "op-late", Barrier: "b-late", Expected: 3, Open: true}))
	s.ask(s.agent, order{Do: "end_call", Execution: "e-1"})
	s.decide("the stop, delivered again", s.ask(s.dispatcher, stop))
	s.expect(task() == "STOPPED in 2", "after the second delivery, the dispatcher's task is %s", task())
	s.expect(s.told.receipt().Barrier != nil && s.told.receipt().Barrier.ActiveCalls == 0, "there is no barrier in the receipt")
	s.say(`The call does not end when it is hung up. When the time is up the answer is DEADLINE_EXCEEDED, and the barrier stays closed. The
		dispatcher's own record of the task, which its decisions rest on, is stopped from the start, whatever the agent answers. The
		call ends, the stop is delivered once more, and is applied: with the evidence that nothing is active.`)
}

// R95, R96.
func factConflict(s *stage) {
	s.ready()
	first := order{Do: "send_fact", Fact: "f-1", Kind: "call.ended", Content: `{"seconds":7}`}
	s.applied("the fact", s.ask(s.agent, first))
	other := first
	other.Content = `{"seconds":8}`
	s.decide("the same fact with another content", s.ask(s.agent, other))
	s.want("the first one again", "applied, replayed", s.ask(s.agent, first))
	s.awaitPublished(ofAgent, "f-1")
	lines, err := readLines[published](s.queue())
	s.expect(err == nil && len(lines) == 1 && lines[0].Content == first.Content, "the queue has %v (%v)", lines, err)
	first.Do, other.Do = "report", "report"
	s.want("in the agent's own outbox", "applied, replayed", s.ask(s.agent, first))
	s.want("and there with another content", "key_reused", s.ask(s.agent, other))
	s.say(`A fact is known by its id, and its digest is compared, not part of the key: another content is in conflict, and the first one is
		kept. The same is true of the agent's own outbox.`)
}

// R100-R102.
func queueFailure(s *stage) {
	s.ready()
	s.applied("issued", s.issue("e-1", "+49301"))
	granted := s.applied("request", s.ask(s.agent, order{
		Do: "request_upload", Op: "u-1", Execution: "e-1", Content: "audio", Target: s.set.target.prefix,
	}))
	s.expect(s.ask(s.agent, order{Do: "put", Target: granted.Text, Content: "audio"}).Count == 201, "the PUT was not stored")
	s.ask(s.dispatcher, order{Do: "fail_queue", N: 1})
	done := order{Do: "complete_upload", Op: "d-1", Upload: granted.receipt().Ref, Content: "audio"}
	failed := s.want("complete", "unavailable", s.ask(s.agent, done))
	s.expect(failed.Failure != nil && failed.Failure.Effect == "none", "the failure is %+v", failed.Failure)
	fact := "recording.uploaded/" + granted.receipt().Ref
	s.want("the fact", "no_fact", s.ask(s.dispatcher, order{Do: "fact", Source: ofDispatcher, Fact: fact}))
	s.want("the same again, without having done anything", "not_resent", s.ask(s.agent, done))
	done.Again = contract.Reconcile
	s.decide("the same again, after it has looked", s.ask(s.agent, done))
	s.awaitPublished(ofDispatcher, fact)
	s.say(`The recording is at the target, but its fact cannot be queued: so nothing is completed, and the agent is told that nothing was
		done. Only after it has looked does its library let the operation out once more. The fact is there once.`)
}

// R55, R60, R61, R69.
func adapterFailure(s *stage) {
	s.ready()
	s.want("issued, and the line breaks", "unknown", s.issue("e-1", "+49301fail"))
	s.want("the same again, at the agent", "unknown, replayed", s.issue("e-1", "+49301fail", raw))
	s.want("the agent's record", "unknown, replayed", s.ask(s.dispatcher, order{Do: "query", Execution: "e-1"}))
	s.want("reconciled without evidence", "unknown, replayed", s.ask(s.dispatcher, order{Do: "reconcile", Execution: "e-1"}))
	settled := s.ask(s.agent, order{Do: "settle"})
	s.expect(settled.Count == 1, "%d were settled, not 1 (%+v)", settled.Count, settled.Failure)
	s.decide("reconciled, by a query of the original", s.ask(s.dispatcher, order{Do: "reconcile", Execution: "e-1"}))
	s.expect(s.told.receipt().Ref != "" && s.told.receipt().By != "", "the receipt is %+v", s.told.receipt())
	s.say(`The adapter says that the line broke, and nobody knows whether it called before that. It stays UNKNOWN at both, through every
		repetition and query. The agent's reconciler then reads the adapter's ledger, which has the call; the dispatcher takes that as
		its evidence.`)
}
