package peer

import "github.com/confirmexec/confirmexec/contract"

// The reasons of refusals.
const (
	ReasonUnverified  contract.Reason = "pramaan.agent_peer.unverified"
	ReasonAuthority   contract.Reason = "pramaan.agent_peer.authority"
	ReasonUsage       contract.Reason = "pramaan.agent_peer.usage"
	ReasonURICount    contract.Reason = "pramaan.agent_peer.uri_count"
	ReasonURIForm     contract.Reason = "pramaan.agent_peer.uri_form"
	ReasonTrustDomain contract.Reason = "pramaan.agent_peer.trust_domain"
	ReasonExpired     contract.Reason = "pramaan.agent_peer.expired"
	ReasonNotYetValid contract.Reason = "pramaan.agent_peer.not_yet_valid"
	ReasonFingerprint contract.Reason = "pramaan.agent_peer.fingerprint"
)

// The refusals, for errors.Is. None of them did anything (R66, R115).
var (
	// ErrUnverified is the refusal of a connection without a client certificate, or with one that the handshake did not verify.
	ErrUnverified = refuse(ReasonUnverified, "the connection has no verified client certificate")
	// ErrAuthority is the refusal of a certificate that may issue others.
	ErrAuthority = refuse(ReasonAuthority, "the client certificate is an authority's")
	// ErrUsage is the refusal of a certificate that is not for clients.
	ErrUsage = refuse(ReasonUsage, "the client certificate is not for clients")
	// ErrURICount is the refusal of a certificate that names no URI, or more than one.
	ErrURICount = refuse(ReasonURICount, "the client certificate must name one URI")
	// ErrURIForm is the refusal of a URI of another scheme or form.
	ErrURIForm = refuse(ReasonURIForm, "the client certificate's URI must be a scheme, a trust domain and a path, and nothing else")
	// ErrTrustDomain is the refusal of a trust domain that is not among those that are trusted.
	ErrTrustDomain = refuse(ReasonTrustDomain, "the client certificate is of another trust domain")
	// ErrExpired is the refusal of a certificate that has ended, or that was issued by one that has, since the connection began.
	ErrExpired = refuse(ReasonExpired, "the client certificate has expired")
	// ErrNotYetValid is the refusal of a certificate before its time.
	ErrNotYetValid = refuse(ReasonNotYetValid, "the client certificate is not valid yet")
	// ErrFingerprint is the refusal of a certificate that is not among those that are let in.
	ErrFingerprint = refuse(ReasonFingerprint, "the client certificate is not one of those that are let in")
)

func refuse(reason contract.Reason, problem string) *contract.Failure {
	return &contract.Failure{
		Code: contract.Unauthenticated, Reason: reason, Effect: contract.EffectNone,
		Message: problem + "; nothing was done; connect with another certificate",
	}
}
