package peer

import (
	"cmp"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
)

// maxURI is the length of a SPIFFE ID that everybody must support, in bytes.
const maxURI = 2048

// uriOf tells the one URI of a certificate.
func (c *Config) uriOf(leaf *x509.Certificate) (string, error) {
	if len(leaf.URIs) != 1 || leaf.URIs[0] == nil {
		return "", ErrURICount
	}
	u := leaf.URIs[0]
	text := u.Scheme + "://" + u.Host + u.Path
	if u.Scheme != cmp.Or(c.Scheme, "spiffe") || !plain(u) || u.String() != text || len(text) > maxURI {
		return "", ErrURIForm
	}
	if len(c.TrustDomains) > 0 && !slices.Contains(c.TrustDomains, u.Host) {
		return "", ErrTrustDomain
	}
	return text, nil
}

// plain says whether u is a scheme, a host and a path, each in the only form that it has: so there is no port, no user, no query, no
// fragment, nothing that is escaped or relative, and nothing that differs in case alone but in the path.
func plain(u *url.URL) bool {
	path, rooted := strings.CutPrefix(u.Path, "/")
	if !rooted || u.Host == "" || strings.Trim(u.Host, lower+digits+marks) != "" {
		return false
	}
	return !slices.ContainsFunc(strings.Split(path, "/"), func(segment string) bool {
		return segment == "" || segment == "." || segment == ".." || strings.Trim(segment, lower+upper+digits+marks) != ""
	})
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
	marks  = ".-_"
)
