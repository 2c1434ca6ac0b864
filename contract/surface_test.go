package contract

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var goodSurfaces = []string{
	"matter:123/forums", "forums@v2", "a", "matter/123/forums", "firm:7:calendar", "100%", "5% of it", "100%zz", "a/b/c.d",
	"profile:12", "database:4", "newsletter:9", "my-file:3", "matter:http", "https", "wwwx", "www", "Größe/日本語", "a%20b",
	"C:drive", "key=value&x=1", "a|b", "x.y:z", "metadata:1", "hotel:5", "a b", "10:30",
}

var badSurfaces = []string{
	"http://example.com", "HTTP://EXAMPLE.COM", "hTtPs://x", "x://y", "see http://example.com", "matter:123/http://x",
	"//example.com", "matter//example.com", `\\host\share`, `/\host`, `\/host`, `http:\\host`, `http:/\host`, "://x",
	"a//b",
	"www.example.com", "WWW.example.com", "see www.example.com", "x/www.example.com", "matter:www.x",
	"http:example.com", "https:x", "http:/x", "mailto:a@b.c", "MailTo:a@b.c", "javascript:alert(1)", "JAVASCRIPT:x",
	"data:text/html,x", "file:/etc/passwd", "ftp:x", "blob:x", "ws:x", "wss:x", "tel:+1", "vbscript:x", "urn:isbn:1",
	"matter:123 mailto:a@b", "x=javascript:y", "(http:x)", "view-source:http:x", "x,data:y", "/file:x", "123http:x",
	"http%3a//x", "http%3A%2F%2Fx", "http%253A%252F%252Fx", "%2f%2fx", "%2F/x", "%5c%5cx", "%2525252f%2525252fx",
	"%77%77%77.x", "%6aavascript%3ax", "www%2ex", "%68%74%74%70%3a%2f%2f", "100%%2f%2f", "%%32f%%32fx", "mailto%3Aa",
	"a%00b", "a%0ab", "java%09script:x", "%20http", "a%c0%afb", "a%ffb", "a%e2%80%aeb", "a%20", "%ef%bb%bfx",
	"\uff48\uff54\uff54\uff50\uff1a\uff0f\uff0fx", "\uff0f\uff0fx", "http\uff1ax", "\uff57\uff57\uff57\uff0ex",
	"\uff3c\uff3cx", "\uff05\uff12\uff26\uff05\uff12\uff26x",
	"\uff2a\uff21\uff36\uff21\uff33\uff23\uff32\uff29\uff30\uff34:x",
	"\ufe68\ufe68x", "\ufe6a2f\ufe6a2fx", "www\u2024x", "mailto\ufe13x",
	// a rune of several bytes just before the scheme
	"\u201cjavascript:alert(1)\u201d", "matter\u2192mailto:a@b.c", "\u00e9http:example.com", "%e2%86%92data:text/html,x",
	"\u65e5\u672c\u8a9ejavascript:x", "a/\u00bbfile:x", "\U0001f600tel:+1", "\u00df123http:x", "%C3%A9javascript%3Ax",
	"www\u3002x", "http\ufe55x", "%ef%bc%8f%ef%bc%8fx", "\u212aeep//x",
}

// S3: a surface key is a name: URLs in any form, hidden characters and empty or long keys are refused.
func TestSurfaceKey(t *testing.T) {
	for _, good := range goodSurfaces {
		k, err := ParseSurfaceKey(good)
		assert.NoError(t, err, good)
		assert.Equal(t, good, string(k))
	}
	for _, bad := range append(badSurfaces, badTexts...) {
		k, err := ParseSurfaceKey(bad)
		if assert.Error(t, err, "%q", bad) {
			requireInvalid(t, err, "/surface_key")
		}
		assert.Empty(t, k)
	}
	requireInvalid(t, SurfaceKey(strings.Repeat("x", 513)).Validate(Limits{}), "/surface_key")
	assert.NoError(t, SurfaceKey("12345").Validate(Limits{SurfaceKey: 5}))
	requireInvalid(t, SurfaceKey("123456").Validate(Limits{SurfaceKey: 5}), "/surface_key")
}

var escape = regexp.MustCompile(`%[0-9a-fA-F]{2}`)

// opaqueURL is a scheme that is followed without slashes, after anything that is no letter of it.
var opaqueURL = regexp.MustCompile(`(^|[^a-z0-9+._-])(javascript|data|mailto|https?|file|tel):`)

// S3: nothing that is accepted turns into a URL by being decoded.
func FuzzSurfaceKey(f *testing.F) {
	for _, s := range append(goodSurfaces, badSurfaces...) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := ParseSurfaceKey(s); err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		for before := ""; before != s; {
			before = s
			lower := strings.ToLower(s)
			require.NotContains(t, lower, "://")
			require.False(t, strings.HasPrefix(lower, "//") || strings.HasPrefix(lower, "http:"))
			require.Equal(t, strings.TrimSpace(lower), lower)
			require.NotContains(t, lower, "\x00")
			require.NotRegexp(t, opaqueURL, lower)
			s = escape.ReplaceAllStringFunc(s, func(e string) string {
				b, _ := strconv.ParseUint(e[1:], 16, 8)
				return string([]byte{byte(b)})
			})
		}
	})
}
