package httperr_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/httperr"
	"github.com/confirmexec/confirmexec/store/memstore"
)

// service is a service that confirms operations over HTTP.
type service struct {
	broker  *broker.Broker[*memstore.Tx]
	surface contract.CurrentSurfaceState // read again for every request, in a real one
}

// confirm answers with the result, an ambiguous one too, or with a problem.
func (s *service) confirm(w http.ResponseWriter, r *http.Request, key uuid.UUID) {
	res, err := s.execute(r, key)
	if err != nil {
		httperr.Write(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(res)
}

func (s *service) execute(r *http.Request, key uuid.UUID) (*contract.OperationResult, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(contract.DefaultLimits().Body)+1))
	if err != nil {
		return nil, contract.ErrInvalid.With(err)
	}
	c, err := contract.DecodeConfirmation(body, contract.Limits{})
	if err != nil {
		return nil, err
	}
	if c.IdempotencyKey != key {
		return nil, &contract.InvalidError{Path: "/idempotency_key", Problem: "must be that of the header"}
	}
	return s.broker.Execute(r.Context(), broker.Request{Tenant: "firm-a", Confirmation: c, Current: s.surface}, addForum)
}

func addForum(context.Context, broker.Item) (broker.Outcome, error) {
	return broker.Applied("forum/1"), nil
}

// confirming may be repeated with its key: the answer is the stored result.
var confirming = contract.Method{Resend: true}

// post is a client: it tells what it got, and what it does next.
func post(url string, c contract.OperationConfirmation, key uuid.UUID) {
	body, _ := json.Marshal(c)
	req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if key != uuid.Nil {
		httperr.SetKey(req.Header, key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Println(contract.Decide(confirming, nil, contract.SentUnknown).Action)
		return
	}
	defer resp.Body.Close()
	var res contract.OperationResult
	if resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&res) == nil {
		fmt.Printf("%d %s replayed: %t\n", resp.StatusCode, res.Summary(), res.Replayed)
		return
	}
	f, _ := httperr.FromResponse(resp)
	d := contract.Decide(confirming, f, contract.SentUnknown)
	fmt.Printf("%d %s, effect: %s\n", resp.StatusCode, d.Action, d.Effect)
}

// A service confirms operations over HTTP: results are 200, everything else is a problem document.
func Example() {
	b, err := broker.New(memstore.New(nil), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := &service{b, contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}}
	srv := httptest.NewServer(httperr.WithKey(s.confirm))
	defer srv.Close()

	c, err := b.Propose(context.Background(), "firm-a", contract.OperationProposal{
		SurfaceKey: "matter:7/forums", ContractVersion: "v1",
		Items: []contract.Item{{ID: "1", Op: "add_forum", Params: json.RawMessage(`{"name":"NCLT Mumbai"}`)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	post(srv.URL, c, uuid.Nil) // no key
	post(srv.URL, c, c.IdempotencyKey)
	post(srv.URL, c, c.IdempotencyKey) // a double tap

	other := c
	other.Items = []contract.Item{{ID: "1", Op: "drop_forum", Params: json.RawMessage(`{}`)}}
	post(srv.URL, other, c.IdempotencyKey) // the key, used again for something else

	stale, err := b.Propose(context.Background(), "firm-a", other.Proposal())
	if err != nil {
		fmt.Println(err)
		return
	}
	s.surface.ContractVersion = "v2" // somebody changed the page
	post(srv.URL, stale, stale.IdempotencyKey)
	// Output:
	// 400 fix_request, effect: none
	// 200 1 of 1 item applied. replayed: false
	// 200 1 of 1 item applied. replayed: true
	// 422 reread_revision, effect: none
	// 409 refresh_state, effect: none
}

// A service with pages about its problems names them, and the occurrence, before it answers.
func ExampleProblem_Write() {
	w := httptest.NewRecorder()
	p := httperr.ProblemOf(contract.ErrInProgress)
	p.Type, p.Instance = "/problems/in-progress", "/requests/17"
	p.Write(w)
	var body bytes.Buffer
	_ = json.Indent(&body, w.Body.Bytes(), "", "  ")
	fmt.Println(w.Code, body.String())
	// Output:
	// 409 {
	//   "type": "/problems/in-progress",
	//   "title": "The operation exists already",
	//   "status": 409,
	//   "detail": "the operation is running; this request started nothing; read its result later under the same key",
	//   "instance": "/requests/17",
	//   "code": "ALREADY_EXISTS",
	//   "reason": "pramaan.agent_operation.in_progress",
	//   "effect": "unknown",
	//   "action": "read_existing"
	// }
}
