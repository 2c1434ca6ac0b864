package contracttest

// keyTopic is about the life of a key and the order of answers.
var keyTopic = newTopic("keys", gotKeys, "Keys")

// KeyEvent is one thing that happens on a system. Which members are set depends on Event:
//
//   - "propose": Content is proposed under a new key, which is called Key from then on. The answer is "minted".
//   - "confirm": Content is confirmed under Key, with the surface as Surface says, by somebody who is Denied or not; Run says what
//     its executor does if it is called.
//   - "finish": the attempt at Key that keeps running applies its item; the answer is the one that its confirm gets.
//   - "cancel", "lookup": of Key. "resolve": of Key, by a reader whose finding is Verdict. "purge": of all keys.
//   - "pass": Time passes on the database's clock; the answer is "ok".
//
// testdata/vectors/v1/keys/README.md says what the answers mean.
type KeyEvent struct {
	Event   string `json:"event"`
	Tenant  string `json:"tenant"`  // empty: "one"
	Key     string `json:"key"`     // a name for a key that was minted; "unknown": of a key that never was
	Content string `json:"content"` // "A", "A, reordered" (of the same value), "B" (another), or "invalid"
	Surface string `json:"surface"` // empty: as proposed; "moved", "changed" (its version) or "unreadable" (no version)
	Denied  bool   `json:"denied"`
	Run     string `json:"run"`     // empty: applies; "fails", "unclear", "keeps_running" or "crashes"
	Verdict string `json:"verdict"` // "applied", "absent" or "unknown"
	Time    string `json:"time"`    // "lease", "expiry" or "retention": longer than that
}

type keysIn struct {
	Events []KeyEvent `json:"events"`
}

type keysWant struct {
	Answers []string `json:"answers"`
	Runs    int      `json:"runs"`
	Other   string   `json:"other,omitempty"`
}

func gotKeys(i Implementation, in keysIn, _ keysWant) keysWant {
	answers, runs, err := i.Keys(in.Events)
	if err != nil {
		return keysWant{answers, runs, err.Error()}
	}
	return keysWant{Answers: answers, Runs: runs}
}
