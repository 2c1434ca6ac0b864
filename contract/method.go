package contract

// Method says how the calls of one remote method are to be treated. The zero value is the safe one: a mutation that is never
// sent a second time.
type Method struct {
	// Name is the full method name, such as "/agent.v1.AgentService/Execute".
	Name string

	// ReadOnly methods change nothing. They are the only ones that may be retried (R107).
	ReadOnly bool

	// Resend says that, once the action of a [Decision] is done, the original operation may be sent again, with the same id, key
	// and bytes: the receiver answers it with the receipt that it stored. It is false for methods that originate an execution:
	// an unknown one is only ever queried (R52, R63).
	Resend bool

	// Redelivered methods are processed on every delivery and have no idempotency key (R85).
	Redelivered bool
}

// Methods is an allow-list by full method name.
type Methods map[string]Method

// Of returns what is said of a method. One that is not listed is a mutation that is never sent again: the default is to deny.
func (m Methods) Of(name string) Method {
	known := m[name]
	known.Name = name
	return known
}

// AgentMethods returns the thirteen methods of the Agent contract, under the full name of the service that has them, such as
// "agent.v1.AgentService". Exactly three of them are read-only: GetAgentStatus, GetBootstrap and QueryExecution.
// GetExecutionPermit is a mutation in spite of its name (R75). The map is the caller's.
func AgentMethods(service string) Methods {
	m := Methods{}
	for _, x := range []Method{
		{Name: "ActivateAgent", Resend: true},
		{Name: "SetAdmissionState", Resend: true},
		{Name: "Execute"},
		{Name: "ExecuteAuthorized"},
		{Name: "QueryExecution", ReadOnly: true},
		{Name: "GetExecutionPermit", Resend: true},
		{Name: "ApplyTaskControl", Resend: true},
		{Name: "ApplyApprovedTaskControl", Resend: true, Redelivered: true},
		{Name: "ReportExecutionEvent", Resend: true},
		{Name: "RequestUpload", Resend: true},
		{Name: "CompleteUpload", Resend: true},
		{Name: "GetAgentStatus", ReadOnly: true},
		{Name: "GetBootstrap", ReadOnly: true},
	} {
		x.Name = "/" + service + "/" + x.Name
		m[x.Name] = x
	}
	return m
}
