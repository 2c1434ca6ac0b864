package faultnet

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// The rules of counting, one conversation each. "Q>" is a message of the client, "<Z" one of the server; messages
// without a space between them arrive in one piece.
func TestFlights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		talk  []string
		trips int
	}{
		"simple query":                        {[]string{"Q>", "<TDCZ"}, 1},
		"extended query":                      {[]string{"PBDES>", "<1", "<2TDC", "<Z"}, 1},
		"begin, execute, commit":              {[]string{"Q>", "<CZ", "BES>", "<2CZ", "Q>", "<CZ"}, 3},
		"batch under one Sync":                {[]string{"BEBEBES>", "<2C2C2CZ"}, 1},
		"answers before the Sync":             {[]string{"BEBE>", "<2D", "BES>", "<D2CZ"}, 1},
		"pipeline of Syncs in one piece":      {[]string{"BESBES>", "<2CZ", "<2CZ"}, 1},
		"pipeline answered in between":        {[]string{"BES>", "BES>", "<2CZ", "BES>", "<2CZ", "<2CZ"}, 1},
		"Flush and Sync":                      {[]string{"PDH>", "<1tT", "BES>", "<2CZ"}, 2},
		"Flush overtaken by Sync":             {[]string{"PDH>", "S>", "<1tT", "<Z"}, 1},
		"notices answer nothing":              {[]string{"H>", "<NSA"}, 0},
		"error":                               {[]string{"BES>", "<EZ"}, 1},
		"copy in, data after permission":      {[]string{"Q>", "<G", "dd>", "dc>", "<CZ"}, 1},
		"copy in, data at once":               {[]string{"Qddc>", "<GC", "<Z"}, 1},
		"copy in given up":                    {[]string{"Q>", "<G", "d>", "<EZ", "c>", "Q>", "<CZ"}, 2},
		"copy out":                            {[]string{"Q>", "<HddcCZ"}, 1},
		"hanging up":                          {[]string{"X>"}, 0},
		"unanswered":                          {[]string{"Q>", "<T"}, 0},
		"authentication and start-up notices": {[]string{"p>", "<RSSK"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1, 3, 5, 7, 1 << 20} {
				require.Equal(t, c.trips, converse(c.talk, size), "in pieces of %d bytes", size)
			}
		})
	}
}

// converse plays a conversation after start-up and returns the trips. Only the server's side is cut into small pieces
// where the client's must stay whole.
func converse(talk []string, size int) int {
	total := new(tally)
	f := &flights{total: total}
	f.fromServer(frames("Z"))
	for _, turn := range talk {
		if turn[0] == '<' {
			cut(frames(turn[1:]), size, f.fromServer)
		} else {
			cut(frames(turn[:len(turn)-1]), size, f.fromClient)
		}
	}
	f.closed()
	if total.busy != 0 {
		return -1
	}
	return total.trips
}

// Start-up is not counted, whatever is said in it.
func TestFlightsIgnoreStartUp(t *testing.T) {
	t.Parallel()
	f := &flights{total: new(tally)}
	f.fromServer(frames("R"))
	f.fromClient(frames("p"))
	f.fromServer(frames("RSSKZ"))
	require.Zero(t, f.total.trips)
	require.Zero(t, f.total.busy)
}

// Start-up packets of impossible lengths are refused, so that a stray client cannot make the proxy wait or grow.
func TestReadStartup(t *testing.T) {
	t.Parallel()
	packet := []byte{0, 0, 0, 9, 0, 3, 0, 0, 0}
	got, code, err := readStartup(bytes.NewReader(packet))
	require.NoError(t, err)
	require.Equal(t, packet, got)
	require.EqualValues(t, 3<<16, code)
	for _, wrong := range [][]byte{{0, 0, 0, 7, 0, 3, 0, 0}, {1, 0, 0, 0, 0, 3, 0, 0}, packet[:8], packet[:3]} {
		_, _, err := readStartup(bytes.NewReader(wrong))
		require.Error(t, err)
	}
}

// frames makes one message per type, with bodies of different lengths.
func frames(kinds string) []byte {
	var stream []byte
	for i := range len(kinds) {
		stream = append(stream, kinds[i])
		stream = binary.BigEndian.AppendUint32(stream, uint32(4+i))
		stream = append(stream, bytes.Repeat([]byte{'Z'}, i)...)
	}
	return stream
}

func cut(stream []byte, size int, show func([]byte)) {
	for len(stream) > 0 {
		n := min(size, len(stream))
		show(stream[:n])
		stream = stream[n:]
	}
}
