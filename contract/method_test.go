package contract

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const agentService = "agent.v1.AgentService"

func agentMethod(name string) Method {
	return AgentMethods(agentService).Of("/" + agentService + "/" + name)
}

// R75, R107: exactly three methods of the thirteen are read-only, and so the only ones that may be retried; GetExecutionPermit is
// not one of them in spite of its name.
func TestReadOnlyMethods(t *testing.T) {
	var reads []string
	for name, m := range AgentMethods(agentService) {
		assert.Equal(t, name, m.Name)
		if m.ReadOnly {
			reads = append(reads, strings.TrimPrefix(name, "/"+agentService+"/"))
			assert.False(t, m.Resend || m.Redelivered, "a read is not a mutation too")
		}
	}
	slices.Sort(reads)
	assert.Equal(t, []string{"GetAgentStatus", "GetBootstrap", "QueryExecution"}, reads)
	assert.Equal(t, Method{Name: "/" + agentService + "/GetExecutionPermit", Resend: true}, agentMethod("GetExecutionPermit"))
}

// R52, R63, R85: methods that originate an execution are never sent a second time; one method is redelivered; there are thirteen.
func TestAgentMethods(t *testing.T) {
	methods := AgentMethods(agentService)
	assert.Len(t, methods, 13)
	for name, m := range methods {
		originates := strings.HasSuffix(name, "/Execute") || strings.HasSuffix(name, "/ExecuteAuthorized")
		assert.Equal(t, !originates && !m.ReadOnly, m.Resend, name)
		assert.Equal(t, strings.HasSuffix(name, "/ApplyApprovedTaskControl"), m.Redelivered, name)
	}
	for _, name := range []string{
		"ActivateAgent", "SetAdmissionState", "Execute", "ExecuteAuthorized", "QueryExecution", "GetExecutionPermit", "ApplyTaskControl",
		"ApplyApprovedTaskControl", "ReportExecutionEvent", "RequestUpload", "CompleteUpload", "GetAgentStatus", "GetBootstrap",
	} {
		assert.Contains(t, methods, "/"+agentService+"/"+name)
	}
	delete(methods, "/"+agentService+"/Execute")
	assert.Len(t, AgentMethods(agentService), 13, "the map is the caller's")
}

// R107: the default is to deny. A name that is nearly a read is a mutation that is never sent again.
func TestUnlistedMethods(t *testing.T) {
	methods := AgentMethods(agentService)
	for _, name := range []string{
		"", "QueryExecution", "/QueryExecution", agentService + "/QueryExecution", "/" + agentService + "/queryexecution",
		"/" + agentService + "/QueryExecution/", "/agent.v2.AgentService/QueryExecution", "/" + agentService + "/GetAnything",
	} {
		assert.Equal(t, Method{Name: name}, methods.Of(name))
		assert.Equal(t, Method{Name: name}, Methods(nil).Of(name))
		assert.Equal(t, Decision{Reconcile, EffectUnknown, false}, Decide(methods.Of(name), nil, SentUnknown))
	}
	assert.Equal(t, Methods{}.Of("x"), Methods{"x": {Name: "another"}}.Of("x"), "the name is the one that was asked for")
}
