package peer

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// refused requires a refusal that says nothing of the certificate and that did nothing.
func refused(t *testing.T, want *contract.Failure, id Identity, err error) {
	t.Helper()
	assert.Equal(t, Identity{}, id)
	f, ok := contract.FailureOf(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, want, f)
	assert.Equal(t, contract.Unauthenticated, f.Code)
	assert.Equal(t, contract.EffectNone, f.Effect)
	require.NoError(t, errors.Unwrap(err), "no cause, which could quote the certificate")
	for _, text := range []string{secret, "agent", "example", "http", "localhost"} {
		assert.NotContains(t, strings.ReplaceAll(err.Error(), string(f.Reason), ""), text)
	}
}

// R114: over a real connection the identity is the one that the verified certificate names.
func TestIdentityOf(t *testing.T) {
	ca := newRoot(t)
	cert := ca.leaf(t)
	d := dial(t, ca.serverOf(t, tls.RequireAndVerifyClientCert), ca.clientOf(cert))
	require.NoError(t, d.clientErr)
	id, err := IdentityOf(d.server, now, nil)
	require.NoError(t, err)
	assert.Equal(t, Identity{agentURI, sha256.Sum256(cert.Leaf.Raw), cert.Leaf.NotAfter}, id)
	assert.Len(t, id.Fingerprint.String(), 64)
}

// R115: whatever is wrong with a certificate that the handshake let in is refused, over a real connection, with a reason of its own.
func TestRefusedCertificates(t *testing.T) {
	ca := newRoot(t)
	server := ca.serverOf(t, tls.RequireAndVerifyClientCert)
	for name, c := range map[string]struct {
		change func(*x509.Certificate)
		want   *contract.Failure
	}{
		"no URI":            {withURIs(t), ErrURICount},
		"two URIs":          {withURIs(t, agentURI, "spiffe://agents.example/cell-3/agent-8"), ErrURICount},
		"the same twice":    {withURIs(t, agentURI, agentURI), ErrURICount},
		"another scheme":    {withURIs(t, "https://agents.example/cell-3/agent-7"), ErrURIForm},
		"a query":           {withURIs(t, agentURI+"?a=1"), ErrURIForm},
		"an empty query":    {withURIs(t, agentURI+"?"), ErrURIForm},
		"a fragment":        {withURIs(t, agentURI+"#a"), ErrURIForm},
		"a port":            {withURIs(t, "spiffe://agents.example:443/cell-3/agent-7"), ErrURIForm},
		"a user":            {withURIs(t, "spiffe://user@agents.example/cell-3/agent-7"), ErrURIForm},
		"no path":           {withURIs(t, "spiffe://agents.example"), ErrURIForm},
		"an authority":      {func(c *x509.Certificate) { c.IsCA = true }, ErrAuthority},
		"may sign":          {func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign; c.IsCA = true }, ErrAuthority},
		"may sign CRLs":     {func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }, ErrAuthority},
		"of another domain": {withURIs(t, "spiffe://agents.example.evil/cell-3/agent-7"), ErrTrustDomain},
		"of a subdomain":    {withURIs(t, "spiffe://x.agents.example/cell-3/agent-7"), ErrTrustDomain},
	} {
		t.Run(name, func(t *testing.T) {
			d := dial(t, server, ca.clientOf(ca.leaf(t, c.change)))
			require.NoError(t, d.clientErr, "the handshake lets it in")
			id, err := IdentityOf(d.server, now, &Config{TrustDomains: []string{"other.example", "agents.example"}})
			refused(t, c.want, id, err)
		})
	}
}

// R115: a connection without a verified chain has no identity, whatever certificate came with it.
func TestUnverifiedConnections(t *testing.T) {
	ca, other := newRoot(t), newRoot(t)
	for name, c := range map[string]struct {
		auth  tls.ClientAuthType
		certs []tls.Certificate
	}{
		"no certificate is asked for":        {tls.NoClientCert, []tls.Certificate{ca.leaf(t)}},
		"none came":                          {tls.VerifyClientCertIfGiven, nil},
		"any is taken, ours":                 {tls.RequireAnyClientCert, []tls.Certificate{ca.leaf(t)}},
		"any is taken, of another authority": {tls.RequireAnyClientCert, []tls.Certificate{other.leaf(t)}},
		"it is only requested":               {tls.RequestClientCert, []tls.Certificate{ca.leaf(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			d := dial(t, ca.serverOf(t, c.auth), ca.clientOf(c.certs...))
			require.NoError(t, d.clientErr)
			id, err := IdentityOf(d.server, now, nil)
			refused(t, ErrUnverified, id, err)
		})
	}
	id, err := IdentityOf(tls.ConnectionState{}, now, nil)
	refused(t, ErrUnverified, id, err)
}

// R115: the certificate that was verified must be the one whose key the peer has; a state that says otherwise is none.
func TestStateThatContradictsItself(t *testing.T) {
	ca := newRoot(t)
	d := dial(t, ca.serverOf(t, tls.RequireAndVerifyClientCert), ca.clientOf(ca.leaf(t)))
	other := ca.leaf(t).Leaf
	for name, change := range map[string]func(*tls.ConnectionState){
		"unfinished":     func(cs *tls.ConnectionState) { cs.HandshakeComplete = false },
		"no certificate": func(cs *tls.ConnectionState) { cs.PeerCertificates = nil },
		"empty chain":    func(cs *tls.ConnectionState) { cs.VerifiedChains = [][]*x509.Certificate{{}} },
		"another leaf":   func(cs *tls.ConnectionState) { cs.PeerCertificates = []*x509.Certificate{other} },
		"another chain": func(cs *tls.ConnectionState) {
			cs.VerifiedChains = append(cs.VerifiedChains[:1:1], []*x509.Certificate{other, ca.cert})
		},
		"made by hand": func(cs *tls.ConnectionState) {
			leaf := &x509.Certificate{URIs: uris(t, agentURI), NotAfter: now.Add(time.Hour)}
			cs.PeerCertificates, cs.VerifiedChains = []*x509.Certificate{leaf}, [][]*x509.Certificate{{leaf}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cs := d.server
			change(&cs)
			id, err := IdentityOf(cs, now, nil)
			refused(t, ErrUnverified, id, err)
		})
	}
}

// R115: a server's certificate is none of a client, also where a handshake let it in; one that says nothing of its use is.
func TestUsage(t *testing.T) {
	ca := newRoot(t)
	d := dial(t, ca.serverOf(t, tls.RequireAndVerifyClientCert), ca.clientOf(ca.leaf(t)))
	id, err := IdentityOf(d.client, now, nil) // what the client knows: the server's certificate, verified for servers
	refused(t, ErrUsage, id, err)

	serverOnly := ca.leaf(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	d = dial(t, ca.serverOf(t, tls.RequireAndVerifyClientCert), ca.clientOf(serverOnly))
	require.Error(t, d.clientErr, "the handshake refuses it first")

	for name, c := range map[string]struct {
		usage   []x509.ExtKeyUsage
		unknown []asn1.ObjectIdentifier
		want    *contract.Failure
	}{
		"none":         {nil, nil, nil},
		"any":          {[]x509.ExtKeyUsage{x509.ExtKeyUsageAny}, nil, nil},
		"both":         {[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, nil, nil},
		"code signing": {[]x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, nil, ErrUsage},
		"unknown":      {nil, []asn1.ObjectIdentifier{{1, 3, 6, 1, 4, 1, 9, 9}}, ErrUsage},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := ca.leaf(t, func(x *x509.Certificate) { x.ExtKeyUsage, x.UnknownExtKeyUsage = c.usage, c.unknown }).Leaf
			id, err := IdentityOf(verified(leaf, ca.cert), now, nil)
			if c.want == nil {
				require.NoError(t, err)
				assert.Equal(t, agentURI, id.URI)
				return
			}
			refused(t, c.want, id, err)
		})
	}
}

// verified is the state of a connection whose chain was verified by somebody else.
func verified(chain ...*x509.Certificate) tls.ConnectionState {
	return tls.ConnectionState{HandshakeComplete: true, PeerCertificates: chain[:1], VerifiedChains: [][]*x509.Certificate{chain}}
}

// R114, R116: a connection that outlives its certificate is refused with the next call, to the second.
func TestConnectionOutlivesItsCertificate(t *testing.T) {
	ca := newRoot(t)
	cert := ca.leaf(t)
	d := dial(t, ca.serverOf(t, tls.RequireAndVerifyClientCert), ca.clientOf(cert))
	for name, c := range map[string]struct {
		at   time.Time
		want *contract.Failure
	}{
		"when it begins":      {cert.Leaf.NotBefore, nil},
		"before it begins":    {cert.Leaf.NotBefore.Add(-1), ErrNotYetValid},
		"its last moment":     {cert.Leaf.NotAfter, nil},
		"after that":          {cert.Leaf.NotAfter.Add(1), ErrExpired},
		"long after that":     {cert.Leaf.NotAfter.Add(24 * time.Hour), ErrExpired},
		"a clock that is off": {time.Time{}, ErrNotYetValid},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := IdentityOf(d.server, c.at, nil)
			if c.want == nil {
				require.NoError(t, err)
				assert.Equal(t, cert.Leaf.NotAfter, id.NotAfter)
				return
			}
			refused(t, c.want, id, err)
		})
	}
}

// R114: a session that is resumed from a ticket carries the first handshake's certificate on, and so ends with it.
func TestResumedSessionOutlivesItsCertificate(t *testing.T) {
	ca := newRoot(t)
	server, client := ca.serverOf(t, tls.RequireAndVerifyClientCert), ca.clientOf(ca.leaf(t))
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	first := dial(t, server, client)
	require.False(t, first.server.DidResume)
	again := dial(t, server, client)
	require.True(t, again.server.DidResume)
	id, err := IdentityOf(again.server, now, nil)
	require.NoError(t, err)
	assert.Equal(t, agentURI, id.URI)
	id, err = IdentityOf(again.server, id.NotAfter.Add(1), nil)
	refused(t, ErrExpired, id, err)
}

// R114: a certificate ends with the issuer that vouches for it, unless another chain still does.
func TestIssuerEndsFirst(t *testing.T) {
	root := newRoot(t)
	short := root.intermediate(t, now.Add(time.Minute))
	cert := short.leaf(t)
	d := dial(t, root.serverOf(t, tls.RequireAndVerifyClientCert), root.clientOf(cert))
	require.NoError(t, d.clientErr)
	id, err := IdentityOf(d.server, now, nil)
	require.NoError(t, err)
	assert.Equal(t, short.cert.NotAfter, id.NotAfter)
	id, err = IdentityOf(d.server, now.Add(2*time.Minute), nil)
	refused(t, ErrExpired, id, err)

	cs := d.server
	for _, chains := range [][][]*x509.Certificate{
		{cs.VerifiedChains[0], {cert.Leaf, root.cert}}, {{cert.Leaf, root.cert}, cs.VerifiedChains[0]},
	} {
		cs.VerifiedChains = chains
		id, err = IdentityOf(cs, now.Add(2*time.Minute), nil)
		require.NoError(t, err)
		assert.Equal(t, cert.Leaf.NotAfter, id.NotAfter)
	}
}

// R115: a list of fingerprints lets in those certificates alone, an empty one none, and none all.
func TestFingerprints(t *testing.T) {
	ca := newRoot(t)
	cert, renewed := ca.leaf(t), ca.leaf(t)
	own, other := Fingerprint(sha256.Sum256(cert.Leaf.Raw)), Fingerprint(sha256.Sum256(renewed.Leaf.Raw))
	cs := dial(t, ca.serverOf(t, tls.RequireAndVerifyClientCert), ca.clientOf(cert)).server
	for name, c := range map[string]struct {
		list []Fingerprint
		in   bool
	}{
		"no list": {nil, true}, "its own": {[]Fingerprint{own}, true}, "both, while it is renewed": {[]Fingerprint{other, own}, true},
		"another": {[]Fingerprint{other}, false}, "an empty list": {[]Fingerprint{}, false}, "zero": {[]Fingerprint{{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := IdentityOf(cs, now, &Config{Fingerprints: c.list})
			if c.in {
				require.NoError(t, err)
				assert.Equal(t, own, id.Fingerprint)
				return
			}
			refused(t, ErrFingerprint, id, err)
		})
	}
}

// R115: an identity has one form, whatever its scheme: two are equal when their texts are, and none needs to be unescaped.
func TestURIForm(t *testing.T) {
	ca := newRoot(t)
	for text, ok := range map[string]bool{
		agentURI: true, "spiffe://td/a": true, "spiffe://td/A_b-c.d/9": true, "spiffe://1.2.3.4/a": true, "SPIFFE://td/a": true,
		"spiffe://TD/a": false, "spiffe://td/": false, "spiffe://td": false, "spiffe:///a": false, "spiffe:a": false, "spiffe:/a": false,
		"spiffe://td/a/": false, "spiffe://td//a": false, "spiffe://td/./a": false, "spiffe://td/../a": false, "spiffe://td/a%2fb": false,
		"spiffe://td/%61": false, "spiffe://td/ä": false, "spiffe://tä/a": false, "spiffe://td:/a": false, "spiffe://td:1/a": false,
		"spiffe://[::1]/a": false, "spiffe://u:p@td/a": false, "spiffe://@td/a": false, "spiffe://td/a?": false, "spiffe://td/a?b": false,
		"spiffe://td/a#b": false, "spiffe://td/a b": false, "spiffe://td/a:b": false, "spiffe://td/a@b": false,
		"urn:uuid:1": false, "//td/a": false,
		"https://td/a": false, "spiffes://td/a": false, "": false,
		"spiffe://td/" + strings.Repeat("a", maxURI-len("spiffe://td/")):   true,
		"spiffe://td/" + strings.Repeat("a", maxURI-len("spiffe://td/")+1): false,
	} {
		leaf := *ca.leaf(t).Leaf
		leaf.URIs = uris(t, text)
		id, err := IdentityOf(verified(&leaf, ca.cert), now, nil)
		if ok {
			require.NoError(t, err, text)
			assert.Equal(t, strings.Replace(text, "SPIFFE", "spiffe", 1), id.URI)
			continue
		}
		refused(t, ErrURIForm, id, err)
	}
	leaf := *ca.leaf(t).Leaf
	leaf.URIs = []*url.URL{nil}
	id, err := IdentityOf(verified(&leaf, ca.cert), now, nil)
	refused(t, ErrURICount, id, err)
}

// R115: an empty fragment or query, which other readers of the certificate may keep, makes another URI of it.
func TestEmptyPartsOfURIs(t *testing.T) {
	ca := newRoot(t)
	server := ca.serverOf(t, tls.RequireAndVerifyClientCert)
	for text, ok := range map[string]bool{
		agentURI: true, "SPIFFE" + strings.TrimPrefix(agentURI, "spiffe"): true, agentURI + "#": false, agentURI + "?": false,
		agentURI + "?#": false, agentURI + "##": false, "SPIFFE" + strings.TrimPrefix(agentURI, "spiffe") + "#": false,
	} {
		d := dial(t, server, ca.clientOf(ca.leaf(t, withRawURI(t, text))))
		require.NoError(t, d.clientErr, "the handshake lets it in")
		id, err := IdentityOf(d.server, now, nil)
		if ok {
			require.NoError(t, err, text)
			assert.Equal(t, agentURI, id.URI)
			continue
		}
		refused(t, ErrURIForm, id, err)
	}
}

// Another scheme has the same form, and then takes the place of the usual one.
func TestAnotherScheme(t *testing.T) {
	ca := newRoot(t)
	cfg := &Config{Scheme: "https", TrustDomains: []string{"agents.example"}}
	cert := ca.leaf(t, withURIs(t, "https://agents.example/cell-3/agent-7"))
	cs := dial(t, ca.serverOf(t, tls.RequireAndVerifyClientCert), ca.clientOf(cert)).server
	id, err := IdentityOf(cs, now, cfg)
	require.NoError(t, err)
	assert.Equal(t, "https://agents.example/cell-3/agent-7", id.URI)

	cs = dial(t, ca.serverOf(t, tls.RequireAndVerifyClientCert), ca.clientOf(ca.leaf(t))).server
	id, err = IdentityOf(cs, now, cfg)
	refused(t, ErrURIForm, id, err)
	id, err = IdentityOf(cs, now, &Config{TrustDomains: []string{"example", "AGENTS.EXAMPLE", ""}})
	refused(t, ErrTrustDomain, id, err)
}

// Whatever URI a certificate names: it is refused, or its text names that URI and no other.
func FuzzURI(f *testing.F) {
	for _, text := range []string{agentURI, "spiffe://td/%61", "spiffe://a@td:1/x?y#z", "spiffe:///..//.", "spiffe://TD/a", "spiffe://td/a#"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		san := []pkix.Extension{{Id: subjectAltName, Value: []byte(text)}}
		leaf := &x509.Certificate{Raw: []byte{1}, URIs: []*url.URL{u}, Extensions: san, NotAfter: now}
		id, err := IdentityOf(verified(leaf), now, nil)
		if err != nil {
			refusedForm(t, err)
			return
		}
		again, err := url.Parse(id.URI)
		require.NoError(t, err)
		assert.Equal(t, url.URL{Scheme: "spiffe", Host: u.Host, Path: u.Path}, *again)
		assert.Equal(t, id.URI, again.String())
		assert.True(t, strings.EqualFold(id.URI, text), "%q is not %q", id.URI, text)
	})
}

func refusedForm(t *testing.T, err error) {
	t.Helper()
	assert.ErrorIs(t, err, ErrURIForm)
}
