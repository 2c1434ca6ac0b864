package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/contract"
)

// stage is what a scenario works with: a dispatcher and an agent of its own, the target, and the ledger. Its steps write the report.
type stage struct {
	report

	ctx    context.Context // of one scenario
	set    *set
	dir    string
	lease  time.Duration
	broken error // the first step that could not be made

	dispatcher, agent *child
	children          []*child
	boots, sessions   int
	dying             *child // one whose end is no fault
}

// set is what all scenarios share.
type set struct {
	dir       string
	database  string // postgres://…; "": a file for each process
	run       string // tells the rows of this run from those of another one
	authority *authority
	certs     map[string]string // the files by role
	target    *target
}

// newSet makes certificates and starts the target.
func newSet(ctx context.Context, dir, database, run string) (*set, error) {
	s := &set{dir: dir, database: database, run: run, certs: map[string]string{}}
	var err error
	if s.authority, err = newAuthority(dir); err != nil {
		return nil, err
	}
	for name, uri := range map[string]string{
		roleDispatcher: dispatcherURI, roleAgent: agentURI, "renewed": agentURI, "stranger": strangerURI, "uploads": dispatcherURI + "/uploads",
	} {
		if s.certs[name], err = s.authority.issue(name, uri); err != nil {
			return nil, err
		}
	}
	files, err := readCredentials(s.authority.file(), s.certs["uploads"])
	if err != nil {
		return nil, err
	}
	uploads := filepath.Join(dir, "uploads")
	if err := os.Mkdir(uploads, 0o700); err != nil {
		return nil, err
	}
	s.target, err = startTarget(ctx, uploads, files)
	return s, err
}

// newStage makes the folder of a scenario.
func (set *set) newStage(ctx context.Context, name, title string) (*stage, error) {
	dir, err := os.MkdirTemp(set.dir, name+"-")
	return &stage{report: report{name: name, title: title}, ctx: ctx, set: set, dir: dir, lease: 20 * time.Second}, err
}

func (s *stage) ledger() string { return filepath.Join(s.dir, "ledger.jsonl") }
func (s *stage) queue() string  { return filepath.Join(s.dir, "queue.jsonl") }
func (s *stage) trace() trace   { return trace(filepath.Join(s.dir, "trace.jsonl")) }

// config is that of a process of this stage.
func (s *stage) config(role, cert string) config {
	cfg := config{
		Role: role, Tenant: s.set.run + "/" + filepath.Base(s.dir) + "/" + role, Database: s.set.database,
		Authority: s.set.authority.file(), Certificate: s.set.certs[cert], Ledger: s.ledger(), Queue: s.queue(), Trace: s.trace(),
		Lease: s.lease, Approved: []string{agentURI},
		Drain: time.Second, Killable: true,
	}
	if cfg.Database == "" {
		cfg.Database = "sqlite:" + filepath.Join(s.dir, role+".db")
	}
	if role == roleDispatcher {
		cfg.Targets, cfg.GrantKey = []string{s.set.target.prefix}, s.set.target.key
	}
	if role == roleAgent {
		s.boots++
		cfg.Boot = fmt.Sprintf("boot-%d", s.boots)
	}
	return cfg
}

// begin starts a process of a role, with the certificate of that name.
func (s *stage) begin(role, cert string) *child {
	if s.broken != nil {
		return nil
	}
	c, err := start(s.ctx, role, s.config(role, cert))
	if err != nil {
		s.fail(err)
		return nil
	}
	s.children = append(s.children, c)
	return c
}

// pair starts both processes and tells each where the other is.
func (s *stage) pair() {
	s.dispatcher, s.agent = s.begin(roleDispatcher, roleDispatcher), s.begin(roleAgent, roleAgent)
	s.introduce()
}

func (s *stage) introduce() {
	if s.broken == nil {
		s.ask(s.dispatcher, order{Do: "connect", Address: s.agent.Address})
		s.ask(s.agent, order{Do: "connect", Address: s.dispatcher.Address})
	}
}

// ready starts both, activates the agent, and opens its admission, in generation 2.
func (s *stage) ready() {
	s.pair()
	s.applied("activation", s.activate())
	s.applied("opening", s.ask(s.dispatcher, order{Do: "admission", Op: "op-open", Barrier: "b-open", Expected: 1, Open: true}))
}

// activate makes the next session of the agent.
func (s *stage) activate() answer {
	s.sessions++
	return s.ask(s.agent, order{Do: "activate", Op: fmt.Sprintf("activate-%d", s.sessions)})
}

// restartAgent starts the agent from its database, as its next boot.
func (s *stage) restartAgent() {
	s.agent = s.begin(roleAgent, roleAgent)
	s.introduce()
}

// restartDispatcher starts the dispatcher from its database, in a new office.
func (s *stage) restartDispatcher() {
	s.dispatcher = s.begin(roleDispatcher, roleDispatcher)
	s.introduce()
}

// ask gives an order. A process that has ended ends the scenario.
func (s *stage) ask(c *child, o order) answer {
	if s.broken != nil {
		return answer{}
	}
	told, err := c.do(o)
	if err != nil {
		s.fail(err)
	}
	return told
}

func (s *stage) fail(err error) { s.broken = errors.Join(s.broken, err) }

// word is an answer in a few: the reason of a failure, or what the receipt says.
func (a answer) word() string {
	switch {
	case a.Failure != nil && a.Failure.Reason == "":
		return "error: " + a.Failure.Message
	case a.Failure != nil:
		reason := string(a.Failure.Reason)
		return reason[strings.LastIndexByte(reason, '.')+1:]
	case a.Receipt == nil:
		return "ok"
	}
	text := strings.ToLower(string(a.Receipt.Result))
	if a.Receipt.Replayed {
		text += ", replayed"
	}
	return text
}

// receipt is the answer's receipt; the zero one if it has none.
func (a answer) receipt() contract.Receipt {
	if a.Receipt == nil {
		return contract.Receipt{}
	}
	return *a.Receipt
}

// bytes are those of the answer's receipt, but for its being replayed.
func (a answer) bytes() string {
	r := a.receipt()
	r.Replayed = false
	data, err := json.Marshal(r)
	return fmt.Sprint(string(data), map[bool]any{true: "", false: err}[err == nil])
}

// refusal is why the answer is none, or why its receipt says that nothing was done: the last word of the reason, and the code.
func (a answer) refusal() (reason string, code contract.FailureCode) {
	switch f := a.receipt().Failure; {
	case a.Failure != nil:
		reason, code = string(a.Failure.Reason), a.Failure.Code
	case f != nil:
		reason, code = string(f.Reason), f.Code
	}
	return reason[strings.LastIndexByte(reason, '.')+1:], code
}

// want reports a difference unless a step was answered so, and returns the answer.
func (s *stage) want(step, word string, got answer) answer {
	if s.broken == nil {
		text := ""
		if got.Failure != nil {
			text = " (" + got.Failure.Message + ")"
		}
		s.steps = append(s.steps, note{step, got.word()})
		s.expect(got.word() == word, "%s: the answer is %q, not %q%s", step, got.word(), word, text)
		s.coded(step, got)
	}
	return got
}

// coded reports a difference unless a refusal has the code that is the contract's for its reason.
func (s *stage) coded(step string, got answer) {
	reason, code := got.refusal()
	s.expect(code == codesOf[reason], "%s: the code of %q is %q, not %q", step, reason, code, codesOf[reason])
}

// codesOf has the code that each reason is told with, written down a second time.
var codesOf = map[string]contract.FailureCode{
	"invalid":               contract.InvalidArgument,
	"session_fenced":        contract.Unauthenticated,
	"no_session":            contract.Unauthenticated,
	"not_approved":          contract.PermissionDenied,
	"not_authorized":        contract.PermissionDenied,
	"authorization_expired": contract.PermissionDenied,
	"refused":               contract.PermissionDenied,
	"not_mock":              contract.PermissionDenied,
	"target":                contract.PermissionDenied,
	"kind":                  contract.PermissionDenied,
	"admission_closed":      contract.FailedPrecondition,
	"terminal_state":        contract.FailedPrecondition,
	"reservation_released":  contract.FailedPrecondition,
	"reservation_fenced":    contract.FailedPrecondition,
	"execution_unknown":     contract.FailedPrecondition,
	"permit_void":           contract.FailedPrecondition,
	"not_resent":            contract.FailedPrecondition,
	"key_reused":            contract.Aborted,
	"second_operation":      contract.Aborted,
	"revision_moved":        contract.Aborted,
	"token_stale":           contract.Aborted,
	"permit_fenced":         contract.Aborted,
	"epoch_fenced":          contract.Aborted,
	"checksum":              contract.Aborted,
	"unavailable":           contract.Unavailable,
	"not_answered":          contract.Unavailable,
	"drain_timeout":         contract.DeadlineExceeded,
	"no_mutation":           contract.NotFound,
	"no_fact":               contract.NotFound,
	"no_upload":             contract.NotFound,
	"permit_issued":         contract.AlreadyExists,
	"already_stopped":       contract.AlreadyExists,
}

// decide is want without a word: the scenario's table says what the decisive answer is.
func (s *stage) decide(step string, got answer) {
	s.steps, s.told = append(s.steps, note{step, got.word()}), got
	s.coded(step, got)
}

func (s *stage) applied(step string, got answer) answer { return s.want(step, "applied", got) }

// issue has the dispatcher decide on an execution and send it.
func (s *stage) issue(execution, number string, change ...func(*order)) answer {
	o := order{
		Do: "execute_authorized", Op: "op-" + execution, Execution: execution, Number: number,
		DeadlineMS: time.Now().Add(time.Hour).Truncate(time.Hour).Add(time.Hour).UnixMilli(),
	}
	for _, c := range change {
		c(&o)
	}
	return s.ask(s.dispatcher, o)
}

// raw sends a request past the sender's own records.
func raw(o *order) { o.Raw = true }

// close ends the processes, which stand in for nothing after it.
func (s *stage) close() error {
	for _, c := range s.children {
		c.end()
	}
	return os.RemoveAll(s.dir)
}
