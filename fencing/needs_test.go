package fencing

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/contract"
)

// needed says for every method that writes which checks its Fence must hold: of each set one.
var needed = map[string][]kinds{
	// the dispatcher's own, which are of an office
	"ApproveAgent": {epochIs}, "ActivateAgent": {epochIs},
	"Reserve": {epochIs}, "FenceReservation": {epochIs}, "ReleaseReservation": {epochIs},
	// an agent's request to the dispatcher
	"IssuePermit": {sessionIs, epochIs},
	// the dispatcher's requests to an agent
	"StartAdmission": {sessionIs}, "SetAdmission": {sessionIs}, "DrainAdmission": {sessionIs}, "StopAdmission": {sessionIs},
	"EndPermits": {sessionIs}, "ConsumePermit": {sessionIs, admissionOpen},
	// on either side; a session is compared with its epoch
	"StartTask": {epochIs | sessionIs}, "ControlTask": {epochIs | sessionIs}, "ShowToken": {epochIs | sessionIs},
}

// notWrites are the methods of a Fence that write nothing.
var notWrites = map[string]bool{"Held": true, "And": true}

// openAdmission is an admission as it is stored.
const openAdmission = `{"generation":2,"open":true,"stopped":false,"barrier":"b","drained":false,"epoch":"e"}`

// called calls a method with zero arguments, after the context, and returns its error and what else it tells.
func called(t *testing.T, f Fence, m reflect.Method) (told []reflect.Value, err error) {
	t.Helper()
	in := []reflect.Value{reflect.ValueOf(f), reflect.ValueOf(t.Context())}
	for i := 2; i < m.Type.NumIn(); i++ {
		in = append(in, reflect.Zero(m.Type.In(i)))
	}
	out := m.Func.Call(in)
	err, _ = reflect.TypeAssert[error](out[len(out)-1])
	return out[:len(out)-1], err
}

// R66, R112, R118: a Fence writes what its checks are for, and nothing else, whatever it holds: the store is not even asked. A method
// that forgets to look, and one that this table forgets, is found here.
func TestAFenceWritesOnlyWhatItsChecksAreFor(t *testing.T) {
	kind := reflect.TypeFor[Fence]()
	methods := 0
	for m := range kind.Methods() {
		if notWrites[m.Name] {
			continue
		}
		methods++
		needs, known := needed[m.Name]
		require.True(t, known, "what must a Fence hold for %s?", m.Name)
		for held := range admissionOpen << 1 {
			t.Run(fmt.Sprintf("%s of a fence on %s", m.Name, held), func(t *testing.T) {
				spy := newSpy()
				told, err := called(t, Fence{space, spy, held}, m)
				for _, v := range told {
					assert.True(t, v.IsZero(), "tells something: %v", v)
				}
				assert.Empty(t, spy.calls)
				for _, need := range needs {
					if held&need == 0 {
						assert.ErrorIs(t, err, ErrUnfenced)
						assert.ErrorContains(t, err, "hold "+need.String())
						f, _ := contract.FailureOf(err)
						assert.True(t, f.KnownNoEffect())
						return
					}
				}
				assert.ErrorIs(t, err, contract.ErrInvalid, "an empty name is what is refused next")
			})
		}
	}
	assert.Equal(t, len(needed), methods)
}

// R57, R66, R112: the checks of this package are of the kinds that the methods ask for; one that is about less allows nothing.
func TestChecksAreOfTheirKind(t *testing.T) {
	ctx, spy := t.Context(), newSpy()
	c := active(ctx, t, spy, "spiffe://x/a1", "a1")
	spy.put("admission/open", openAdmission)
	spy.put("admission/drained", `{"generation":2,"open":false,"stopped":false,"barrier":"b","drained":true,"epoch":"e"}`)
	session, epoch := SessionIs(c), EpochIs("dispatcher", c.Epoch)
	for _, all := range []struct {
		want   kinds
		checks []Check
	}{
		{epochIs, []Check{epoch}},
		{sessionIs, []Check{session}},
		{admissionOpen, []Check{AdmissionOpen("open")}},
		{0, []Check{AdmissionDrained("drained", "b")}},
		{epochIs | sessionIs, []Check{session, epoch}},
		{epochIs | sessionIs | admissionOpen, []Check{AdmissionOpen("open"), session, AdmissionDrained("drained", "b"), epoch}},
	} {
		f, err := space.Hold(ctx, spy, all.checks...)
		require.NoError(t, err)
		assert.Equal(t, all.want, f.held)
		assert.True(t, f.Held())
	}
}

// R57, R112: a fence that is to hold more holds both, in its own transaction; one that is refused more is none.
func TestAFenceThatHoldsMore(t *testing.T) {
	ctx, spy := t.Context(), newSpy()
	c := active(ctx, t, spy, "spiffe://x/a1", "a1")
	f, err := space.Hold(ctx, spy, SessionIs(c))
	require.NoError(t, err)
	both, err := f.And(ctx, EpochIs("dispatcher", c.Epoch))
	require.NoError(t, err)
	assert.Equal(t, Fence{space, spy, epochIs | sessionIs}, both)
	assert.Equal(t, sessionIs, f.held, "a fence is a value")

	for name, more := range map[string]func() (Fence, error){
		"a fenced epoch": func() (Fence, error) { return f.And(ctx, EpochIs("dispatcher", "another")) },
		"no check":       func() (Fence, error) { return f.And(ctx) },
		"the zero fence": func() (Fence, error) { return Fence{}.And(ctx, SessionIs(c)) },
	} {
		none, err := more()
		assert.Error(t, err, name)
		assert.Equal(t, Fence{}, none, name)
	}
}

// The zero Check is none, and holds nothing.
func TestTheZeroCheckHoldsNothing(t *testing.T) {
	f, err := space.Hold(t.Context(), newSpy(), Check{})
	assert.ErrorIs(t, err, ErrUnfenced)
	assert.Equal(t, Fence{}, f)
}
