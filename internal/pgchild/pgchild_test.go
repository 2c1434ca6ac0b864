package pgchild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

type fake struct {
	start   func(context.Context) (string, error)
	stopErr error
	stops   int
}

func (f *fake) Start(ctx context.Context) (string, error) { return f.start(ctx) }

func (f *fake) Stop(context.Context) error {
	f.stops++
	return f.stopErr
}

// The server is kept until the input ends, and is stopped then.
func TestServeUntilInputEnds(t *testing.T) {
	t.Parallel()
	input, hold := io.Pipe()
	answers, answer := io.Pipe()
	server := &fake{start: func(context.Context) (string, error) { return "postgres://x", nil }}
	code := make(chan int)
	go func() { code <- serve(server, input, answer) }()
	var got Answer
	require.NoError(t, json.NewDecoder(answers).Decode(&got))
	require.Equal(t, Answer{DSN: "postgres://x"}, got)
	select {
	case <-code:
		t.Fatal("it did not wait")
	default:
	}
	require.NoError(t, hold.Close())
	require.Zero(t, <-code)
	require.Equal(t, 1, server.stops)
}

// A start that nobody waits for any more ends, and what it has made so far is stopped.
func TestServeEndsAStart(t *testing.T) {
	t.Parallel()
	server := &fake{start: func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}}
	require.Equal(t, 1, serve(server, bytes.NewReader(nil), io.Discard))
	require.Equal(t, 1, server.stops)
}

// A start that fails is told in one line; a stop that fails is an exit code.
func TestServeTellsErrors(t *testing.T) {
	t.Parallel()
	input, hold := io.Pipe()
	defer func() { _ = hold.Close() }()
	var output bytes.Buffer
	server := &fake{start: func(context.Context) (string, error) { return "", errors.New("bad\n  day") }}
	require.Equal(t, 1, serve(server, input, &output))
	require.Equal(t, `{"error":"bad day"}`+"\n", output.String())
	require.Equal(t, 1, server.stops)

	server = &fake{start: func(context.Context) (string, error) { return "postgres://x", nil }, stopErr: errors.New("no")}
	require.Equal(t, 1, serve(server, bytes.NewReader(nil), io.Discard))
}
