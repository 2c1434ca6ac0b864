// Package vectors_test runs all vectors on this module: package contract, and the packages that answer where contract does not.
package vectors_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/contract/contracttest"
	"github.com/confirmexec/confirmexec/fencing"
	"github.com/confirmexec/confirmexec/grpcerr"
	"github.com/confirmexec/confirmexec/httperr"
	"github.com/confirmexec/confirmexec/store"
)

// S10: every vector is passed, and no topic is left out.
func TestVectors(t *testing.T) {
	contracttest.Run(t, confirmexec.Vectors, whole())
}

// whole is this module's implementation of the contract.
func whole() contracttest.Implementation {
	i := contracttest.Contract()
	i.Strict = true
	i.GRPCStatus = func(f *contract.Failure) uint32 { return uint32(grpcerr.Codec{}.ToStatus(f).Code()) }
	i.HTTPStatus = func(f *contract.Failure) int { return httperr.ProblemOf(f).Status }
	i.Keys = play
	i.EpochIs = epochIs
	i.TakeOffice = func(stands contracttest.Office, epoch string) (contracttest.Office, error) {
		o, err := office(stands).Take(fencing.Epoch(epoch))
		return contracttest.Office{Epoch: string(o.Epoch), Number: o.Number}, err
	}
	i.Admit = func(s contracttest.Session, c contracttest.Caller) error {
		return session(s).Admit(fencing.Caller{Peer: c.Peer, Says: fencing.Binding(c.Says), Epoch: fencing.Epoch(c.Epoch)})
	}
	i.Activate = func(s contracttest.Session, c contracttest.Caller) (contracttest.Session, error) {
		after, err := session(s).Activate(fencing.Binding(c.Says), fencing.Epoch(c.Epoch))
		return contracttest.Session{Binding: contracttest.Binding(after.Binding), Epoch: string(after.Epoch)}, err
	}
	i.ShowToken = func(m contracttest.Mark, token int64, holder string) (contracttest.Mark, error) {
		after, err := fencing.Mark(m).Show(token, holder)
		return contracttest.Mark(after), err
	}
	i.Before = func(now, deadline time.Time) error { return fencing.Before(now, deadline) }
	return i
}

func office(o contracttest.Office) fencing.Office {
	return fencing.Office{Epoch: fencing.Epoch(o.Epoch), Number: o.Number}
}

func session(s contracttest.Session) fencing.Session {
	return fencing.Session{Binding: fencing.Binding(s.Binding), Epoch: fencing.Epoch(s.Epoch)}
}

// epochIs asks the check that writers are held by, over one value.
func epochIs(stands contracttest.Office, shown string) error {
	var v store.Value
	if stands.Epoch != "" {
		content, err := json.Marshal(office(stands))
		if err != nil {
			return err
		}
		v = store.Value{Revision: 1, Content: content}
	}
	_, err := fencing.Space{Tenant: "one"}.Hold(context.Background(), oneValue{v: v}, fencing.EpochIs("dispatcher", fencing.Epoch(shown)))
	return err
}

// oneValue are values that all are v.
type oneValue struct {
	store.Values
	v store.Value
}

func (o oneValue) Hold(context.Context, store.ValueID) (store.Value, error) { return o.v, nil }
