package dispatch

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/confirmexec/confirmexec/fencing/peer"
)

// authority issues certificates into a folder, and is forgotten with the walk.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes an authority and its certificate's file.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	a := &authority{dir: dir, key: key}
	template := certificate()
	template.Subject = pkix.Name{CommonName: "the walk's authority"}
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	if a.cert, err = sign(template, template, key, key); err != nil {
		return nil, err
	}
	return a, os.WriteFile(a.file(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600)
}

func (a *authority) file() string { return filepath.Join(a.dir, "authority.pem") }

// issue makes the certificate of an identity, with its key, and returns the file.
func (a *authority) issue(name, uri string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	u, err := url.Parse(uri)
	if err != nil {
		return "", fmt.Errorf("make an identity: %w", err)
	}
	template := certificate()
	template.URIs, template.IPAddresses, template.KeyUsage = []*url.URL{u}, []net.IP{net.IPv4(127, 0, 0, 1)}, x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cert, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("encode a key: %w", err)
	}
	file := filepath.Join(a.dir, name+".pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	return file, os.WriteFile(file, append(data, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...), 0o600)
}

func certificate() *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // rand.Reader does not fail
	return &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour)}
}

func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// credentialFiles are the certificate of a process, and the authority that it trusts.
type credentialFiles struct {
	own  tls.Certificate
	pool *x509.CertPool
}

func readCredentials(authorityFile, certificateFile string) (credentialFiles, error) {
	own, err := tls.LoadX509KeyPair(certificateFile, certificateFile)
	if err != nil {
		return credentialFiles{}, fmt.Errorf("read the certificate: %w", err)
	}
	data, err := os.ReadFile(authorityFile)
	if err != nil {
		return credentialFiles{}, fmt.Errorf("read the authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return credentialFiles{}, errors.New("read the authority: it is not a certificate")
	}
	return credentialFiles{own, pool}, nil
}

// server lets in whoever has a certificate of the authority, and resumes nothing: every connection is verified (R114).
func (c credentialFiles) server() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{c.own}, ClientCAs: c.pool, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
	}
}

// client connects to the one identity alone, whatever the address is.
func (c credentialFiles) client(uri string) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{c.own}, RootCAs: c.pool, MinVersion: tls.VersionTLS13,
		VerifyConnection: func(s tls.ConnectionState) error {
			leaf := s.PeerCertificates[0]
			if len(leaf.URIs) != 1 || leaf.URIs[0].String() != uri {
				return errors.New("the server has another identity than the one that was to be called")
			}
			return nil
		},
	}
}

// identity is the process's own, as its certificate says.
func (c credentialFiles) identity() peer.Identity {
	return peer.Identity{URI: c.own.Leaf.URIs[0].String(), NotAfter: c.own.Leaf.NotAfter}
}
