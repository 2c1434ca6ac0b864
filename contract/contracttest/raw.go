package contracttest

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// raw is bytes as a vector writes them: a text, {"base64": …} where JSON has no text for them, or {"parts": […]} where they are
// long: each part a text or {"base64": …}, or {"text": …} that is repeated "times", with every # as the count if it is "numbered".
type raw []byte

type rawForm struct {
	Text     string `json:"text"`
	Base64   []byte `json:"base64"`
	Times    *int   `json:"times"`
	Numbered bool   `json:"numbered"`
	Parts    []raw  `json:"parts"`
}

// UnmarshalJSON reads any of the forms.
func (r *raw) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		var text string
		err := json.Unmarshal(data, &text)
		*r = raw(text)
		return err
	}
	var form rawForm
	if err := strict(data, &form); err != nil {
		return err
	}
	*r = form.bytes()
	return nil
}

func (f rawForm) bytes() raw {
	once := string(f.Base64) + f.Text
	times := 1
	if f.Times != nil {
		times = *f.Times
	}
	var b strings.Builder
	for n := range times {
		if f.Numbered {
			b.WriteString(strings.ReplaceAll(once, "#", strconv.Itoa(n)))
			continue
		}
		b.WriteString(once)
	}
	for _, part := range f.Parts {
		b.Write(part)
	}
	return raw(b.String())
}

// MarshalJSON writes a text, or the base64 of what is none.
func (r raw) MarshalJSON() ([]byte, error) {
	if utf8.Valid(r) {
		return json.Marshal(string(r))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(r)})
}

func intOf(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }

func bytesOf(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
