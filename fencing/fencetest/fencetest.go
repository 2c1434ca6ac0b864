// Package fencetest is the conformance suite of the fencing rules: what it accepts keeps out what is too late. Call [Run] from the
// tests of an implementation, be it package fencing on another store or a service's own; it needs nothing but a [Harness]:
//
//	func TestFencing(t *testing.T) {
//		fencetest.Run(t, func(t *testing.T) fencetest.Harness[pgx.Tx] { return fencetest.Of(newStore(t), "firm-1") })
//	}
//
// The names of the subtests are stable, so that an implementation may be tracked by them, and carry the numbers of the requirements
// that they prove (R) and of the invariants (J). Every failure says which rule is broken. No case reads a clock: the few that wait
// do so only to give a broken implementation the time to show that it is.
//
// The invariants J5, J6, J7, J8, J15, J16 and J20 are of the broker, and J9 and J13 also: their cases run through broker.Mutate on
// the harness's store, with the implementation as its guard. J17 and J18, of facts and their outbox, run through broker.QueueFact under
// the implementation's fence. A harness without a store has none of them.
package fencetest

import "testing"

// Run tests an implementation. newHarness is called once for each subtest and returns an empty database; what it opens it closes
// with t.Cleanup. The subtests run one after the other.
func Run[TTx any](t *testing.T, newHarness func(t *testing.T) Harness[TTx]) {
	t.Helper()
	s := suite[TTx]{t, newHarness}
	s.offices()
	s.sessions()
	s.races()
	s.tokens()
	s.admissions()
	s.tasks()
	s.permits()
	s.gates()
	s.mutations()
}

type suite[TTx any] struct {
	*testing.T
	newHarness func(t *testing.T) Harness[TTx]
}

// run runs a case, unless the harness lacks what it needs.
func (s suite[TTx]) run(name string, test func(k *kit[TTx]), needs ...func(h Harness[TTx]) bool) {
	s.Run(name, func(t *testing.T) {
		h := s.newHarness(t)
		for _, has := range needs {
			if !has(h) {
				t.Skip("the harness has no such part")
			}
		}
		test(newKit(t, h))
	})
}

func hasJoins[TTx any](h Harness[TTx]) bool      { return h.Joins != nil }
func hasTokens[TTx any](h Harness[TTx]) bool     { return h.Tokens != nil }
func hasAdmissions[TTx any](h Harness[TTx]) bool { return h.Admissions != nil }
func hasTasks[TTx any](h Harness[TTx]) bool      { return h.Tasks != nil }
func hasPermits[TTx any](h Harness[TTx]) bool    { return h.Permits != nil }
func hasGate[TTx any](h Harness[TTx]) bool       { return h.Gate != nil && h.Admissions != nil }
func hasStore[TTx any](h Harness[TTx]) bool      { return h.Store != nil }

func (s suite[TTx]) offices() {
	s.run("J1 R111 an office has a new epoch and a higher number", officeCounts[TTx])
	s.run("J3 J14 R112 another epoch than the active one is refused", officeFences[TTx])
	s.run("R113 an epoch is compared by equality", officeOpaque[TTx])
	s.run("R112 a scope without an office refuses every epoch", officeEmpty[TTx])
	s.run("R111 an office that was rolled back never was", officeRolledBack[TTx])
	s.run("J2 R111 of many that take office at once the last is active", officeRace[TTx])
}

func (s suite[TTx]) sessions() {
	s.run("J1 R36 an activation raises the generation by one", sessionCounts[TTx])
	s.run("J4 J12 R116 a newer session fences every older one", sessionFences[TTx])
	s.run("J12 R114 R115 R122 all of a caller's identity is compared", sessionBinding[TTx])
	s.run("J14 a refusal names the number that stands", sessionCurrent[TTx])
	s.run("J2 R115 an agent is not another one by saying so", sessionOfAnother[TTx])
	s.run("R40 R66 without an approval or a session nothing is done", sessionUnapproved[TTx])
	s.run("J1 R116 another approval ends the session and counts on", sessionReapproved[TTx])
	s.run("J4 R112 a deposed dispatcher approves and activates nobody", deposedDispatcher[TTx])
	s.run("J2 R41 of many activations at once the last is current", sessionRace[TTx])
	s.run("J1 R39 a session that was given later stays", joinLater[TTx], hasJoins[TTx])
	s.run("J4 R116 a process that starts again leaves its session", leaveAtStart[TTx], hasJoins[TTx])
	s.run("J1 R49 numbers rise over a restart", restartCounts[TTx])
}

func (s suite[TTx]) races() {
	s.run("J3 R118 a writer waits for a move that commits", eachMove(moverFirst[TTx](true)))
	s.run("J3 R118 a writer waits for a move that is rolled back", eachMove(moverFirst[TTx](false)))
	s.run("J3 R118 a move waits for a writer, or undoes it", eachMove(writerFirst[TTx]))
	s.run("J3 J4 R118 many writers and movers at once", raceWriters[TTx])
	s.run("J2 R41 an activation waits for another", activationFollows[TTx])
	s.run("J4 R118 an activation waits for a dispatcher that takes office", officeOvertakes[TTx])
}

func (s suite[TTx]) tokens() {
	s.run("J4 J14 R56 a token below the highest is stale", tokenStale[TTx], hasTokens[TTx])
	s.run("J1 R56 a token is remembered when it is committed", tokenRolledBack[TTx], hasTokens[TTx])
	s.run("J1 R56 a token is remembered over a restart", restartToken[TTx], hasTokens[TTx])
	s.run("J12 R56 a fenced caller shows no token", tokenFenced[TTx], hasTokens[TTx])
	s.run("J4 R56 many tokens at once never fall", tokenRace[TTx], hasTokens[TTx])
	s.run("J4 R56 a token waits for a higher one", tokenOvertakes[TTx], hasTokens[TTx])
}

func (s suite[TTx]) admissions() {
	s.run("J9 R43 a change of admission moves the generation by one", admissionCounts[TTx], hasAdmissions[TTx])
	s.run("J14 R45 R47 a generation that does not stand is refused", admissionStale[TTx], hasAdmissions[TTx])
	s.run("J9 R44 R46 a barrier moves the generation once", admissionOnce[TTx], hasAdmissions[TTx])
	s.run("J11 R48 R119 a barrier is reached when nothing is active", admissionDrains[TTx], hasAdmissions[TTx])
	s.run("J10 R92 a stop of admission is for ever", admissionStops[TTx], hasAdmissions[TTx])
	s.run("J12 R112 a fenced caller changes no admission", admissionFenced[TTx], hasAdmissions[TTx])
	s.run("J9 R45 of many changes from one generation one is made", admissionRace[TTx], hasAdmissions[TTx])
	s.run("J9 R45 a change waits for another from its generation", admissionOvertakes[TTx], hasAdmissions[TTx])
	s.run("J1 R49 admission is the same after a restart", restartAdmission[TTx], hasAdmissions[TTx])
	s.run("J11 R57 new work waits for a close that commits", eachClose(moverFirst[TTx](true)), hasAdmissions[TTx])
	s.run("J11 R57 new work waits for a close that is rolled back", eachClose(moverFirst[TTx](false)), hasAdmissions[TTx])
	s.run("J11 R57 a close waits for new work, or undoes it", eachClose(writerFirst[TTx]), hasAdmissions[TTx])
}

func (s suite[TTx]) tasks() {
	s.run("J1 R77 R81 a control moves the revision by one", taskCounts[TTx], hasTasks[TTx])
	s.run("J14 R83 R84 a revision that does not stand is refused", taskStale[TTx], hasTasks[TTx])
	s.run("J10 R79 STOP is for ever", taskStops[TTx], hasTasks[TTx])
	s.run("R81 R82 a resume needs a new authorization", taskResumes[TTx], hasTasks[TTx])
	s.run("J12 R112 a fenced caller controls no task", taskFenced[TTx], hasTasks[TTx])
	s.run("J1 J10 R77 of many controls from one revision one is made", taskRace[TTx], hasTasks[TTx])
	s.run("J10 R77 a control waits for a stop from its revision", taskOvertakes[TTx], hasTasks[TTx])
	s.run("J1 R49 a task is the same after a restart", restartTask[TTx], hasTasks[TTx])
}

func (s suite[TTx]) permits() {
	s.run("J13 R54 a permit is consumed once", permitOnce[TTx], hasPermits[TTx])
	s.run("J13 R51 of many that consume a permit one does", permitRace[TTx], hasPermits[TTx])
	s.run("J13 R51 a permit that is being consumed is not consumed again", consumptionOvertakes[TTx], hasPermits[TTx])
	s.run("R51 R64 a permit is of one session, and has an end", permitSpoilt[TTx], hasPermits[TTx])
	s.run("R57 a closed admission consumes no permit", permitClosed[TTx], hasPermits[TTx])
	s.run("J13 R72 R74 no permit of a reservation that is over", permitEnded[TTx], hasPermits[TTx])
	s.run("J13 R73 a permit is void once its reservation has ended", permitVoid[TTx], hasPermits[TTx])
	s.run("J13 R76 an execution has one permit", permitSecond[TTx], hasPermits[TTx])
	s.run("J19 R117 no lease is released without evidence, or by another", permitLeases[TTx], hasPermits[TTx])
	s.run("J12 R51 a fenced caller has no permits", permitFenced[TTx], hasPermits[TTx])
	s.run("J13 R72 permits that are asked for while it is fenced", permitIssueRace[TTx], hasPermits[TTx])
	s.run("J13 R72 a permit waits for the fence of its reservation", fenceOvertakes[TTx], hasPermits[TTx])
	s.run("J1 R49 a resource's tokens rise over a restart", restartPermits[TTx], hasPermits[TTx])
}

func (s suite[TTx]) gates() {
	s.run("J11 R88 R90 a barrier counts the registered calls", gateCounts[TTx], hasGate[TTx])
	s.run("J11 R92 an opening from before a close opens nothing", gateGenerations[TTx], hasGate[TTx])
	s.run("J10 R92 a gate that was stopped is never open again", gateStops[TTx], hasGate[TTx])
	s.run("J1 R49 a gate begins as admission stands", gateStarts[TTx], hasGate[TTx])
	s.run("J11 R89 a call is registered before a close, or not at all", gateRace[TTx], hasGate[TTx])
}

func (s suite[TTx]) mutations() {
	s.run("J7 J20 R26 R29 many deliveries have one effect and one receipt", mutationReplays[TTx], hasStore[TTx])
	s.run("J8 R27 R32 other content is a conflict and changes nothing", mutationConflicts[TTx], hasStore[TTx])
	s.run("J5 R62 an execution is originated once", mutationOnce[TTx], hasStore[TTx])
	s.run("J16 R58 R59 an execution has one decision", mutationDecided[TTx], hasStore[TTx])
	s.run("J6 J15 R60 R61 UNKNOWN comes before the effect, and advances once", mutationUnknown[TTx], hasStore[TTx])
	s.run("J15 R60 without a commit there is no effect", mutationUncommitted[TTx], hasStore[TTx])
	s.run("J12 R121 a fenced caller gets no receipt and leaves no claim", mutationFenced[TTx], hasStore[TTx])
	s.run("J3 R118 a fence that moves under a mutation", eachMove(mutationMoved[TTx]), hasStore[TTx])
	s.run("J9 R44 R46 a barrier's operation moves the generation once", mutationBarrier[TTx], hasStore[TTx], hasAdmissions[TTx])
	s.run("J17 R95 R96 R98 a fact is queued once", factOnce[TTx], hasStore[TTx])
	s.run("J18 R100 R101 what completes queues its fact with it", factCompletes[TTx], hasStore[TTx])
	s.run("J13 R50 R53 R54 a permit's operation consumes it once", mutationPermit[TTx], hasStore[TTx], hasPermits[TTx])
}
