package dispatch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
)

// entry is a line of the adapter's ledger.
type entry struct {
	Kind      string `json:"kind"` // invoked, or sealed: what was not invoked before never is
	Execution string `json:"execution"`
	Key       string `json:"key"` // the operation's own, the same for every attempt
	Ref       string `json:"ref,omitempty"`
	Number    string `json:"number,omitempty"`
	PID       int    `json:"pid"`
}

const (
	invoked = "invoked"
	sealed  = "sealed"
)

// appendLine writes a line durably.
func appendLine(mu *sync.Mutex, path string, line any) error {
	return writeLine(mu, path, line, (*os.File).Sync)
}

// writeLine writes a line with one write, so that processes may share the file.
func writeLine(mu *sync.Mutex, path string, line any, sync func(*os.File) error) error {
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	mu.Lock()
	defer mu.Unlock()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	_, err = file.Write(append(data, '\n'))
	return errors.Join(err, sync(file), file.Close())
}

// readLines returns what is in a file; nothing for one that does not exist yet.
func readLines[T any](path string) (lines []T, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	scan := bufio.NewScanner(file)
	for n := 1; scan.Scan(); n++ {
		var line T
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("read %s: line %d: %w", path, n, err)
		}
		lines = append(lines, line)
	}
	return lines, scan.Err()
}

// invocations counts, by execution, how often the adapter was invoked.
func invocations(path string) (map[string]int, error) {
	lines, err := readLines[entry](path)
	counts := map[string]int{}
	for _, e := range lines {
		if e.Kind == invoked {
			counts[e.Execution]++
		}
	}
	return counts, err
}
