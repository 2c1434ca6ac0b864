package contracttest

import "time"

// fencingTopics are about what fences off what is too late.
var fencingTopics = []topic{
	newTopic("fencing_epochs", gotEpoch, "EpochIs"),
	newTopic("fencing_offices", gotOffice, "TakeOffice"),
	newTopic("fencing_sessions", gotSession, "Admit"),
	newTopic("fencing_activations", gotActivation, "Activate"),
	newTopic("fencing_tokens", gotToken, "ShowToken"),
	newTopic("fencing_deadlines", gotDeadline, "Before"),
}

// Office is the active instance: its opaque epoch, and the number of the office. The zero Office is nobody's.
type Office struct {
	Epoch  string `json:"epoch"`
	Number int64  `json:"number"`
}

// Binding is who an agent is.
type Binding struct {
	AgentID    string `json:"agent_id"`
	CellID     string `json:"cell_id"`
	BootID     string `json:"boot_id"`
	Generation int64  `json:"generation"`
}

// Session is the session that stands for a certificate identity; with an agent and without a boot it is approved and not active.
type Session struct {
	Binding
	Epoch string `json:"epoch"`
}

// Caller is what a request shows: the identity in its certificate, and what it says of itself.
type Caller struct {
	Peer  string  `json:"peer"`
	Says  Binding `json:"says"`
	Epoch string  `json:"epoch"`
}

// Mark is the highest fencing token that a resource has seen, and who showed it.
type Mark struct {
	Token  int64  `json:"token"`
	Holder string `json:"holder"`
}

type admission struct {
	refusal
	Admitted bool `json:"admitted,omitempty"`
}

func admissionOf(err error, want refusal) admission {
	return admission{refusalOf(err, want), err == nil}
}

type epochIn struct {
	Office Office `json:"office"`
	Shown  string `json:"shown"`
}

func gotEpoch(i Implementation, in epochIn, want admission) admission {
	return admissionOf(i.EpochIs(in.Office, in.Shown), want.refusal)
}

type officeIn struct {
	Office Office `json:"office"`
	Take   string `json:"take"`
}

type officeWant struct {
	refusal
	Office *Office `json:"office,omitempty"`
}

func gotOffice(i Implementation, in officeIn, want officeWant) officeWant {
	o, err := i.TakeOffice(in.Office, in.Take)
	if err != nil {
		return officeWant{refusal: refusalOf(err, want.refusal)}
	}
	return officeWant{Office: &o}
}

type sessionIn struct {
	Session Session `json:"session"`
	Caller  Caller  `json:"caller"`
}

func gotSession(i Implementation, in sessionIn, want admission) admission {
	return admissionOf(i.Admit(in.Session, in.Caller), want.refusal)
}

type activationIn struct {
	Session  Session `json:"session"`
	Activate Caller  `json:"activate"`
}

type sessionWant struct {
	refusal
	Session *Session `json:"session,omitempty"`
}

func gotActivation(i Implementation, in activationIn, want sessionWant) sessionWant {
	s, err := i.Activate(in.Session, in.Activate)
	if err != nil {
		return sessionWant{refusal: refusalOf(err, want.refusal)}
	}
	return sessionWant{Session: &s}
}

type tokenIn struct {
	Mark Mark  `json:"mark"`
	Show shown `json:"show"`
}

type shown struct {
	Token  int64  `json:"token"`
	Holder string `json:"holder"`
}

type tokenWant struct {
	refusal
	Mark *Mark `json:"mark,omitempty"`
}

func gotToken(i Implementation, in tokenIn, want tokenWant) tokenWant {
	m, err := i.ShowToken(in.Mark, in.Show.Token, in.Show.Holder)
	if err != nil {
		return tokenWant{refusal: refusalOf(err, want.refusal)}
	}
	return tokenWant{Mark: &m}
}

type deadlineIn struct {
	Now      int64  `json:"now"`
	Deadline *int64 `json:"deadline"`
}

func gotDeadline(i Implementation, in deadlineIn, want admission) admission {
	var deadline time.Time
	if in.Deadline != nil {
		deadline = time.UnixMilli(*in.Deadline)
	}
	return admissionOf(i.Before(time.UnixMilli(in.Now), deadline), want.refusal)
}
