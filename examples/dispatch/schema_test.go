package dispatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/examples/dispatch/agentv1"
)

// R104: no method of the service is a stream, and no message of an upload has a place for an asset's bytes: a checksum and a digest
// are all the bytes there are.
func TestNoPlaceForAudio(t *testing.T) {
	methods := agentv1.File_agent_v1_agent_proto.Services().ByName("AgentService").Methods()
	require.Equal(t, 13, methods.Len())
	var bytes []string
	for i := range methods.Len() {
		m := methods.Get(i)
		assert.False(t, m.IsStreamingClient() || m.IsStreamingServer(), m.FullName())
		bytes = append(bytes, bytesFields(m.Input(), string(m.Input().Name()))...)
		bytes = append(bytes, bytesFields(m.Output(), string(m.Output().Name()))...)
	}
	var rest []string
	for _, field := range bytes {
		if field[len(field)-len(".receipt.digest"):] != ".receipt.digest" {
			rest = append(rest, field)
		}
	}
	assert.ElementsMatch(t, []string{
		"ReportExecutionEventRequest.content", "ReportExecutionEventRequest.content_sha256", "RequestUploadRequest.asset_sha256",
		"CompleteUploadRequest.asset_sha256",
	}, rest)
}

func bytesFields(m protoreflect.MessageDescriptor, path string) (found []string) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		at := path + "." + string(f.Name())
		if f.Kind() == protoreflect.BytesKind {
			found = append(found, at)
		}
		if f.Kind() == protoreflect.MessageKind {
			found = append(found, bytesFields(f.Message(), at)...)
		}
	}
	return found
}

// R75, R107: the contract's table lists the methods of the service, each of them, and reads are what it says.
func TestMethodsAreTheServices(t *testing.T) {
	service := agentv1.AgentService_ServiceDesc
	require.Len(t, methods, len(service.Methods))
	var reads []string
	for _, m := range service.Methods {
		known, listed := methods["/"+service.ServiceName+"/"+m.MethodName]
		assert.True(t, listed, m.MethodName)
		if known.ReadOnly {
			reads = append(reads, m.MethodName)
		}
	}
	assert.ElementsMatch(t, []string{"GetAgentStatus", "GetBootstrap", "QueryExecution"}, reads)
	assert.Equal(t, contract.Method{Name: "/agent.v1.AgentService/Execute"}, method("Execute"))
}
