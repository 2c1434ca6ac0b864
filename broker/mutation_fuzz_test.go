package broker

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// R25, R33: no bytes that are stored of a mutation make its reader panic; what it accepts names one digest and is read again as it
// was, and what it refuses is told without the bytes.
func FuzzDecodeMutation(f *testing.F) {
	const digest = `"digest":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="`
	f.Add([]byte(`{"agent_id":"a","operation_id":"o","idempotency_key":"k","method":"/agent.v1.AgentService/Execute",` + digest + `}`))
	f.Add([]byte(`{` + digest + `}`))
	f.Add([]byte(`{"agent_id":"\u0000\ud83d\ude00",` + digest + `}`))
	f.Add([]byte(`{"digest":"AAEC"}`))
	f.Add([]byte(`{"agent_id":"a","agent_id":"b",` + digest + `}`))
	f.Add([]byte(`{"later":1,` + digest + `}`))
	f.Add([]byte(`null`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, content []byte) {
		d, err := decodeMutation(content)
		if err != nil {
			require.ErrorIs(t, err, contract.ErrUnavailable)
			require.Equal(t, unreadable(nil).Error(), err.Error())
			return
		}
		again, err := json.Marshal(d)
		require.NoError(t, err)
		back, err := decodeMutation(again)
		require.NoError(t, err)
		require.Equal(t, d, back)
		require.Equal(t, d.digest(), back.digest())
		require.Len(t, d.receipt().Digest, len(d.Digest))
	})
}
