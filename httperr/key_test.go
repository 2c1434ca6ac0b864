package httperr

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

const keyText = "8e03978e-40d5-43e8-bc93-6894a57f9324"

var badKeys = []string{
	"", `""`, " ", `"`, `"""`, keyText[1:], keyText + "0", `"` + keyText, keyText + `"`, `"` + keyText + `" "`, `""` + keyText + `""`,
	`'` + keyText + `'`, `"` + keyText + `";a=1`, `"` + keyText + `", "` + keyText + `"`, keyText + "," + keyText, `" ` + keyText[2:] + `"`,
	`"` + keyText + ` "`, `"{` + keyText + `}"`, `"urn:uuid:` + keyText + `"`, strings.ReplaceAll(keyText, "-", ""), `"\` + keyText + `"`,
	`:` + keyText + `:`, uuid.Nil.String(), `"` + uuid.Nil.String() + `"`, strings.ReplaceAll(keyText, "-", "_"), "g" + keyText[1:],
	keyText + "\n", "\u200b" + keyText, "8e03978e-40d5-43e8-bc93-6894a57f932\xff", "null", "1", "?1", "*",
}

func header(values ...string) http.Header { return http.Header{KeyHeader: values} }

// S2, R30: the header holds one UUID, as a string or bare; everything else is refused, and no error shows it.
func TestKeyFromHeader(t *testing.T) {
	for _, good := range []string{
		keyText, `"` + keyText + `"`, ` "` + keyText + `" `, strings.ToUpper(keyText), `"` + strings.ToUpper(keyText) + `"`, "\t" + keyText,
	} {
		key, err := KeyFromHeader(header(good))
		require.NoError(t, err, good)
		assert.Equal(t, keyText, key.String())
	}
	for _, h := range []http.Header{nil, {}, header(), header(keyText, keyText), header(`"`+keyText+`"`, "")} {
		_, err := KeyFromHeader(h)
		checkInvalidKey(t, err)
	}
	for _, bad := range badKeys {
		key, err := KeyFromHeader(header(bad))
		checkInvalidKey(t, err)
		assert.Equal(t, uuid.Nil, key, "%q", bad)
		if len(bad) > 4 {
			assert.NotContains(t, err.Error(), bad)
		}
	}
}

func checkInvalidKey(t *testing.T, err error) {
	t.Helper()
	var invalid *contract.InvalidError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, "/header/Idempotency-Key", invalid.Path)
	assert.Equal(t, 400, ProblemOf(err).Status)
	assert.NotContains(t, ProblemOf(err).Detail, keyText)
}

// R30: through a real server, what a client sets is what the handler gets, and a request without a key does not get there.
func TestWithKey(t *testing.T) {
	var got []uuid.UUID
	srv := httptest.NewServer(WithKey(func(_ http.ResponseWriter, _ *http.Request, key uuid.UUID) { got = append(got, key) }))
	defer srv.Close()
	for _, tc := range []struct {
		set    func(http.Header)
		status int
	}{
		{func(h http.Header) { SetKey(h, uuid.MustParse(keyText)) }, 200},
		{func(h http.Header) { h.Set(KeyHeader, keyText) }, 200},
		{func(http.Header) {}, 400},
		{func(h http.Header) { h.Set(KeyHeader, "") }, 400},
		{func(h http.Header) { SetKey(h, uuid.Nil) }, 400},
		{func(h http.Header) {
			h.Add(KeyHeader, keyText)
			h.Add(KeyHeader, keyText)
		}, 400},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, http.NoBody)
		require.NoError(t, err)
		tc.set(req.Header)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		assert.Equal(t, tc.status, resp.StatusCode)
		f, ok := FromResponse(resp)
		assert.Equal(t, tc.status == 400, ok)
		if ok {
			assert.ErrorIs(t, f, contract.ErrInvalid)
			assert.Contains(t, f.Message, "/header/Idempotency-Key: ")
		}
		require.NoError(t, resp.Body.Close())
	}
	assert.Equal(t, []uuid.UUID{uuid.MustParse(keyText), uuid.MustParse(keyText)}, got)
}

// S2: no header makes the parser panic; what it accepts is one key, in either of two forms.
func FuzzKeyFromHeader(f *testing.F) {
	f.Add(`"` + keyText + `"`)
	for _, bad := range badKeys {
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := KeyFromHeader(header(value))
		if err != nil {
			require.ErrorIs(t, err, contract.ErrInvalid)
			require.Equal(t, uuid.Nil, key)
			return
		}
		require.NotEqual(t, uuid.Nil, key)
		bare := strings.ToLower(strings.Trim(value, " \t"))
		require.Contains(t, []string{key.String(), `"` + key.String() + `"`}, bare)
		h := http.Header{}
		SetKey(h, key)
		again, err := KeyFromHeader(h)
		require.NoError(t, err)
		require.Equal(t, key, again)
	})
}
