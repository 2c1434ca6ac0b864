package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// ledger is the file in which executors enter their effects, one line each: key, item, process. Nothing keeps an effect
// from being entered twice; it is the broker that must not call twice. It is safe for concurrent use, by processes too:
// the file is only appended to, and a line is one write.
type ledger struct{ file *os.File }

func openLedger(path string) (*ledger, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	return &ledger{file}, nil
}

func (l *ledger) enter(e effect) error {
	if _, err := l.file.Write(fmt.Appendf(nil, "%s %s %d\n", e.key, e.item, os.Getpid())); err != nil {
		return fmt.Errorf("enter into the ledger: %w", err)
	}
	return nil
}

func (l *ledger) close() error { return l.file.Close() }

// readLedger counts the effects in the file. No file is no effects: no process got so far as to make it.
func readLedger(path string) (n counts, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return counts{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return countLines(file)
}

func countLines(r io.Reader) (counts, error) {
	all := counts{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			return nil, fmt.Errorf("read the ledger: a line has %d fields, not 3", len(fields))
		}
		all[effect{fields[0], fields[1]}]++
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	return all, nil
}
