// Package agentv1 is the Agent contract on the wire, generated from proto/agent/v1.
package agentv1
