package httperr

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// through asks a server that tells contract.ErrStale by way of a proxy that changes the response.
func through(t *testing.T, change func(*http.Response) error) answer {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { Write(w, contract.ErrStale) }))
	t.Cleanup(origin.Close)
	target, err := url.Parse(origin.URL)
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: change,
		ErrorLog:       log.New(io.Discard, "", 0),
	})
	t.Cleanup(proxy.Close)
	return ask(t, http.MethodPost, proxy.URL)
}

func replace(resp *http.Response, body string) {
	resp.Body = io.NopCloser(strings.NewReader(body))
	resp.ContentLength = int64(len(body))
	resp.Header.Del("Content-Length")
}

// R4, R18: what a proxy does to a response leaves the receiver's own failure, or none at all; a status alone is never one.
func TestProxies(t *testing.T) {
	const page = `<html><body><h1>502 Bad Gateway</h1></body></html>`
	for name, tc := range map[string]struct {
		change func(*http.Response) error
		whole  bool
	}{
		"nothing": {nil, true},
		"another error status": {func(r *http.Response) error {
			r.StatusCode = http.StatusBadGateway
			return nil
		}, true},
		"a success": {func(r *http.Response) error {
			r.StatusCode = http.StatusOK
			return nil
		}, true},
		"no body": {func(r *http.Response) error {
			replace(r, "")
			return nil
		}, false},
		"a page of its own": {func(r *http.Response) error {
			replace(r, page)
			r.Header.Set("Content-Type", "text/html")
			r.StatusCode = http.StatusBadGateway
			return nil
		}, false},
		"a page under our type": {func(r *http.Response) error {
			replace(r, page)
			return nil
		}, false},
		"another type": {func(r *http.Response) error {
			r.Header.Set("Content-Type", "application/json")
			return nil
		}, false},
		"no type": {func(r *http.Response) error {
			r.Header["Content-Type"] = nil
			return nil
		}, false},
		"two types": {func(r *http.Response) error {
			r.Header["Content-Type"] = []string{ContentType, "text/html"}
			return nil
		}, false},
		"a charset": {func(r *http.Response) error {
			r.Header.Set("Content-Type", "Application/Problem+JSON; charset=utf-8")
			return nil
		}, true},
		"a type that is none": {func(r *http.Response) error {
			r.Header.Set("Content-Type", ContentType+"; =")
			return nil
		}, false},
		"half of it": {func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			replace(r, string(body[:len(body)/2]))
			return err
		}, false},
		"more than it": {func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			replace(r, string(body)+string(body))
			return err
		}, false},
		"compression": {func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			var packed bytes.Buffer
			zip := gzip.NewWriter(&packed)
			_, _ = zip.Write(body)
			_ = zip.Close()
			replace(r, packed.String())
			r.Header.Set("Content-Encoding", "gzip")
			return err
		}, true},
		"cannot reach it": {func(*http.Response) error { return errors.New("no") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := through(t, tc.change)
			assert.Equal(t, tc.whole, got.ok)
			if tc.whole {
				assert.ErrorIs(t, got.f, contract.ErrStale)
				return
			}
			assert.Nil(t, got.f)
			assert.Equal(t, contract.EffectUnknown, contract.Decide(contract.Method{}, got.f, contract.SentUnknown).Effect)
		})
	}
}

// R4: a document breaks off with its connection: no failure.
func TestBrokenConnection(t *testing.T) {
	got := serve(t, http.MethodPost, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.Header().Set("Content-Type", ContentType)
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(ours))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	assert.Equal(t, http.StatusConflict, got.status)
	assert.False(t, got.ok)
	assert.Nil(t, got.f)
}

// R4: the answer to HEAD has the status and no body, so there is no failure to read.
func TestHead(t *testing.T) {
	got := serve(t, http.MethodHead, func(w http.ResponseWriter, _ *http.Request) { Write(w, contract.ErrNotMinted) })
	assert.Equal(t, http.StatusNotFound, got.status)
	assert.Equal(t, ContentType, got.header.Get("Content-Type"))
	assert.False(t, got.ok)
}

type counting struct {
	io.Reader

	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func (c *counting) Close() error { return nil }

// R4: a body is read up to a limit, and only if it says that it is a problem; a document of just the limit is read.
func TestBodyIsBounded(t *testing.T) {
	from := func(kind string, r io.Reader) (read int, ok bool) {
		body := &counting{Reader: r}
		_, ok = FromResponse(&http.Response{Header: http.Header{"Content-Type": {kind}}, Body: body})
		return body.n, ok
	}
	n, ok := from(ContentType, io.LimitReader(endless{}, 1<<30))
	assert.False(t, ok)
	assert.LessOrEqual(t, n, MaxBody+1)
	for extra, want := range map[int]bool{0: true, 1: false} {
		_, ok = from(ContentType, strings.NewReader(ours+strings.Repeat(" ", MaxBody-len(ours)+extra)))
		assert.Equal(t, want, ok)
	}
	n, ok = from("application/json", strings.NewReader(ours))
	assert.False(t, ok)
	assert.Zero(t, n)
	for _, resp := range []*http.Response{nil, {}, {Header: http.Header{"Content-Type": {ContentType}}}} {
		_, ok = FromResponse(resp)
		assert.False(t, ok)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

const ours = `{"type":"x","status":409,"detail":"d","code":"ABORTED","reason":"r","effect":"none","current":7,"action":"reread_revision"}`

// R4, R18: a document is a failure only if its code, effect and action belong together; what the RFC wants passed over is.
func TestDecode(t *testing.T) {
	whole := contract.Failure{Code: contract.Aborted, Reason: "r", Effect: contract.EffectNone, Message: "d", Current: 7}
	with := func(change func(*contract.Failure)) *contract.Failure {
		f := whole
		change(&f)
		return &f
	}
	for name, tc := range map[string]struct {
		old, repl string
		want      *contract.Failure
	}{
		"as it is":            {`{`, `{`, &whole},
		"another status":      {`409`, `200`, &whole},
		"a status as text":    {`409`, `"409"`, &whole},
		"no status":           {`"status":409,`, ``, &whole},
		"unknown member":      {`{`, `{"trace":{"a":[1]},`, &whole},
		"another type":        {`"x"`, `null`, &whole},
		"no detail":           {`"detail":"d",`, ``, with(func(f *contract.Failure) { f.Message = "" })},
		"a detail of objects": {`"d"`, `{"a":1}`, with(func(f *contract.Failure) { f.Message = "" })},
		"hidden detail":       {`"d"`, `"a\u0000"`, with(func(f *contract.Failure) { f.Message = "a\ufffd" })},
		"no reason":           {`"reason":"r",`, ``, with(func(f *contract.Failure) { f.Reason = "" })},
		"no revision":         {`"current":7,`, ``, with(func(f *contract.Failure) { f.Current = 0 })},
		"unknown effect":      {`none`, `unknown`, with(func(f *contract.Failure) { f.Effect = contract.EffectUnknown })},
		"no code":             {`"code":"ABORTED",`, ``, nil},
		"null code":           {`"ABORTED"`, `null`, nil},
		"another code":        {`ABORTED`, `CONFLICT`, nil},
		"a code of numbers":   {`"ABORTED"`, `10`, nil},
		"code in lower case":  {`ABORTED`, `aborted`, nil},
		"member in caps":      {`"code"`, `"Code"`, nil},
		"no effect":           {`"effect":"none",`, ``, nil},
		"effect by code":      {`none`, `by_code`, nil},
		"another effect":      {`none`, `applied`, nil},
		"no action":           {`,"action":"reread_revision"`, ``, nil},
		"another's action":    {`reread_revision`, `fix_request`, nil},
		"a free action":       {`reread_revision`, `retry_read`, nil},
		"effect twice":        {`"effect":"none"`, `"effect":"unknown","effect":"none"`, nil},
		"unknown twice":       {`{`, `{"a":1,"a":1,`, nil},
		"a reason of numbers": {`"r"`, `1`, nil},
		"a broken revision":   {`7`, `7.5`, nil},
		"too large":           {`7`, `9223372036854775808`, nil},
		"not UTF-8":           {`"d"`, "\"\xff\"", nil},
		"trailing":            {`n"}`, `n"}x`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, ours, tc.old)
			f, ok := decode([]byte(strings.Replace(ours, tc.old, tc.repl, 1)))
			assert.Equal(t, tc.want != nil, ok)
			assert.Equal(t, tc.want, f)
		})
	}
	for _, foreign := range []string{
		``, `null`, `[]`, `"x"`, `{}`, `{"type":"about:blank","title":"Bad Gateway","status":502}`,
		`{"type":"https://example.com/p","code":"NOT_FOUND","status":404}`,
		`{"code":"UNAVAILABLE","effect":"none"}`, `{"error":{"code":409,"status":"ABORTED"}}`,
	} {
		_, ok := decode([]byte(foreign))
		assert.False(t, ok, foreign)
	}
}

// R1, R4: no bytes make the decoder panic; what it accepts is a failure of the ten codes that goes out and comes back as it is.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(ours))
	f.Add([]byte(`{"code":"NOT_FOUND","effect":"unknown","action":"reconcile","detail":"\u202e"}`))
	f.Add([]byte(`{"type":"about:blank","title":"Bad Gateway","status":502}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := decode(data)
		if !ok {
			require.Nil(t, got)
			return
		}
		_, known := got.Code.Rule()
		require.True(t, known)
		require.NotEqual(t, contract.EffectByCode, got.Effect)
		w := httptest.NewRecorder()
		Write(w, got)
		again, ok := FromResponse(w.Result())
		require.True(t, ok)
		require.Equal(t, got, again)
	})
}
