package broker

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/confirmexec/confirmexec/contract"
)

// Observer is told the end of every call: event in, nothing out. It must be safe for concurrent use and quick, since the
// caller waits for it.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Event is what may be told of a call: no key, no tenant, no content (S22). More fields may be added.
type Event struct {
	Boundary string // "operation", "mutation" or "fact"
	Method   string // the method's name, such as "propose", "execute_per_item" or "resolve"
	Answer   string // see AnswerOf; "resolved" for a Resolve that settled the key; for a mutation its result code in lower case
	Replayed bool   // the answer was recorded for an earlier call
	Tally    contract.Tally
	Duration time.Duration
}

// AnswerOf names how a call was answered, in one word of a closed set, for metrics and logs: "executed", "replayed",
// "ambiguous", "cancelled" or "pruned" for a result; for a refusal the last part of its reason, such as "stale", "key_reused",
// "in_progress" or "not_minted"; "ok" for a call that has no result; "error" for anything else.
//
// A result that [Broker.Resolve] has just settled is "executed" here as well; Event.Answer tells it apart as "resolved".
func AnswerOf(res *contract.OperationResult, err error) string {
	if err != nil {
		return refusalAnswer(err)
	}
	switch {
	case res == nil:
		return "ok"
	case res.Pruned():
		return "pruned"
	case res.Recovery() != nil:
		return "ambiguous"
	case res.Cancelled():
		return "cancelled"
	case res.Replayed:
		return "replayed"
	}
	return "executed"
}

func refusalAnswer(err error) string {
	f, ok := contract.FailureOf(err)
	if !ok {
		return "error"
	}
	return string(f.Reason[strings.LastIndexByte(string(f.Reason), '.')+1:])
}

func (b *Broker[TTx]) observe(ctx context.Context, method string, start time.Time, res *contract.OperationResult, err error) {
	e := Event{Boundary: "operation", Method: method, Answer: AnswerOf(res, err), Duration: time.Since(start)}
	if method == "resolve" && e.Answer == "executed" { // it was settled, not executed
		e.Answer = "resolved"
	}
	if res != nil {
		e.Replayed = res.Replayed
		if b.cfg.Observer != nil || b.cfg.Logger != nil {
			e.Tally = res.Tally()
		}
	}
	b.tell(ctx, e)
}

func (b *Broker[TTx]) observeMutation(ctx context.Context, method string, start time.Time, r contract.Receipt, err error) {
	e := Event{
		Boundary: "mutation", Method: method, Answer: strings.ToLower(string(r.Result)), Replayed: r.Replayed, Duration: time.Since(start),
	}
	if err != nil {
		e.Answer = refusalAnswer(err)
	}
	b.tell(ctx, e)
}

func (b *Broker[TTx]) observeFact(ctx context.Context, method, answer string, start time.Time, err error) {
	e := Event{Boundary: "fact", Method: method, Answer: answer, Duration: time.Since(start)}
	if err != nil {
		e.Answer = refusalAnswer(err)
	}
	b.tell(ctx, e)
}

func (b *Broker[TTx]) tell(ctx context.Context, e Event) {
	if b.cfg.Observer != nil {
		b.cfg.Observer.Observe(ctx, e)
	}
	if b.cfg.Logger != nil {
		b.cfg.Logger.LogAttrs(ctx, e.level(), "confirmexec", slog.String("boundary", e.Boundary), slog.String("method", e.Method),
			slog.String("answer", e.Answer), slog.Int("applied", e.Tally.Applied), slog.Int("failed", e.Tally.Failed),
			slog.Int("skipped", e.Tally.Skipped), slog.Int("ambiguous", e.Tally.Ambiguous), slog.Duration("duration", e.Duration))
	}
}

func (e Event) level() slog.Level {
	if e.Answer == "ambiguous" || e.Answer == "unknown" || e.Answer == "unavailable" || e.Answer == "error" {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
