package httperr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	f      *contract.Failure
	ok     bool
}

// serve asks a real server with this handler once.
func serve(t *testing.T, method string, handle http.HandlerFunc) answer {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	return ask(t, method, srv.URL)
}

func ask(t *testing.T, method, url string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	f, ok := FromResponse(resp)
	return answer{resp.StatusCode, resp.Header, f, ok}
}

var statuses = map[contract.FailureCode]int{
	contract.InvalidArgument: 400, contract.Unauthenticated: 401, contract.PermissionDenied: 403, contract.NotFound: 404,
	contract.FailedPrecondition: 409, contract.Aborted: 409, contract.AlreadyExists: 409, contract.ResourceExhausted: 429,
	contract.Unavailable: 503, contract.DeadlineExceeded: 504,
}

var effects = []contract.Effect{contract.EffectByCode, contract.EffectNone, contract.EffectUnknown}

// R1: each of the ten codes has its status; a key that stands for other content has the one of the header's draft.
func TestStatuses(t *testing.T) {
	require.Len(t, statuses, len(contract.RetryTable()))
	titles := map[string]bool{}
	for _, rule := range contract.RetryTable() {
		p := ProblemOf(&contract.Failure{Code: rule.Code})
		assert.Equal(t, statuses[rule.Code], p.Status, rule.Code)
		assert.Equal(t, TypePrefix+strings.ToLower(string(rule.Code)), p.Type)
		assert.Equal(t, rule.Action, p.Action)
		assert.Equal(t, rule.Effect.String(), p.Effect)
		titles[p.Title] = true
	}
	assert.Len(t, titles, 10)
	for err, want := range map[error]int{
		contract.ErrKeyReused: 422, &contract.ConflictError{Failure: *contract.ErrKeyReused}: 422, contract.ErrInProgress: 409,
		&contract.ConflictError{Failure: *contract.ErrStale}: 409, contract.ErrNotMinted: 404, contract.ErrDenied: 403,
		&contract.InvalidError{Path: "/items", Problem: "p"}: 400, contract.ErrUnavailable: 503, contract.ErrFenced: 409,
	} {
		assert.Equal(t, want, ProblemOf(err).Status, err)
	}
}

// R1, R4, R27: every failure goes to a client and back through real HTTP: code, reason, effect, text and revision.
func TestRoundTrip(t *testing.T) {
	var failures []*contract.Failure
	for _, rule := range contract.RetryTable() {
		for _, e := range effects {
			failures = append(failures, &contract.Failure{
				Code: rule.Code, Reason: "pramaan.agent_operation.test", Effect: e, Message: `a <b> "c" é`, Current: 1<<63 - 1,
			}, &contract.Failure{Code: rule.Code, Effect: e})
		}
	}
	failures = append(failures, contract.ErrStale, contract.ErrKeyReused, contract.ErrInProgress, contract.ErrRetryTx, contract.ErrPruned,
		contract.ErrSecondOperation, contract.ErrSealed)
	for _, f := range failures {
		got := serve(t, http.MethodPost, func(w http.ResponseWriter, _ *http.Request) {
			Write(w, fmt.Errorf("around: %w", f.With(errors.New("canary"))))
		})
		assert.Equal(t, ProblemOf(f).Status, got.status)
		assert.Equal(t, ContentType, got.header.Get("Content-Type"))
		assert.Equal(t, "no-store", got.header.Get("Cache-Control"))
		require.True(t, got.ok, f)
		want := *f
		want.Effect = effectOf(f)
		assert.Equal(t, &want, got.f)
		assert.ErrorIs(t, got.f, f)
		assert.Equal(t, f.Result(), got.f.Result(), "the result code is the same (R27, A2)")
		for _, m := range []contract.Method{{}, {Resend: true}, {ReadOnly: true}} {
			assert.Equal(t, contract.Decide(m, f, contract.Answered), contract.Decide(m, got.f, contract.Answered), "the decision is the same")
		}
	}
}

// R4, R13, R18: what holds no failure of the ten codes claims none: a fixed text and an unknown effect. A deadline has a code.
func TestErrorsWithoutFailure(t *testing.T) {
	var none *contract.Failure
	for _, tc := range []struct {
		err    error
		status int
		code   contract.FailureCode
	}{
		{nil, 500, ""},
		{errors.New("canary"), 500, ""},
		{none, 500, ""},
		{fmt.Errorf("canary: %w", none), 500, ""},
		{(*contract.InvalidError)(nil), 500, ""},
		{(*contract.ConflictError)(nil), 500, ""},
		{&contract.Failure{}, 500, ""},
		{&contract.Failure{Code: "INTERNAL", Message: "canary", Effect: contract.EffectNone}, 500, ""},
		{io.ErrUnexpectedEOF, 500, ""},
		{context.Canceled, 503, ""},
		{fmt.Errorf("canary: %w", context.Canceled), 503, ""},
		{context.DeadlineExceeded, 504, contract.DeadlineExceeded},
		{fmt.Errorf("canary: %w", context.DeadlineExceeded), 504, contract.DeadlineExceeded},
		{contract.ErrUnavailable.With(context.DeadlineExceeded), 503, contract.Unavailable},
		{contract.ErrDenied.With(context.Canceled), 403, contract.PermissionDenied},
	} {
		p := ProblemOf(tc.err)
		assert.Equal(t, tc.status, p.Status, tc.err)
		assert.Equal(t, tc.code, p.Code, tc.err)
		assert.NotContains(t, fmt.Sprint(p), "canary")
		assert.NotEmpty(t, p.Detail)
		got := serve(t, http.MethodPost, func(w http.ResponseWriter, _ *http.Request) { Write(w, tc.err) })
		assert.Equal(t, tc.status, got.status)
		assert.Equal(t, tc.code != "", got.ok)
		if tc.code == "" {
			assert.Equal(t, "about:blank", p.Type)
			assert.Equal(t, http.StatusText(tc.status), p.Title)
		}
		if tc.code != contract.PermissionDenied {
			want := contract.Decision{Action: p.Action, Effect: contract.EffectUnknown}
			assert.Equal(t, want, contract.Decide(contract.Method{}, got.f, contract.Answered), tc.err)
		}
	}
}

// R4, R18: of errors that are joined all must prove that nothing happened, or the problem does not say it.
func TestJoinedErrors(t *testing.T) {
	for _, tc := range []struct {
		err    error
		effect string
		action contract.Action
	}{
		{errors.Join(contract.ErrDenied, contract.ErrStale), "none", contract.StopAndAuthorize},
		{errors.Join(contract.ErrDenied, io.ErrUnexpectedEOF), "unknown", contract.Reconcile},
		{errors.Join(contract.ErrDenied, contract.ErrOutcomeUnknown), "unknown", contract.Reconcile},
		{errors.Join(&contract.InvalidError{Path: "/items", Problem: "p"}, context.Canceled), "unknown", contract.Reconcile},
	} {
		p := ProblemOf(tc.err)
		assert.Equal(t, tc.effect, p.Effect, tc.err)
		assert.Equal(t, tc.action, p.Action, tc.err)
		assert.Equal(t, tc.effect == "none", strings.Contains(p.Detail, "nothing was done"), tc.err)
	}
}

// called is the error of a call that the handler made to another server.
type called struct{ *contract.ConflictError }

func (called) Relayed() bool { return true }

// R18: that another server did nothing is not told as the handler's own, but where its own failure is around it.
func TestRelayedErrors(t *testing.T) {
	other := called{&contract.ConflictError{Failure: *contract.ErrStale}}
	p := ProblemOf(fmt.Errorf("asking: %w", other))
	assert.Equal(t, contract.ReasonStale, p.Reason)
	assert.Equal(t, "unknown", p.Effect)
	assert.NotContains(t, p.Detail, "nothing was done")
	assert.Equal(t, "none", ProblemOf(contract.ErrStale.With(other)).Effect)
}

// S22: no cause, no text around a failure, no key, no drifted value and no name that the request chose is told.
func TestNothingIsGivenAway(t *testing.T) {
	invalid := func() error {
		_, err := contract.DecodeProposal([]byte(`{"schema_version":"operation_recovery.v1","surface_key":"s","contract_version":"v",`+
			`"items":[{"item_id":"1","op":"o","params":{"canary":1,"canary":2}}]}`), contract.Limits{})
		return err
	}()
	drift := contract.DriftOf(contract.OperationConfirmation{SurfaceKey: "canary-1", ContractVersion: "canary-2"},
		contract.CurrentSurfaceState{SurfaceKey: "canary-3", ContractVersion: "canary-4"})
	for _, err := range []error{
		invalid,
		&contract.ConflictError{Failure: *contract.ErrStale, Drift: drift},
		contract.ErrDenied.With(errors.New("canary")),
		fmt.Errorf("canary: %w", contract.ErrDenied),
		errors.Join(errors.New("canary"), contract.ErrDenied, &contract.InvalidError{Problem: "canary"}),
		contract.ErrDenied.With(&contract.InvalidError{Problem: "canary"}),
		errors.New("canary"),
	} {
		w := httptest.NewRecorder()
		Write(w, err)
		assert.NotContains(t, w.Body.String(), "canary", err)
		assert.NotContains(t, fmt.Sprint(w.Header()), "canary", err)
	}
	assert.Regexp(t, "^/items/0/params/…: .+", ProblemOf(invalid).Detail, "it tells where and what")
}

// R1, S22: a document is these bytes; texts that cannot be sent are cleaned.
func TestDocument(t *testing.T) {
	f := contract.ErrKeyReused.With(errors.New("canary"))
	f.Current, f.Message = 7, "the key\x00stands\xff"
	p := ProblemOf(f)
	p.Instance = "/errors/17"
	w := httptest.NewRecorder()
	p.Write(w)
	assert.Equal(t, `{"type":"urn:confirmexec:problem:pramaan.agent_operation.key_reused",`+
		`"title":"The idempotency key stands for other content","status":422,"detail":"the key`+"\ufffd"+`stands`+"\ufffd"+`",`+
		`"instance":"/errors/17","code":"ABORTED","reason":"pramaan.agent_operation.key_reused","effect":"none","current":7,`+
		`"action":"reread_revision"}`, w.Body.String())
	for reason, want := range map[contract.Reason]string{
		"": "aborted", "own-reason_1.x": "own-reason_1.x", "a b": "aborted", "a/../b": "aborted",
		"é": "aborted", "a?b#c": "aborted", "%2f": "aborted",
	} {
		assert.Equal(t, TypePrefix+want, ProblemOf(&contract.Failure{Code: contract.Aborted, Reason: reason}).Type)
	}
	huge := strings.Repeat("\x00", 1<<20)
	long := ProblemOf(&contract.Failure{Code: contract.Aborted, Message: huge, Reason: contract.Reason(huge)})
	data, err := json.Marshal(long)
	require.NoError(t, err)
	assert.Less(t, len(data), MaxBody/8)
	_, ok := decode(data)
	assert.True(t, ok)
}

// R1: header fields of another body go, others stay, and no status makes a panic.
func TestWrite(t *testing.T) {
	w := httptest.NewRecorder()
	for _, name := range []string{"Content-Length", "Content-Encoding", "ETag", "Last-Modified", "WWW-Authenticate", "Retry-After"} {
		w.Header().Set(name, "9")
	}
	Write(w, &contract.Failure{Code: contract.Unauthenticated})
	for _, name := range []string{"Content-Length", "Content-Encoding", "ETag", "Last-Modified"} {
		assert.Empty(t, w.Header().Get(name))
	}
	assert.Equal(t, "9", w.Header().Get("WWW-Authenticate"))
	assert.Equal(t, "9", w.Header().Get("Retry-After"))
	assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	for _, status := range []int{-1, 0, 99, 100, 200, 304, 399, 600, 1000} {
		w := httptest.NewRecorder()
		Problem{Status: status, Detail: "\xff"}.Write(w)
		assert.Equal(t, 500, w.Code)
		assert.Contains(t, w.Body.String(), `"status":500`)
	}
	for _, err := range []error{contract.ErrInProgress, contract.ErrUnavailable, &contract.Failure{Code: contract.ResourceExhausted}} {
		w := httptest.NewRecorder()
		Write(w, err)
		assert.Empty(t, w.Header().Get("Retry-After"), "no leave to send it again")
	}
}
