package fencing_test

import (
	"context"
	"fmt"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/fencing"
)

// A stop that a dispatcher has approved: no call begins any more, here and after a restart, before one is hung up.
func ExampleGate_ApplyApproved() {
	ctx := context.Background()
	admission := fencing.Admission{Generation: 7, Open: true} // as the process found it
	gate := fencing.NewGate(admission)
	leave, _ := gate.Enter("call-1") // before it is live

	task := fencing.TaskIdentity{Tenant: 4, Task: 17}
	said, _ := fencing.ParseTaskIdentity("4", "17")
	receipt, err := gate.ApplyApproved(ctx, fencing.ApprovedControl{
		Action: fencing.ActionStop, Says: said, Task: task,
		Guard: func(context.Context) error { return nil }, // Space.Hold with SessionIs
		Persist: func(_ context.Context, active int64) (r contract.Receipt, err error) { // Fence.StopAdmission
			admission, r, err = admission.Stop("task/17", "epoch-3", active)
			return r, err
		},
		HangUp: func(_ context.Context, calls []string) error {
			fmt.Println("hang up", calls)
			leave() // the call's own end
			return nil
		},
		Observe: func(step fencing.ApprovedStep, active int64) { fmt.Println(step, active) },
	})
	fmt.Println(receipt.Result, receipt.Before, receipt.After, err)
	_, err = fencing.NewGate(admission).Enter("call-2")
	fmt.Println(err)
	// Output:
	// closed 1
	// persisted 1
	// hang up [call-1]
	// hung_up 1
	// drained 0
	// applied 0
	// APPLIED 8 8 <nil>
	// FAILED_PRECONDITION: pramaan.agent_fencing.terminal_state: it has ended and stays so; nothing was done (current revision 8)
}
