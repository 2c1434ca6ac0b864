package contract

import "fmt"

// Limits bound a document, in bytes where nothing else is said. A zero field means its default, which is also the
// highest value: limits are configurable downward only (S4). A value above the default counts as the default, a
// negative one refuses everything; [Limits.Validate] tells of both.
type Limits struct { //nolint:recvcheck // fields lends pointers into a copy
	Body            int // a whole proposal or confirmation as JSON; default 1 MiB
	Items           int // number of items; default 1000
	ItemID          int // default 128
	Op              int // default 128
	Params          int // one item's params; default 64 KiB
	Depth           int // nesting of objects and arrays in params, where {} is 1; default 32
	SurfaceKey      int // default 512
	ContractVersion int // default 128
}

// DefaultLimits returns the defaults.
func DefaultLimits() Limits { return Limits{}.orDefault() }

// Validate refuses a negative limit and one above its default. The error is an *[InvalidError] that names the field.
func (l Limits) Validate() error {
	for _, f := range l.fields() {
		if *f.value < 0 || *f.value > f.ceiling {
			return invalid("/limits/"+f.name, fmt.Sprintf("is %d, must be from 1 to %d, or 0 for %[2]d", *f.value, f.ceiling))
		}
	}
	return nil
}

func (l Limits) orDefault() Limits {
	for _, f := range l.fields() {
		if *f.value == 0 || *f.value > f.ceiling {
			*f.value = f.ceiling
		}
	}
	return l
}

const maxItemID = 128

type limit struct {
	name    string
	value   *int
	ceiling int
}

func (l *Limits) fields() [8]limit {
	return [...]limit{
		{"Body", &l.Body, 1 << 20},
		{"Items", &l.Items, 1000},
		{"ItemID", &l.ItemID, maxItemID},
		{"Op", &l.Op, 128},
		{"Params", &l.Params, 64 << 10},
		{"Depth", &l.Depth, 32},
		{"SurfaceKey", &l.SurfaceKey, 512},
		{"ContractVersion", &l.ContractVersion, 128},
	}
}
