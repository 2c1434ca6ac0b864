package dispatch

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/confirmexec/confirmexec/fencing/peer"
)

// target is where recordings are put: over TLS, below one prefix, by the agent that the dispatcher granted the very place to, for
// the very asset; nothing else can be done there. What it knows of the dispatcher is the key of the grants (R106).
type target struct {
	dir    string
	prefix string // of the URLs
	key    []byte
	server *http.Server
}

const recordings = "/recordings/"

// startTarget starts the target, in the process of the walk.
func startTarget(ctx context.Context, dir string, files credentialFiles) (*target, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &target{dir: dir, prefix: "https://" + l.Addr().String() + recordings, key: []byte(rand.Text())}
	t.server = &http.Server{Handler: t, TLSConfig: files.server(), ReadHeaderTimeout: time.Minute}
	go func() { _ = t.server.ServeTLS(l, "", "") }()
	return t, nil
}

func (t *target) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	id, err := peer.IdentityOf(*q.TLS, time.Now(), identities)
	name, found := nameBelow(q.URL.Path)
	if err != nil || q.Method != http.MethodPut || !found {
		http.Error(w, "not allowed", http.StatusForbidden)
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, q.Body, 1<<20))
	sum := sha256.Sum256(data)
	granted := grantOf(t.key, agentOf(id), name, hex.EncodeToString(sum[:]))
	if err == nil && !hmac.Equal([]byte(granted), []byte(q.URL.Query().Get("grant"))) {
		http.Error(w, "not granted", http.StatusForbidden)
		return
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(t.dir, name), data, 0o600)
	}
	if err != nil {
		http.Error(w, "not stored", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// nameBelow is the one name below the prefix.
func nameBelow(url string) (name string, found bool) {
	if len(url) <= len(recordings) || url[:len(recordings)] != recordings {
		return "", false
	}
	name = url[len(recordings):]
	return name, filepath.Base(name) == name && name != ".."
}

// stored is what was put under a name.
func (t *target) stored(name string) string {
	data, err := os.ReadFile(filepath.Join(t.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return string(data)
}

func (t *target) close() { _ = t.server.Close() }
