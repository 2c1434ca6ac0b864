package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// registryClient speaks to the registry.
type registryClient struct {
	url  string
	pid  int // 0 when another process started it
	http *http.Client
}

// newRegistryClient uses a connection for one call only. net/http sends some requests again by itself when a connection
// that it kept breaks; a call on an executor's target must not be one of them.
func newRegistryClient(url string) *registryClient {
	return &registryClient{url: url, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// startRegistry starts the registry in a process of its own. stop ends it.
func startRegistry(ctx context.Context, ledger string, stderr io.Writer) (
	r *registryClient, stop func() error, err error,
) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "registry-process", ledger)
	cmd.Stderr, cmd.WaitDelay = stderr, 5*time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start the registry: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start the registry: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the registry: %w", err)
	}
	stop = func() error { return errors.Join(stdin.Close(), cmd.Wait()) }
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, nil, fmt.Errorf("start the registry: %w", errors.Join(err, stop()))
	}
	r = newRegistryClient(strings.TrimSpace(url))
	r.pid = cmd.Process.Pid
	return r, stop, nil
}

// executor enters each item of the operation in the registry. It sends an item once, whatever happens.
func (r *registryClient) executor(scenario string, key uuid.UUID) broker.Executor {
	return func(ctx context.Context, it broker.Item) (broker.Outcome, error) {
		var made ref
		err := r.do(ctx, http.MethodPost, "/forums", call{
			Scenario: scenario, Key: key, ItemID: it.ID, ItemKey: it.IdempotencyKey, CallerPID: os.Getpid(), Params: it.Params,
		}, &made)
		if err == nil {
			return broker.Applied(made.Ref), nil
		}
		return r.resolve(ctx, it, err)
	}
}

// resolve says what is known after a call that failed. A refusal, and a connection that was never made, are proof that
// nothing happened. After anything else it reads: what it finds is applied, and what it does not find stays unknown,
// for the call may still be on its way.
func (r *registryClient) resolve(ctx context.Context, it broker.Item, err error) (broker.Outcome, error) {
	switch s, _ := errors.AsType[*statusError](err); s.code() {
	case http.StatusUnprocessableEntity:
		return broker.Outcome{}, &contract.Failure{
			Code: contract.InvalidArgument, Reason: "registry_refused", Message: s.text, Cause: err,
		}
	case http.StatusConflict:
		return broker.Outcome{}, &contract.Failure{
			Code: contract.FailedPrecondition, Reason: reasonSealed, Message: s.text, Cause: err,
		}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return broker.Outcome{}, broker.NotApplied(err)
	}
	found, readErr := r.read(ctx, it)
	if readErr != nil || found == "" {
		return broker.Outcome{}, err
	}
	return broker.Applied(found).WithDetail(foundByReading), nil
}

const (
	foundByReading                 = "the reply was lost; found by reading"
	reasonSealed   contract.Reason = "key_sealed"
)

// read asks what was entered under the item's key; "" for nothing.
func (r *registryClient) read(ctx context.Context, it broker.Item) (string, error) {
	return r.entered(ctx, http.MethodGet, "/forums/", it)
}

// seal has the item's key refused from now on, and asks what was entered under it before; "" for nothing.
func (r *registryClient) seal(ctx context.Context, it broker.Item) (string, error) {
	return r.entered(ctx, http.MethodPut, "/seals/", it)
}

func (r *registryClient) entered(ctx context.Context, method, path string, it broker.Item) (string, error) {
	var found ref
	err := r.do(ctx, method, path+it.IdempotencyKey.String(), nil, &found)
	if s, ok := errors.AsType[*statusError](err); ok && s.status == http.StatusNotFound {
		return "", nil
	}
	return found.Ref, err
}

// reader reads for Resolve. What it does not find may still come: the registry refuses no late call.
func (r *registryClient) reader() broker.StatusReader {
	return func(ctx context.Context, it broker.Item) (broker.Verdict, error) {
		found, err := r.read(ctx, it)
		switch {
		case err != nil:
			return broker.Verdict{}, err // it could not be asked: still unknown
		case found != "":
			return broker.FoundApplied(found, "the registry shows "+found+" under the item's key"), nil
		}
		return broker.FoundAbsent("the registry shows nothing under the item's key"), nil
	}
}

// sealer reads for Resolve as well, and has the key sealed in the same step: what it does not find will never come.
func (r *registryClient) sealer() broker.StatusReader {
	return func(ctx context.Context, it broker.Item) (broker.Verdict, error) {
		found, err := r.seal(ctx, it)
		switch {
		case err != nil:
			return broker.Verdict{}, err
		case found != "":
			return broker.FoundApplied(found, "the registry shows "+found+" under the item's key"), nil
		}
		return broker.FoundAbsent("the registry had nothing under the item's key and has sealed it").Final(), nil
	}
}

// surface reads the surface as it is now.
func (r *registryClient) surface(ctx context.Context) (contract.CurrentSurfaceState, error) {
	var s surface
	if err := r.do(ctx, http.MethodGet, "/surface", nil, &s); err != nil {
		return contract.CurrentSurfaceState{}, fmt.Errorf("read the surface: %w", err)
	}
	return contract.CurrentSurfaceState(s), nil
}

// move changes the surface from elsewhere.
func (r *registryClient) move(ctx context.Context) error {
	return r.do(ctx, http.MethodPost, "/move", nil, nil)
}

func (r *registryClient) setFault(ctx context.Context, p place, f fault) error {
	return r.do(ctx, http.MethodPost, "/fault", faultRequest{p, f}, nil)
}

// awaitHeld returns when the registry has written the item and holds its answer.
func (r *registryClient) awaitHeld(ctx context.Context, p place) error {
	return r.do(ctx, http.MethodPost, "/await-held", p, nil)
}

// release lets the registry give the answer that it holds.
func (r *registryClient) release(ctx context.Context, p place) error {
	return r.do(ctx, http.MethodPost, "/release", p, nil)
}

// statusError is an answer other than success.
type statusError struct {
	status int
	text   string
}

// code is the status; 0 for no answer.
func (e *statusError) code() int {
	if e == nil {
		return 0
	}
	return e.status
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the registry answered %d: %s", e.status, e.text)
}

// do makes one request and reads its answer into out, unless that is nil. The error is a *statusError if there was an
// answer.
func (r *registryClient) do(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("read the registry's answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return &statusError{resp.StatusCode, strings.TrimSpace(string(answer))}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
