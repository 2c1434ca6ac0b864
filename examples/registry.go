package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
)

// surfaceKey names the surface of the walk: the forums of one matter. It lives in the registry, with its version.
const surfaceKey contract.SurfaceKey = "matter:7/forums"

// call is a request to the registry for one item.
type call struct {
	Scenario  string          `json:"scenario"`
	Key       uuid.UUID       `json:"key"`
	ItemID    string          `json:"item_id"`
	ItemKey   uuid.UUID       `json:"item_key"`
	CallerPID int             `json:"caller_pid"`
	Params    json.RawMessage `json:"params"`
}

// fault is how the registry behaves for one item. The zero value behaves well.
type fault struct {
	Refuse bool `json:"refuse"` // say no, and do nothing
	Move   bool `json:"move"`   // the write also moves the surface's version
	Hold   bool `json:"hold"`   // write, and then wait to be released before the answer
	Drop   bool `json:"drop"`   // write, and then close the connection without an answer
}

// place names an item of an operation, for its fault.
type place struct {
	Key    uuid.UUID `json:"key"`
	ItemID string    `json:"item_id"`
}

// faultRequest sets the fault of a place.
type faultRequest struct {
	place
	fault
}

// gate is a fault with its events.
type gate struct {
	fault
	held    chan struct{} // closed when a call is written and waits
	release chan struct{} // closed when it may go on
}

// ref is what the registry made.
type ref struct {
	Ref string `json:"ref"`
}

// surface is the surface as the registry shows it.
type surface struct {
	SurfaceKey      contract.SurfaceKey `json:"surface_key"`
	ContractVersion string              `json:"contract_version"`
}

// registry is a court registry as services meet them: it enters what it is told, as often as it is told, and shows its
// present version. It has no idea of idempotency. But it can be told to seal an item's key, and refuses it from then on.
type registry struct {
	ledger *ledger

	mu      sync.Mutex // guards the rest
	version int
	forums  map[uuid.UUID]string // the last forum of an item's key
	sealed  map[uuid.UUID]bool   // items' keys
	gates   map[place]*gate
}

// registryProcess is the registry: it serves on a free port of this host, tells its address on stdout, and ends when
// stdin does, however its parent ends. The argument is the ledger's path.
func registryProcess(_ context.Context, args []string, s streams) (err error) {
	if len(args) != 1 {
		return usageError("registry-process takes the ledger's path")
	}
	l, err := openLedger(args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("registry: listen: %w", err)
	}
	r := &registry{
		ledger: l, version: 1, forums: map[uuid.UUID]string{}, sealed: map[uuid.UUID]bool{}, gates: map[place]*gate{},
	}
	server := &http.Server{Handler: r.routes(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, s.in)
		_ = server.Close()
	}()
	fmt.Fprintf(s.out, "http://%s\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("registry: serve: %w", err)
	}
	return nil
}

func (r *registry) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /surface", r.getSurface)
	mux.HandleFunc("POST /forums", r.addForum)
	mux.HandleFunc("GET /forums/{item_key}", r.getForum)
	mux.HandleFunc("PUT /seals/{item_key}", r.putSeal)
	// What a real registry does not have: the scenarios set faults with these.
	mux.HandleFunc("POST /move", r.postMove)
	mux.HandleFunc("POST /fault", r.postFault)
	mux.HandleFunc("POST /await-held", r.postAwaitHeld)
	mux.HandleFunc("POST /release", r.postRelease)
	return mux
}

// addForum enters a forum: the effect of the whole walk.
func (r *registry) addForum(w http.ResponseWriter, req *http.Request) {
	var c call
	if !read(w, req, &c) {
		return
	}
	g := r.gate(place{c.Key, c.ItemID})
	if g.Refuse {
		r.refuse(w, c)
		return
	}
	made, err := r.enter(c, g.Move)
	if errors.Is(err, errSealed) {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if g.Hold {
		close(g.held)
		select {
		case <-g.release:
		case <-req.Context().Done(): // the caller is gone
			return
		}
	}
	if g.Drop {
		drop(w)
		return
	}
	answer(w, http.StatusCreated, ref{made})
}

func (r *registry) refuse(w http.ResponseWriter, c call) {
	if err := r.ledger.append(c.entry("refused")); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.Error(w, "the registry takes no filings for this forum", http.StatusUnprocessableEntity)
}

var errSealed = errors.New("the item's key is sealed")

// enter writes the call to the ledger, and moves the surface if it is to move.
func (r *registry) enter(c call, move bool) (made string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed[c.ItemKey] {
		return "", errors.Join(errSealed, r.ledger.append(c.entry("refused")))
	}
	if err := r.ledger.append(c.entry("added")); err != nil {
		return "", err
	}
	made = "forum/" + strconv.Itoa(len(r.forums)+1)
	r.forums[c.ItemKey] = made
	if move {
		r.version++
	}
	return made, nil
}

func (c call) entry(answer string) entry {
	return entry{
		Scenario: c.Scenario, Key: c.Key, ItemID: c.ItemID, ItemKey: c.ItemKey,
		PID: os.Getpid(), CallerPID: c.CallerPID, Answer: answer,
	}
}

// drop closes the connection without an answer.
func drop(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = conn.Close()
}

// getForum tells whether an item was entered.
func (r *registry) getForum(w http.ResponseWriter, req *http.Request) { r.tellForum(w, req, false) }

// putSeal refuses an item's key from now on, and tells whether it was entered before.
func (r *registry) putSeal(w http.ResponseWriter, req *http.Request) { r.tellForum(w, req, true) }

func (r *registry) tellForum(w http.ResponseWriter, req *http.Request, seal bool) {
	key, err := uuid.Parse(req.PathValue("item_key"))
	if err != nil {
		http.Error(w, "want an item's key", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	made, ok := r.forums[key]
	r.sealed[key] = r.sealed[key] || seal
	r.mu.Unlock()
	if !ok {
		http.Error(w, "not entered", http.StatusNotFound)
		return
	}
	answer(w, http.StatusOK, ref{made})
}

func (r *registry) getSurface(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer(w, http.StatusOK, surface{surfaceKey, "v" + strconv.Itoa(r.version)})
}

func (r *registry) postMove(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	w.WriteHeader(http.StatusNoContent)
}

func (r *registry) postFault(w http.ResponseWriter, req *http.Request) {
	var f faultRequest
	if !read(w, req, &f) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gates[f.place] = &gate{f.fault, make(chan struct{}), make(chan struct{})}
	w.WriteHeader(http.StatusNoContent)
}

// postAwaitHeld answers when a call for the place is written and waits.
func (r *registry) postAwaitHeld(w http.ResponseWriter, req *http.Request) {
	var p place
	if !read(w, req, &p) {
		return
	}
	select {
	case <-r.gate(p).held:
		w.WriteHeader(http.StatusNoContent)
	case <-req.Context().Done():
	}
}

func (r *registry) postRelease(w http.ResponseWriter, req *http.Request) {
	var p place
	if !read(w, req, &p) {
		return
	}
	close(r.gate(p).release) // once per fault
	w.WriteHeader(http.StatusNoContent)
}

// gate returns the fault of p; one that behaves well if there is none.
func (r *registry) gate(p place) *gate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.gates[p]; g != nil {
		return g
	}
	return &gate{held: make(chan struct{}), release: make(chan struct{})}
}

func read(w http.ResponseWriter, req *http.Request, to any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<20)).Decode(to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a caller that is gone needs no answer
}
