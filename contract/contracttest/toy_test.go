package contracttest_test

import (
	"cmp"
	"strconv"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/contract/contracttest"
)

// complete is package contract, with small implementations of the rest from the vectors' own descriptions.
func complete() contracttest.Implementation {
	i := contracttest.Contract()
	i.Strict = true
	i.GRPCStatus, i.HTTPStatus = grpcStatus, httpStatus
	i.Keys = toyKeys(toyBug{})
	i.EpochIs, i.TakeOffice, i.Admit, i.Activate, i.ShowToken, i.Before = epochIs, takeOffice, admit, activate, showToken, before
	return i
}

func grpcStatus(f *contract.Failure) uint32 {
	if rule, ok := f.Code.Rule(); ok {
		return rule.GRPC
	}
	return 13
}

func httpStatus(f *contract.Failure) int {
	if f.Code == contract.Aborted && f.Reason == contract.ReasonKeyReused {
		return 422
	}
	return cmp.Or(map[contract.FailureCode]int{
		contract.InvalidArgument: 400, contract.Unauthenticated: 401, contract.PermissionDenied: 403, contract.FailedPrecondition: 409,
		contract.Aborted: 409, contract.ResourceExhausted: 429, contract.Unavailable: 503, contract.DeadlineExceeded: 504,
		contract.NotFound: 404, contract.AlreadyExists: 409,
	}[f.Code], 500)
}

func refuse(code contract.FailureCode, reason contract.Reason, current int64) error {
	return &contract.Failure{Code: code, Reason: "pramaan.agent_fencing." + reason, Current: current, Effect: contract.EffectNone}
}

func invalid(path string) error { return &contract.InvalidError{Path: path, Problem: "is wrong"} }

func epochIs(stands contracttest.Office, shown string) error {
	if shown == "" || shown != stands.Epoch {
		return refuse(contract.Aborted, "epoch_fenced", stands.Number)
	}
	return nil
}

func takeOffice(stands contracttest.Office, epoch string) (contracttest.Office, error) {
	if epoch == "" || epoch == stands.Epoch {
		return stands, invalid("/epoch")
	}
	return contracttest.Office{Epoch: epoch, Number: stands.Number + 1}, nil
}

func admit(s contracttest.Session, c contracttest.Caller) error {
	switch {
	case c.Peer == "" || s.AgentID == "":
		return refuse(contract.Unauthenticated, "no_session", 0)
	case c.Says.AgentID != s.AgentID || c.Says.CellID != s.CellID:
		return refuse(contract.PermissionDenied, "not_approved", 0)
	case s.BootID == "":
		return refuse(contract.Unauthenticated, "no_session", 0)
	case c.Says != s.Binding:
		return refuse(contract.Unauthenticated, "session_fenced", s.Generation)
	case c.Epoch == "" || c.Epoch != s.Epoch:
		return refuse(contract.Aborted, "epoch_fenced", 0)
	}
	return nil
}

func activate(s contracttest.Session, c contracttest.Caller) (contracttest.Session, error) {
	switch {
	case s.AgentID == "" || c.Says.AgentID != s.AgentID || c.Says.CellID != s.CellID:
		return s, refuse(contract.PermissionDenied, "not_approved", 0)
	case c.Epoch == "":
		return s, invalid("/dispatcher_epoch")
	}
	if err := contract.ValidateText("/boot_id", c.Says.BootID, contract.MaxMetaText); err != nil {
		return s, err
	}
	after := contracttest.Session{Binding: c.Says, Epoch: c.Epoch}
	after.Generation = s.Generation + 1
	return after, nil
}

func showToken(m contracttest.Mark, token int64, holder string) (contracttest.Mark, error) {
	switch {
	case token <= 0:
		return m, invalid("/fencing_token")
	case holder == "":
		return m, invalid("/holder")
	case token < m.Token || token == m.Token && holder != m.Holder:
		return m, refuse(contract.Aborted, "token_stale", m.Token)
	}
	return contracttest.Mark{Token: token, Holder: holder}, nil
}

func before(now, deadline time.Time) error {
	if !now.Before(deadline) {
		return refuse(contract.PermissionDenied, "authorization_expired", 0)
	}
	return nil
}

// toyBug is what is wrong with a toy system of keys.
type toyBug struct {
	staleFirst, progressFirst, deniedLate, deniedFirst, leaseFrees, purgeFrees, flips, cancelsAll, anyTenant, expiredLate bool
	lateWrites, conflictsEnd, neverAmbiguous, unmintedRuns, staleClaims                                                   bool
}

// toyKey is one key. Its state is "proposed", "claimed", "completed" or "purged".
type toyKey struct {
	tenant, content, state, outcome, reason string
	fence, expired, leaseOver, old          bool // fence: an attempt still runs and holds it
}

// toy is a system of keys in one map, without concurrency.
type toy struct {
	bug  toyBug
	keys map[string]*toyKey
	runs int
}

func toyKeys(bug toyBug) func([]contracttest.KeyEvent) ([]string, int, error) {
	return func(events []contracttest.KeyEvent) (answers []string, runs int, err error) {
		t := &toy{bug: bug, keys: map[string]*toyKey{}}
		for _, e := range events {
			e.Tenant = cmp.Or(e.Tenant, "one")
			answers = append(answers, t.one(e, t.keys[e.Key]))
		}
		return answers, t.runs, nil
	}
}

func (t *toy) one(e contracttest.KeyEvent, k *toyKey) string {
	switch e.Event {
	case "propose":
		t.keys[e.Key] = &toyKey{tenant: e.Tenant, content: e.Content, state: "proposed"}
		return "minted"
	case "confirm":
		return t.confirm(e, k)
	case "pass":
		for _, k := range t.keys {
			k.leaseOver = true
			k.expired = k.expired || e.Time != "lease"
			k.old = k.old || e.Time == "retention"
		}
		return "ok"
	case "purge":
		return t.purge()
	}
	if k == nil || k.tenant != e.Tenant {
		return "not_minted"
	}
	return t.keeper(e, k)
}

func (t *toy) purge() string {
	n := 0
	for name, k := range t.keys {
		if !k.old || k.state != "completed" || k.outcome == "ambiguous" {
			continue
		}
		n++
		k.state = "purged"
		if t.bug.purgeFrees {
			delete(t.keys, name)
		}
	}
	return "purged: " + strconv.Itoa(n)
}

// keeper answers what is not a confirm, about a key that exists.
func (t *toy) keeper(e contracttest.KeyEvent, k *toyKey) string {
	switch {
	case e.Event == "finish":
		return t.finish(k)
	case e.Event == "lookup":
		return k.phase()
	case e.Event == "cancel" && (k.state == "proposed" || t.bug.cancelsAll):
		k.state, k.outcome, k.reason = "completed", "skipped", "cancelled"
		return "cancelled"
	case e.Event == "cancel":
		return k.told()
	case k.state == "proposed":
		return "not_confirmed"
	case k.state == "claimed" && !k.leaseOver:
		return "in_progress"
	case k.state == "claimed" || k.outcome == "ambiguous" || t.bug.flips:
		k.state, k.fence = "completed", false
		k.outcome = map[string]string{"applied": "applied", "absent": "failed", "unknown": "ambiguous"}[e.Verdict]
	}
	return "resolved: " + k.outcome
}

func (t *toy) finish(k *toyKey) string {
	if !k.fence && !t.bug.lateWrites {
		return "fenced"
	}
	k.state, k.outcome, k.fence = "completed", "applied", false
	return "ran: applied"
}

func (k *toyKey) phase() string {
	switch {
	case k.state == "proposed" && k.expired:
		return "expired"
	case k.state == "claimed" && k.leaseOver:
		return "unresolved"
	case k.state == "claimed":
		return "in_progress"
	}
	return k.state
}

// told is what a key answers that is not free.
func (k *toyKey) told() string {
	switch {
	case k.state == "purged":
		return "settled"
	case k.state == "completed" && k.reason == "cancelled":
		return "cancelled"
	case k.state == "completed":
		return "replayed: " + k.outcome
	case !k.leaseOver:
		return "in_progress"
	}
	return "ambiguous"
}

func (t *toy) confirm(e contracttest.KeyEvent, k *toyKey) string {
	if e.Content == "A, reordered" {
		e.Content = "A"
	}
	if k != nil && k.tenant != e.Tenant && !t.bug.anyTenant {
		k = nil
	}
	if answer := t.refused(e, k); answer != "" {
		if t.bug.staleClaims && answer == "stale" {
			k.state = "claimed"
		}
		return answer
	}
	if k == nil {
		k = &toyKey{tenant: e.Tenant, content: e.Content}
		t.keys[e.Key] = k
	}
	return t.run(e, k)
}

// refused is the order of answers, or what a bug makes of it: empty for a confirm that runs.
func (t *toy) refused(e contracttest.KeyEvent, k *toyKey) string {
	free := k == nil || k.state == "proposed"
	stale := e.Surface != ""
	running := k != nil && k.state == "claimed"
	switch {
	case e.Content == "invalid":
		return "invalid"
	case t.bug.deniedFirst && e.Denied:
		return "denied"
	case t.bug.staleFirst && stale && k != nil && k.content == e.Content && !e.Denied:
		return "stale"
	case t.bug.progressFirst && running && !k.leaseOver:
		return "in_progress"
	case k != nil && k.content != e.Content && (!t.bug.conflictsEnd || k.state != "purged"):
		return "conflict"
	case e.Denied && (!t.bug.deniedLate || free):
		return "denied"
	case t.bug.leaseFrees && running && k.leaseOver:
		return ""
	case t.bug.neverAmbiguous && running:
		return "in_progress"
	case !free:
		return k.told()
	case k == nil && !t.bug.unmintedRuns:
		return "not_minted"
	case t.bug.expiredLate && stale:
		return "stale"
	case k != nil && k.expired:
		return "expired"
	case stale:
		return "stale"
	}
	return ""
}

func (t *toy) run(e contracttest.KeyEvent, k *toyKey) string {
	t.runs++
	k.state, k.leaseOver = "claimed", false
	switch e.Run {
	case "keeps_running":
		k.fence = true
		return "running"
	case "crashes":
		return "crashed"
	}
	k.state = "completed"
	k.outcome = map[string]string{"": "applied", "fails": "failed", "unclear": "ambiguous"}[e.Run]
	return "ran: " + k.outcome
}
