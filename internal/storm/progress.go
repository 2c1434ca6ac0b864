package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress tells how far a mode is: in one line that is written again and again on a terminal, else every few seconds.
type progress struct {
	w           io.Writer
	terminal    bool
	every       time.Duration
	mode        string
	keys        int
	start, last time.Time
}

func newProgress(w io.Writer, mode string, keys int) *progress {
	p := &progress{w: w, mode: mode, keys: keys, every: 5 * time.Second, start: time.Now(), last: time.Now()}
	if isTerminal(w) {
		p.terminal, p.every = true, 200*time.Millisecond
	}
	return p
}

// isTerminal takes every character device for one.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// tell says that so many keys are done, unless it has just said something.
func (p *progress) tell(done int) {
	now := time.Now()
	if now.Sub(p.last) < p.every {
		return
	}
	p.last = now
	before, after := "", "\n"
	if p.terminal {
		before, after = "\r", eraseToEnd
	}
	fmt.Fprintf(p.w, "%s%s%s", before, p.text(done, now.Sub(p.start)), after)
}

func (p *progress) text(done int, elapsed time.Duration) string {
	rate := float64(done) / elapsed.Seconds()
	left := time.Duration(float64(p.keys-done) / rate * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%s: %d of %d keys, %.1f a second, %s left", p.mode, done, p.keys, rate, left)
}

const eraseToEnd = "\x1b[K"

// end leaves the terminal's line empty.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r"+eraseToEnd)
	}
}
