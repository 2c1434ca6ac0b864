package httperr_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/httperr"
)

// A client names the operation of its request; the service reads the name.
func ExampleSetKey() {
	h := http.Header{}
	httperr.SetKey(h, uuid.MustParse("0198c0de-7a11-7000-8000-00000000c0de"))
	fmt.Println(h.Get(httperr.KeyHeader))
	fmt.Println(httperr.KeyFromHeader(h))
	// Output:
	// "0198c0de-7a11-7000-8000-00000000c0de"
	// 0198c0de-7a11-7000-8000-00000000c0de <nil>
}

// A request without a key, or with two, names no operation.
func ExampleKeyFromHeader() {
	_, err := httperr.KeyFromHeader(http.Header{})
	fmt.Println(err)
	_, err = httperr.KeyFromHeader(http.Header{httperr.KeyHeader: {"0198c0de-7a11-7000-8000-00000000c0de", "another"}})
	fmt.Println(err)
	// Output:
	// INVALID_ARGUMENT: /header/Idempotency-Key: is required
	// INVALID_ARGUMENT: /header/Idempotency-Key: must be there once
}

// A handler answers with the problem of its error, and a client reads the failure that it was.
func ExampleWrite() {
	w := httptest.NewRecorder()
	httperr.Write(w, fmt.Errorf("checking the surface: %w", contract.ErrStale))
	resp := w.Result()
	defer resp.Body.Close()
	f, ok := httperr.FromResponse(resp)
	fmt.Println(resp.StatusCode, resp.Header.Get("Content-Type"))
	fmt.Println(ok, f.Code, f.Reason, "- nothing happened:", f.KnownNoEffect())
	// Output:
	// 409 application/problem+json
	// true FAILED_PRECONDITION pramaan.agent_operation.stale - nothing happened: true
}

// A status alone, such as a gateway's, is no failure of the service: the outcome is not known.
func ExampleFromResponse() {
	w := httptest.NewRecorder()
	http.Error(w, "conflict", http.StatusConflict)
	resp := w.Result()
	defer resp.Body.Close()
	f, ok := httperr.FromResponse(resp)
	fmt.Println(ok, contract.Decide(contract.Method{}, f, contract.SentUnknown).Effect)
	// Output: false unknown
}
