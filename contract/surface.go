package contract

import (
	"strconv"
	"strings"
)

// SurfaceKey is the product's own name for the surface that an operation changes, for example "matter:123/forums". It
// is never an address: whatever reads it must not be led to fetch it (S3).
type SurfaceKey string

// ParseSurfaceKey returns s as a key, checked as [SurfaceKey.Validate] does under the default limits.
func ParseSurfaceKey(s string) (SurfaceKey, error) {
	k := SurfaceKey(s)
	if err := k.Validate(Limits{}); err != nil {
		return "", err
	}
	return k, nil
}

// Validate refuses a key that is empty, over its limit or not one line of visible text, and one that is or holds a URL
// in any disguise: upper case, back slashes, percent-encoding of any depth, full-width characters (S3). The error is an
// *[InvalidError] at /surface_key.
func (k SurfaceKey) Validate(l Limits) error {
	const path = "/surface_key"
	limit := l.orDefault().SurfaceKey
	if err := checkText(path, string(k), limit); err != nil {
		return err
	}
	for s := plain(string(k)); ; s = plain(s) {
		if holdsURL(s) {
			return invalid(path, "must be the product's name for the surface, not a URL and without one")
		}
		decoded := unescape(s) // shorter than s, or s: the loop ends
		if decoded == s {
			return nil
		}
		if s = decoded; checkText(path, s, limit) != nil {
			return invalid(path, "must not hide other than visible text behind percent-encoding")
		}
	}
}

// holdsURL expects plain text.
func holdsURL(s string) bool {
	if strings.Contains(s, "//") || strings.Contains(s, "www.") {
		return true
	}
	for rest := s; ; {
		before, after, ok := strings.Cut(rest, ":")
		if !ok {
			return false
		}
		word := before[len(strings.TrimRightFunc(before, inScheme)):]
		if opaqueSchemes[strings.TrimLeft(word, "+-.0123456789")] {
			return true
		}
		rest = after
	}
}

// opaqueSchemes are followed without "//" by browsers, mail readers and phones.
var opaqueSchemes = map[string]bool{
	"about": true, "blob": true, "callto": true, "cid": true, "data": true, "facetime": true, "file": true,
	"filesystem": true, "ftp": true, "ftps": true, "http": true, "https": true, "jar": true, "javascript": true,
	"livescript": true, "magnet": true, "mailto": true, "mid": true, "sftp": true, "sip": true, "sips": true,
	"sms": true, "tel": true, "urn": true, "vbscript": true, "view-source": true, "ws": true, "wss": true, "xmpp": true,
}

func inScheme(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '+' || r == '-' || r == '.' || r == '_'
}

// plain returns s as a lenient reader takes it: lower case, compatibility forms as ASCII, back slashes as slashes.
func plain(s string) string {
	return strings.ReplaceAll(strings.ToLower(strings.Map(toASCII, s)), `\`, "/")
}

// toASCII maps the full-width block, and the other compatibility forms of the characters that make a URL.
func toASCII(r rune) rune {
	switch {
	case '\uff01' <= r && r <= '\uff5e':
		return r - '\uff01' + '!'
	case r == '\ufe55' || r == '\ufe13':
		return ':'
	case r == '\ufe68':
		return '\\'
	case r == '\ufe6a':
		return '%'
	case r == '\u2024' || r == '\ufe52' || r == '\u3002' || r == '\uff61':
		return '.'
	}
	return r
}

// unescape decodes each well-formed percent sequence once and leaves every other percent sign as it is.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
