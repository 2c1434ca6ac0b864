package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/google/uuid"
)

// entry is a line of the ledger: one call that the registry got. Nothing keeps a call from being entered twice; it is
// the broker that must not make it.
type entry struct {
	Scenario  string    `json:"scenario"`
	Key       uuid.UUID `json:"key"`     // the operation's idempotency key
	ItemID    string    `json:"item_id"` // which of its items
	PID       int       `json:"pid"`     // of the registry
	CallerPID int       `json:"caller_pid"`
	ItemKey   uuid.UUID `json:"item_key"` // the item's own idempotency key
	Answer    string    `json:"answer"`   // "added" or "refused"
}

// ledger is an append-only file of entries. It is safe for concurrent use.
type ledger struct {
	mu   sync.Mutex
	file *os.File
}

func openLedger(path string) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return &ledger{file: file}, nil
}

// append writes e with one write, so that processes may share the file.
func (l *ledger) append(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode a ledger entry: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	return nil
}

func (l *ledger) close() error { return l.file.Close() }

// readLedger returns what is in the file; nothing for a file that does not exist yet.
func readLedger(path string) (entries []entry, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read the ledger: line %d: %w", n, err)
		}
		entries = append(entries, e)
	}
	return entries, lines.Err()
}
