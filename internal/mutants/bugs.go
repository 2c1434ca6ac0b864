package main

// edit replaces one piece of a file, which must occur exactly once.
type edit struct{ file, old, new string }

// bug is a planted bug: a small patch of the product, and the tests that are to catch it. The product holds no switch for it.
type bug struct {
	name  string
	edits []edit
	pkg   string // of the tests
	run   string // which of them: go test's -run
}

const (
	brokerTests = "./internal/brokertest"
	pgTests     = "./store/pgstore"
)

// bugs are the ways in which such a library is usually wrong.
var bugs = []bug{
	{"staleness is checked before the key is looked up", []edit{{"broker/claim.go",
		"		res, err = b.lookBehind(ctx, claims, a)\n		return nil, res, err\n",
		"		return nil, nil, &contract.ConflictError{Failure: *contract.ErrStale, Drift: contract.DriftOf(a.Confirmation, a.Current)}\n"}},
		brokerTests, "TestMemory/Execute/S19"},
	{"no second look behind the barrier before stale and expired", []edit{{"broker/claim.go",
		"LookupParams{ID: a.keyID(), Barrier: true, Guards: a.Guards})\n	if err != nil {\n		return nil, err\n	}\n	res, err := b.answer",
		"LookupParams{ID: a.keyID(), Guards: a.Guards})\n	if err != nil {\n		return nil, err\n	}\n	res, err := b.answer"}},
		brokerTests, "TestRefusalsLookBehindTheBarrier"},
	{"the surface is read outside the transaction that claims", []edit{{"broker/executetx.go",
		"			a.Current, err = req.ReadSurface(ctx, tx)\n",
		"			other, _, err := b.store.Begin(ctx, store.Opening{ID: store.ID{Tenant: a.Tenant}})\n			if err != nil {\n				return err\n			}\n" +
			"			a.Current, err = req.ReadSurface(ctx, other)\n			_ = b.store.Rollback(ctx, other)\n"}},
		brokerTests, "TestPostgres/Execute(Tx|Atomic)/S13_the_surface"},
	{"the request's context is used for the broker's own writes", []edit{{"broker/broker.go",
		"context.WithTimeout(context.WithoutCancel(ctx), b.cfg.StoreTimeout)", "context.WithTimeout(ctx, b.cfg.StoreTimeout)"}},
		brokerTests, "TestMemory/Execute/S14_a_caller"},
	{"an unknown commit is taken for a failure", []edit{{"broker/record.go",
		"	return ok && e.Kind == nil\n", "	return ok && e.Kind == nil && false\n"}},
		brokerTests, "TestLostCommitsOfOwnTransactions"},
	{"an unknown commit is taken for a success", []edit{{"broker/peritem.go",
		"		return b.committedItem(ctx, a, it.ID, err)\n", "		return out, nil\n"}},
		brokerTests, "TestLostCommitsOfOwnTransactions"},
	{"what became of a commit is read without the barrier", []edit{{"broker/record.go",
		"Barrier: true, AwaitWrites: true}", "}"}},
		brokerTests, "TestLostWriteIsStillUnderWay"},
	{"a completion is not fenced", []edit{{"store/pgstore/sql.go",
		"outcomes = $6::bytea, unsettled = $7::boolean WHERE ` + held",
		"outcomes = $6::bytea, unsettled = $7::boolean WHERE c.{tenant} = $1 AND c.request_id = $2 AND c.boundary = 'operation' AND $3::text <> '' AND $4::uuid IS NOT NULL AND $5::bigint > 0`"}},
		pgTests, "TestConformance/exec/S21"},
	{"an item's transaction does not look at the fence", []edit{{"store/pgstore/sql.go",
		"	holdSQL = `SELECT 1 FROM {table} c WHERE ` + held + ` FOR NO KEY UPDATE`",
		"	holdSQL = `SELECT 1 FROM {table} c WHERE c.{tenant} = $1 AND c.request_id = $2 AND c.boundary = 'operation' AND $3::text <> '' AND $4::uuid IS NOT NULL AND $5::bigint > 0 FOR NO KEY UPDATE`"}},
		brokerTests, "TestPostgres/ExecutePerItem/S21_S14"},
	{"a claim whose lease is over is taken and run again", []edit{{"broker/broker.go",
		"return s.Claim != nil && s.Claim.Attempt == a.id", "return s.Claim != nil && (s.Claim.Attempt == a.id || s.Claim.LeaseOver && !s.Claim.Completed)"}},
		brokerTests, "TestMemory/Execute/S14_S8"},
	{"a claim is deleted when its executor failed", []edit{{"store/memstore/record.go",
		"	c := *r.claim\n	c.completed, c.settled", "	if p.Unsettled {\n		r.claim = nil\n		return r, nil\n	}\n	c := *r.claim\n	c.completed, c.settled"}},
		brokerTests, "TestMemory/Execute/S21_what_stays"},
	{"a purge deletes the key", []edit{{"store/memstore/keep.go",
		"	return r, lost\n}\n\n// doneBy", "	if lost {\n		r.claim, r.proposal = nil, nil\n	}\n	return r, lost\n}\n\n// doneBy"}},
		brokerTests, "TestMemory/Execute/S29_a_purged"},
	{"the unique index and the conflict target lack the tenant", []edit{
		{"store/pgstore/migrations/0001_claims.up.sql", "_operation ON {table} ({tenant}, request_id)", "_operation ON {table} (request_id)"},
		{"store/pgstore/sql.go", "$10::boolean\n              ELSE p.digest = $4::bytea AND ($8::bytea IS NOT NULL OR p.expires_at > clock_timestamp()) END\n  ON CONFLICT ({tenant}, request_id)",
			"$10::boolean\n              ELSE p.digest = $4::bytea AND ($8::bytea IS NOT NULL OR p.expires_at > clock_timestamp()) END\n  ON CONFLICT (request_id)"},
		{"store/pgstore/sql.go", "WHERE current_setting({setting}, true) = $3::text\n  ON CONFLICT ({tenant}, request_id) WHERE boundary = 'operation' DO NOTHING`",
			"WHERE current_setting({setting}, true) = $3::text\n  ON CONFLICT (request_id) WHERE boundary = 'operation' DO NOTHING`"}},
		brokerTests, "TestPostgres/Execute/S16_S11"},
	{"numbers that differ share a digest", []edit{{"contract/canonical.go",
		"tok.Kind() == jsontext.KindNumber && !isExact(tok.String())", "tok.Kind() == jsontext.KindNumber && !isExact(tok.String()) && false"}},
		"./contract", "."},
	{"outcomes are stored as jsonb", []edit{{"store/pgstore/sql.go",
		"completed_at = clock_timestamp(), outcomes = $6::bytea, unsettled = $7::boolean WHERE ` + held",
		"completed_at = clock_timestamp(), outcomes = convert_to(convert_from($6::bytea, 'UTF8')::jsonb::text, 'UTF8'), unsettled = $7::boolean WHERE ` + held"}},
		pgTests, "TestConformance/exec/S17"},
	{"an effect is invoked before UNKNOWN is committed", []edit{{"broker/mutate.go",
		"	err := b.store.Commit(endCtx, tx, closing)\n",
		"	if follows {\n		_, _ = m.Invoke(ctx, m.call(held))\n	}\n	err := b.store.Commit(endCtx, tx, closing)\n"}},
		brokerTests, "TestMemory/Mutate/R60"},
	{"an adapter's error is taken for not applied", []edit{{"broker/mutate.go",
		"contract.Receipt{Result: contract.ResultUnknown, Detail: problem}", "contract.Receipt{Result: contract.ResultNotApplied, Detail: problem}"}},
		brokerTests, "TestMemory/Mutate/R69"},
	{"another operation's execution is shared", []edit{{"broker/mutate.go",
		"	return contract.ErrSecondOperation\n", "	return nil\n"}},
		brokerTests, "TestMemory/Mutate/R53"},
	{"a fenced caller is shown the receipt", []edit{{"broker/mutate.go",
		"	if m.Guard == nil && !runs {", "	if m.Guard == nil || !runs {"}},
		brokerTests, "TestMemory/Mutate/R121"},
	{"not found is taken for not executed", []edit{{"broker/reconcile.go",
		"	if !isMissing(err) || o.Seal == nil {\n", "	if isMissing(err) {\n		return contract.Receipt{Result: contract.ResultNotApplied}, nil\n	}\n	if !isMissing(err) || o.Seal == nil {\n"}},
		brokerTests, "TestReconcile"},
	{"a fence is held by a lock that its mover passes by", []edit{{"store/pgstore/values.go",
		"	holdValueSQL = `SELECT 1 FROM {table} v WHERE ` + valueRow + ` AND current_setting({setting}, true) = $3::text FOR SHARE`",
		"	holdValueSQL = `SELECT 1 FROM {table} v WHERE ` + valueRow + ` AND current_setting({setting}, true) = $3::text FOR KEY SHARE`"}},
		pgTests, "TestConformanceWithoutTurns/.*/R118"},
	{"a newer session generation is let in", []edit{{"fencing/session.go",
		"says.Generation != s.Generation:", "says.Generation < s.Generation:"}},
		"./fencing", "."},
	{"a call that was sent is taken for one that was not", []edit{{"grpcerr/client.go",
		"contract.Decide(c.method, told, e.Delivery)", "contract.Decide(c.method, told, contract.NeverSent)"}},
		"./grpcerr", "TestWays"},
	{"another server's answer speaks for this call", []edit{{"grpcerr/encode.go",
		"c.failureStatus(f.WithUnknownEffect())", "c.failureStatus(f)"}},
		"./grpcerr", "TestForeignStatusStays"},
	{"the cursor moves before the publisher has confirmed", []edit{{"broker/publish.go",
		"		if err := guarded(func() error { return publish(ctx, q) }); err != nil {\n",
		"		if _, err := b.moveCursor(ctx, q, s.Claim, done); err != nil {\n			return false, err\n		}\n" +
			"		if err := guarded(func() error { return publish(ctx, q) }); err != nil {\n"}},
		brokerTests, "TestMemory/Facts/R100_R105"},
}
