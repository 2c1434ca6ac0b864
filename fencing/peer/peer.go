// Package peer tells who is at the other end of a mutual TLS connection, by the certificate that the handshake verified, for
// fencing.Caller and fencing.Space: never by what a request or its headers say.
//
//	id, err := peer.IdentityOf(tlsInfo.State, time.Now(), &peer.Config{TrustDomains: []string{"agents.example"}})
//	...
//	fence, err := space.Hold(ctx, st.Values(tx), fencing.SessionIs(fencing.CallerOf(id.URI, meta)))
//
// Ask for every call, and for every message of a stream. A certificate is verified when a connection begins, and never again while
// it lasts: one that has ended since is only found so.
//
// The server needs tls.RequireAndVerifyClientCert; every other kind of client authentication lets connections in that have no
// verified chain, which are refused here. A revoked certificate is known by whoever revoked it: take the approval from its
// identity, or its fingerprint from the Config, and the next call is refused.
package peer

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"slices"
	"time"
)

// Identity is who a verified certificate is of.
type Identity struct {
	URI         string      // the one that the certificate names, in its only form
	Fingerprint Fingerprint // of the certificate itself
	NotAfter    time.Time   // when it ends, or an issuer's certificate that it needs: the connection is to be closed by then
}

// Fingerprint is the SHA-256 of a certificate as it is encoded (DER).
type Fingerprint [sha256.Size]byte

// String tells f in hexadecimal.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Config says which identities there can be. The zero value of a field means its default.
type Config struct {
	// Scheme is that of the URI. Default: "spiffe". Every scheme has the form of a SPIFFE ID, scheme://trust-domain/path, and no
	// other part; so that two identities are the same when their texts are.
	Scheme string

	// TrustDomains are the hosts that the URI may have. Default: any that an authority of the connection vouches for. More than one
	// authority, or one for more than one domain, needs the list.
	TrustDomains []string

	// Fingerprints are those of the only certificates that are let in. Default: any. A list that is empty and not nil lets in none.
	Fingerprints []Fingerprint
}

// IdentityOf tells the identity of a connection's peer, at a time. A nil cfg means the defaults.
//
// Every error is one of this package's, of code UNAUTHENTICATED: nothing was done, and it tells nothing of the certificate.
func IdentityOf(cs tls.ConnectionState, now time.Time, cfg *Config) (Identity, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	leaf, err := verifiedLeaf(cs)
	if err != nil {
		return Identity{}, err
	}
	if err := endEntity(leaf); err != nil {
		return Identity{}, err
	}
	uri, err := cfg.uriOf(leaf)
	if err != nil {
		return Identity{}, err
	}
	notAfter, err := valid(cs.VerifiedChains, now)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{uri, sha256.Sum256(leaf.Raw), notAfter}
	if cfg.Fingerprints != nil && !slices.Contains(cfg.Fingerprints, id.Fingerprint) {
		return Identity{}, ErrFingerprint
	}
	return id, nil
}

// verifiedLeaf is the certificate that the peer has the key of, if every chain that was verified begins with it.
func verifiedLeaf(cs tls.ConnectionState) (*x509.Certificate, error) {
	if !cs.HandshakeComplete || len(cs.PeerCertificates) == 0 || len(cs.VerifiedChains) == 0 {
		return nil, ErrUnverified
	}
	leaf := cs.PeerCertificates[0]
	for _, chain := range cs.VerifiedChains {
		if len(chain) == 0 || len(leaf.Raw) == 0 || !bytes.Equal(chain[0].Raw, leaf.Raw) {
			return nil, ErrUnverified
		}
	}
	return leaf, nil
}

// endEntity refuses a certificate that may issue others, and one that is not for clients.
func endEntity(leaf *x509.Certificate) error {
	const issues = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	if leaf.IsCA || leaf.KeyUsage&issues != 0 {
		return ErrAuthority
	}
	restricted := len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) > 0
	client := slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny)
	if restricted && !client {
		return ErrUsage
	}
	return nil
}

// valid tells until when one of the chains is valid, all of it; the error is the first chain's.
func valid(chains [][]*x509.Certificate, now time.Time) (time.Time, error) {
	var until time.Time
	var refusal error
	for _, chain := range chains {
		end, err := validChain(chain, now)
		if err == nil && end.After(until) {
			until = end
		}
		if refusal == nil {
			refusal = err
		}
	}
	if until.IsZero() {
		return until, refusal
	}
	return until, nil
}

// validChain tells until when a chain is valid. The last moment of a certificate is one of its moments (RFC 5280, 4.1.2.5).
func validChain(chain []*x509.Certificate, now time.Time) (time.Time, error) {
	until := chain[0].NotAfter
	for _, c := range chain {
		switch {
		case now.Before(c.NotBefore):
			return time.Time{}, ErrNotYetValid
		case now.After(c.NotAfter):
			return time.Time{}, ErrExpired
		case c.NotAfter.Before(until):
			until = c.NotAfter
		}
	}
	return until, nil
}
