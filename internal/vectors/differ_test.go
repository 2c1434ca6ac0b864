package vectors_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// document is one that both implementations judge.
type document struct {
	kind string
	data []byte
}

// judged is what package contract makes of it, in the words of testdata/judge.mjs.
func (d document) judged() string {
	switch d.kind {
	case "confirmation":
		c, err := contract.DecodeConfirmation(d.data, contract.Limits{})
		if err != nil {
			return "refused"
		}
		digest, err := contract.DigestOf(c.Proposal())
		if err != nil {
			return "a confirmation without a digest: " + err.Error()
		}
		return fmt.Sprintf("%s %x", c.IdempotencyKey, digest)
	case "canonical":
		form, err := contract.CanonicalJSON(d.data)
		if err != nil {
			return "refused"
		}
		return string(form)
	}
	if _, err := contract.ParseSurfaceKey(string(d.data)); err != nil {
		return "refused"
	}
	return "accepted"
}

// S10, S20: two implementations, of which none was made from the other, agree on documents that nobody wrote: vectors that were changed
// by chance, and numbers. The seed is fixed.
func TestImplementationsAgree(t *testing.T) {
	const each = 5000
	r := rand.New(rand.NewPCG(8785, 2020))
	var all []document
	for kind, seeds := range map[string][][]byte{
		"confirmation": documentsOf(t, "confirmations", "document"),
		"canonical":    documentsOf(t, "canonical", "document"),
		"surface_key":  documentsOf(t, "surface_keys", "surface_key"),
	} {
		for range each {
			if data := changed(r, seeds[r.IntN(len(seeds))]); kind != "surface_key" || utf8.Valid(data) {
				all = append(all, document{kind, data})
			}
		}
	}
	for range each {
		all = append(all, document{"canonical", []byte(number(r))})
	}
	verdicts := judgedByNode(t, all)
	require.Len(t, verdicts, len(all))
	accepted := 0
	for i, d := range all {
		want := d.judged()
		assert.Equal(t, want, verdicts[i], "%s %q", d.kind, d.data)
		if want != "refused" {
			accepted++
		}
	}
	t.Logf("%d documents, %d of them accepted", len(all), accepted)
	require.Greater(t, accepted, each/2)
}

func documentsOf(t *testing.T, topic, member string) (all [][]byte) {
	t.Helper()
	for _, v := range vectorsOf(t, topic) {
		all = append(all, raw(t, v.In[member]))
	}
	return all
}

// judgedByNode asks the second implementation.
func judgedByNode(t *testing.T, all []document) (verdicts []string) {
	t.Helper()
	var in bytes.Buffer
	for _, d := range all {
		fmt.Fprintf(&in, `{"kind":%q,"document":%q}`+"\n", d.kind, base64.StdEncoding.EncodeToString(d.data))
	}
	cmd := exec.CommandContext(t.Context(), node(t), "testdata/judge.mjs")
	cmd.Stdin = &in
	out, err := cmd.Output()
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var verdict string
		require.NoError(t, json.Unmarshal(lines.Bytes(), &verdict))
		verdicts = append(verdicts, verdict)
	}
	return verdicts
}

// pieces are what documents break on.
var pieces = []string{
	`"`, `\`, `{`, `}`, `[`, `]`, `,`, `:`, "0", "1", "9", "-", ".", "e", "E", "+", " ", "\n", `\u00e9`, `\ud83d`, `\ude00`, "null", "true",
	`"a":1`, "\xff", "\u00e9", "\U0001f600", `"__proto__":1`, "%", "25", "%2f", "/", "www.", "http", "\uff57", "\uff0e", "\u200d", "\u00a0",
	"\ufb33",
}

// changed is a document with one to three changes: a piece more, a byte less, some bytes twice, or another byte.
func changed(r *rand.Rand, data []byte) []byte {
	for range 1 + r.IntN(3) {
		at := r.IntN(len(data) + 1)
		end := min(at+1+r.IntN(20), len(data))
		var middle []byte
		switch r.IntN(4) {
		case 0:
			middle, end = []byte(pieces[r.IntN(len(pieces))]), at
		case 1:
			end = min(at+1, len(data))
		case 2:
			middle = bytes.Repeat(data[at:end], 2)
		case 3:
			middle, end = []byte{byte(r.IntN(256))}, min(at+1, len(data))
		}
		data = bytes.Join([][]byte{data[:at], middle, data[end:]}, nil)
	}
	return data
}

// number is a literal of any length and exponent.
func number(r *rand.Rand) string {
	digits := func(most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteByte("0123456789009"[r.IntN(13)])
		}
		return b.String()
	}
	s := []string{"", "-"}[r.IntN(2)] + fmt.Sprint(1+r.IntN(9)) + digits(18)
	if r.IntN(2) == 0 {
		s = []string{"", "-"}[r.IntN(2)] + fmt.Sprint(r.IntN(10)) + "." + digits(18)
	}
	if r.IntN(2) == 0 {
		s += fmt.Sprintf("e%d", r.IntN(700)-350)
	}
	return s
}
