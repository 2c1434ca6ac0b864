package contracttest_test

import (
	"strings"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/contract/contracttest"
)

type (
	method   = contract.Method
	failure  = contract.Failure
	delivery = contract.Delivery
	decision = contract.Decision
)

// table is a retry table with something wrong.
func table(change func([]contract.Rule) []contract.Rule) impl {
	rows := func() []contract.Rule { return change(contract.RetryTable()) }
	return impl{RetryTable: rows, Rule: func(code contract.FailureCode) (contract.Rule, bool) {
		for _, r := range rows() {
			if r.Code == code {
				return r, true
			}
		}
		return contract.Rule{}, false
	}}
}

func deciding(change func(method, *failure, delivery, decision) decision) impl {
	return impl{Decide: func(m method, f *failure, d delivery) decision {
		return change(m, f, d, contract.Decide(m, f, d))
	}}
}

func naming(change func(name string, m method) method) impl {
	return impl{MethodOf: func(service, name string) method {
		return change(name, contract.AgentMethods(service).Of(name))
	}}
}

func wrongFailures() []wrong {
	row := func(i int, change func(*contract.Rule)) impl {
		return table(func(rows []contract.Rule) []contract.Rule {
			change(&rows[i])
			return rows
		})
	}
	return append([]wrong{
		{"an aborted mutation is known to have done nothing", row(4, func(r *contract.Rule) { r.Effect = contract.EffectNone }),
			"retry_table/code ABORTED"},
		{"an unavailable service is asked again", row(6, func(r *contract.Rule) { r.Action = contract.RetryRead }),
			"retry_table/code UNAVAILABLE"},
		{"what was not found is created", row(8, func(r *contract.Rule) { r.Action = contract.SendOriginal }), "retry_table/code NOT_FOUND"},
		{"an eleventh code", table(func(rows []contract.Rule) []contract.Rule {
			return append(rows, contract.Rule{Code: "INTERNAL", GRPC: 13, Action: contract.Reconcile, Effect: contract.EffectUnknown})
		}), "retry_table/no code: INTERNAL"},
		{"a table in another order", table(func(rows []contract.Rule) []contract.Rule {
			rows[0], rows[1] = rows[1], rows[0]
			return rows
		}), "retry_table/the ten codes, in their order"},

		{"a code for every status", coding(func(uint32) (contract.FailureCode, bool) { return contract.Unavailable, true }),
			"grpc_codes/status 13, INTERNAL, has no code"},
		{"a code for OK", coding(func(s uint32) (contract.FailureCode, bool) { return contract.AlreadyExists, s == 0 }),
			"grpc_codes/status 0, OK, has no code"},
		{"two statuses that are swapped", coding(func(s uint32) (contract.FailureCode, bool) { return contract.FailureCodeOfGRPC(s ^ 3) }),
			"grpc_codes/status 9 is FAILED_PRECONDITION"},

		{"a status for a code that is none", impl{GRPCStatus: func(f *failure) uint32 {
			if _, ok := f.Code.Rule(); !ok {
				return 14
			}
			return grpcStatus(f)
		}}, "grpc_statuses/no code at all is a failure of the server"},
		{"stale as aborted", impl{GRPCStatus: func(f *failure) uint32 {
			if f.Reason == contract.ReasonStale {
				return 10
			}
			return grpcStatus(f)
		}}, "grpc_statuses/answer: stale"},
		{"every conflict is 409", impl{HTTPStatus: func(f *failure) int { return min(httpStatus(f), 421) }},
			"http_statuses/answer: the key stands for other content"},
		{"not found for what is refused", impl{HTTPStatus: func(f *failure) int {
			if f.Code == contract.PermissionDenied {
				return 404
			}
			return httpStatus(f)
		}}, "http_statuses/code PERMISSION_DENIED"},

		{"every ABORTED is a conflict", resulting(func(f *failure, r contract.ResultCode) contract.ResultCode {
			if f.Code == contract.Aborted && r == contract.ResultNotApplied {
				return contract.ResultConflict
			}
			return r
		}), "failure_results/R45 a revision that has moved"},
		{"a conflict whatever its effect", resulting(func(f *failure, r contract.ResultCode) contract.ResultCode {
			if f.Reason == contract.ReasonKeyReused || f.Reason == contract.ReasonSecondOperation {
				return contract.ResultConflict
			}
			return r
		}), "failure_results/a conflict that a server relays"},
		{"what is not known is not applied", resulting(func(_ *failure, r contract.ResultCode) contract.ResultCode {
			if r == contract.ResultUnknown {
				return contract.ResultNotApplied
			}
			return r
		}), "failure_results/code UNAVAILABLE"},
		{"a denial that is merely not applied", resulting(func(f *failure, r contract.ResultCode) contract.ResultCode {
			if f.Code == contract.PermissionDenied && r == contract.ResultStopped {
				return contract.ResultNotApplied
			}
			return r
		}), "failure_results/R7 denied"},
		{"a code that is none with an effect that is known", resulting(func(f *failure, r contract.ResultCode) contract.ResultCode {
			if f.Effect == contract.EffectNone && r == contract.ResultUnknown {
				return contract.ResultNotApplied
			}
			return r
		}), "failure_results/a code that is none"},
	}, wrongDecisions()...)
}

func resulting(change func(*failure, contract.ResultCode) contract.ResultCode) impl {
	return impl{FailureResult: func(f *failure) contract.ResultCode { return change(f, f.Result()) }}
}

func coding(of func(uint32) (contract.FailureCode, bool)) impl { return impl{CodeOfGRPC: of} }

func wrongDecisions() []wrong {
	return []wrong{
		{"a mutation is sent again after UNAVAILABLE", deciding(func(m method, f *failure, _ delivery, d decision) decision {
			if f != nil && f.Code == contract.Unavailable && !m.ReadOnly {
				d.SameOperation = true
			}
			return d
		}), "decisions/originating: UNAVAILABLE, effect by_code"},
		{"a bare failure is trusted", deciding(func(_ method, f *failure, _ delivery, d decision) decision {
			if f != nil && f.Effect == contract.EffectNone {
				d.Effect = contract.EffectNone
			}
			return d
		}), "decisions/originating: INTERNAL, effect none"},
		{"an unknown effect is taken for the code's", deciding(func(m method, f *failure, e delivery, d decision) decision {
			if f != nil && f.Effect == contract.EffectUnknown {
				return contract.Decide(m, &failure{Code: f.Code}, e)
			}
			return d
		}), "decisions/resendable: INVALID_ARGUMENT, effect unknown"},
		{"what was never sent is queried", deciding(func(m method, f *failure, _ delivery, d decision) decision {
			if f == nil && !m.ReadOnly {
				return decision{Action: contract.Reconcile, Effect: contract.EffectUnknown, SameOperation: m.Resend}
			}
			return d
		}), "decisions/originating: no failure, never_sent"},
		{"what a server has begun is sent for the first time", deciding(func(m method, f *failure, e delivery, d decision) decision {
			if f == nil && e == contract.ServerSeen {
				return contract.Decide(m, nil, contract.NeverSent)
			}
			return d
		}), "decisions/originating: no failure, server_seen"},
		{"an execution is originated again once its state is fresh", deciding(func(m method, f *failure, e delivery, d decision) decision {
			m.Resend = true
			return contract.Decide(m, f, e)
		}), "decisions/originating: FAILED_PRECONDITION, effect by_code"},
		{"reads are not repeated", deciding(func(_ method, _ *failure, _ delivery, d decision) decision {
			d.SameOperation = d.SameOperation && d.Action != contract.RetryRead
			return d
		}), "decisions/read-only: UNAVAILABLE, effect by_code"},

		{"what begins with Get is a read", naming(func(name string, m method) method {
			m.ReadOnly = m.ReadOnly || strings.Contains(name, "/Get")
			return m
		}), "methods/GetExecutionPermit"},
		{"methods are told by their last word", impl{MethodOf: func(service, name string) method {
			return contract.AgentMethods(service).Of("/" + service + name[strings.LastIndex(name, "/"):])
		}}, "methods/a listed method of another service"},
		{"an execution may be sent again", naming(func(name string, m method) method {
			m.Resend = m.Resend || strings.HasSuffix(name, "/Execute")
			return m
		}), "methods/Execute"},
		{"a stop is delivered once", naming(func(_ string, m method) method {
			m.Redelivered = false
			return m
		}), "methods/ApplyApprovedTaskControl"},
	}
}

func wrongKeys() []wrong {
	keys := func(bug toyBug) impl { return impl{Keys: toyKeys(bug)} }
	return []wrong{
		{"stale before replay", keys(toyBug{staleFirst: true}), "keys/S19 replay comes before stale"},
		{"in progress before conflict", keys(toyBug{progressFirst: true}), "keys/S20 conflict comes before in progress"},
		{"a replay for whoever asks", keys(toyBug{deniedLate: true}), "keys/S33 denied comes before the replay"},
		{"denied before conflict", keys(toyBug{deniedFirst: true}), "keys/S20 conflict comes before denied"},
		{"a lease whose end lets another one run", keys(toyBug{leaseFrees: true}), "keys/S14 within the lease a crash looks like a run"},
		{"a crash that is in progress for ever", keys(toyBug{neverAmbiguous: true}), "keys/S14 within the lease a crash looks like a run"},
		{"a purge that opens a key again", keys(toyBug{purgeFrees: true}), "keys/S29 no purge opens a key again"},
		{"a tombstone that matches every content", keys(toyBug{conflictsEnd: true}), "keys/S20 conflict with a key whose payload is gone"},
		{"a verdict that flips", keys(toyBug{flips: true}), "keys/S21 a verdict never flips"},
		{"an attempt that writes after it was fenced", keys(toyBug{lateWrites: true}), "keys/S21 an attempt that wakes up late is fenced"},
		{"what ran is cancelled", keys(toyBug{cancelsAll: true}), "keys/S29 what ran is not cancelled"},
		{"a key of every tenant", keys(toyBug{anyTenant: true}), "keys/S11 another tenant's key"},
		{"a key that nobody minted runs", keys(toyBug{unmintedRuns: true}), "keys/S11 a key that was never minted"},
		{"stale before expired", keys(toyBug{expiredLate: true}), "keys/S31 expired comes before stale"},
		{"a stale confirm that claims", keys(toyBug{staleClaims: true}), "keys/S13 a stale confirm claims nothing"},
	}
}

func wrongFencing() []wrong {
	type (
		office  = contracttest.Office
		session = contracttest.Session
		caller  = contracttest.Caller
		mark    = contracttest.Mark
	)
	admitting := func(change func(session, caller) (session, caller)) impl {
		return impl{Admit: func(s session, c caller) error { return admit(change(s, c)) }}
	}
	return append([]wrong{
		{"a later epoch is let in", impl{EpochIs: func(o office, shown string) error { return epochIs(o, min(shown, o.Epoch)) }},
			"fencing_epochs/one that sorts after it"},
		{"no epoch means the first", impl{EpochIs: func(o office, shown string) error {
			if o.Epoch == "" {
				return nil
			}
			return epochIs(o, shown)
		}}, "fencing_epochs/nobody is active"},
		{"an epoch is taken again", impl{TakeOffice: func(o office, epoch string) (office, error) {
			return takeOffice(office{Number: o.Number}, epoch)
		}},
			"fencing_offices/the same again"},
		{"offices are not counted", impl{TakeOffice: func(o office, epoch string) (office, error) {
			after, err := takeOffice(o, epoch)
			after.Number = max(o.Number, 1)
			return after, err
		}}, "fencing_offices/the next"},

		{"a higher generation is let in", admitting(func(s session, c caller) (session, caller) {
			c.Says.Generation = min(c.Says.Generation, s.Generation)
			return s, c
		}), "fencing_sessions/a higher generation"},
		{"the boot is not compared", admitting(func(s session, c caller) (session, caller) {
			c.Says.BootID = s.BootID
			return s, c
		}), "fencing_sessions/another boot"},
		{"the cell is not compared", admitting(func(s session, c caller) (session, caller) {
			c.Says.CellID = s.CellID
			return s, c
		}), "fencing_sessions/another cell"},
		{"no epoch means any", admitting(func(s session, c caller) (session, caller) {
			if c.Epoch == "" {
				c.Epoch = s.Epoch
			}
			return s, c
		}), "fencing_sessions/no epoch"},
		{"what a caller says authorizes", admitting(func(s session, c caller) (session, caller) {
			s.AgentID, s.CellID = c.Says.AgentID, c.Says.CellID
			return s, c
		}), "fencing_sessions/another agent"},

		{"a caller chooses its generation", impl{Activate: func(s session, c caller) (session, error) {
			after, err := activate(s, c)
			if err == nil && c.Says.Generation > after.Generation {
				after.Generation = c.Says.Generation
			}
			return after, err
		}}, "fencing_activations/what the caller says of the generation does not count"},
		{"nobody approves an agent", impl{Activate: func(s session, c caller) (session, error) {
			s.AgentID, s.CellID = c.Says.AgentID, c.Says.CellID
			return activate(s, c)
		}}, "fencing_activations/nobody is approved"},
	}, wrongTokens()...)
}

func wrongTokens() []wrong {
	type mark = contracttest.Mark
	return []wrong{
		{"an equal token of anybody is let in", impl{ShowToken: func(m mark, token int64, holder string) (mark, error) {
			if token == m.Token {
				m.Holder = holder
			}
			return showToken(m, token, holder)
		}}, "fencing_tokens/the same one of another holder"},
		{"a lower token of the same holder is let in", impl{ShowToken: func(m mark, token int64, holder string) (mark, error) {
			if holder == m.Holder && token > 0 {
				return mark{Token: token, Holder: holder}, nil
			}
			return showToken(m, token, holder)
		}}, "fencing_tokens/a lower one of the same holder"},
		{"no token means any", impl{ShowToken: func(m mark, token int64, holder string) (mark, error) {
			if token == 0 {
				return m, nil
			}
			return showToken(m, token, holder)
		}}, "fencing_tokens/zero"},
	}
}
