package peer

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
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
	if u.Scheme != cmp.Or(c.Scheme, "spiffe") || !plain(u) || u.String() != text || emptyFragment(leaf, u) || len(text) > maxURI {
		return "", ErrURIForm
	}
	if len(c.TrustDomains) > 0 && !slices.Contains(c.TrustDomains, u.Host) {
		return "", ErrTrustDomain
	}
	return text, nil
}

// subjectAltName is the extension that holds a certificate's URIs (RFC 5280, 4.2.1.6).
var subjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// emptyFragment says whether the certificate has a '#' after the URI, and nothing after that. A parsed URL does not show it, as it does
// an empty query; so it is looked for in what was parsed, where the URI's bytes stand as they are.
func emptyFragment(leaf *x509.Certificate, u *url.URL) bool {
	return slices.ContainsFunc(leaf.Extensions, func(e pkix.Extension) bool {
		return e.Id.Equal(subjectAltName) && bytes.Contains(e.Value, []byte("://"+u.Host+u.Path+"#"))
	})
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
