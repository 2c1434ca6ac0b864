package contract

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const receiptDigest = "0102030000000000000000000000000000000000000000000000000000000000"

const appliedDoc = `{"schema_version":"operation_receipt.v1","result":"APPLIED","method":"/s/M","operation_id":"op-1",` +
	`"digest":"` + receiptDigest + `","before":4,"after":5,"barrier":{"id":"b-1","active_calls":0,"epoch":"e-1"},` +
	`"ref":"r-1","detail":"done","by":"on-call","recorded_at":1700000000000}`

const refusedDoc = `{"schema_version":"operation_receipt.v1","result":"REFUSED","method":"/s/M","operation_id":"op-1",` +
	`"digest":"` + receiptDigest + `","failure":{"code":"ABORTED","reason":"own","effect":"none","message":"m","current":7},` +
	`"replayed":true}`

func refused() Receipt {
	return Receipt{
		Result: ResultRefused, Method: "/s/M", OperationID: "op-1", Digest: Digest{1, 2, 3}, Replayed: true,
		Failure: &Failure{Code: Aborted, Reason: "own", Effect: EffectNone, Message: "m", Current: 7},
	}
}

// R23: stored receipts are these bytes, and read back as they were; encoding/json does the same.
func TestReceiptBytes(t *testing.T) {
	for doc, r := range map[string]Receipt{appliedDoc: applied(), refusedDoc: refused()} {
		data, err := r.MarshalJSON()
		require.NoError(t, err)
		assert.Equal(t, doc, string(data))
		data, err = json.Marshal(r)
		require.NoError(t, err)
		assert.Equal(t, doc, string(data))
		var back Receipt
		require.NoError(t, json.Unmarshal(data, &back))
		assert.Equal(t, r, back)
	}
}

// R2, R23: whatever a receipt holds, it comes back as Clean leaves it, with every result, code and effect.
func TestReceiptRoundTrip(t *testing.T) {
	for _, result := range ResultCodes() {
		for _, rule := range RetryTable() {
			for _, e := range append(effects, 99) {
				r := recorded(result)
				r.Failure = &Failure{Code: rule.Code, Reason: "a\x00", Effect: e, Message: strings.Repeat("\xff", 2000), Cause: ErrSealed}
				if result == ResultApplied {
					r.Failure, r.Ref = nil, "r"
				}
				data, err := r.MarshalJSON()
				require.NoError(t, err)
				var back Receipt
				require.NoError(t, back.UnmarshalJSON(data))
				assert.Equal(t, r.Clean(), back)
			}
		}
	}
}

// R2, R20, R23: what could not be read again is not written.
func TestReceiptMarshalRefuses(t *testing.T) {
	for path, r := range map[string]Receipt{
		"/result":               {},
		"/failure":              {Result: ResultApplied, Ref: "r", Failure: ErrSealed},
		"/failure/code":         {Result: ResultRefused, Failure: &Failure{Code: "INTERNAL"}},
		"/barrier":              {Result: ResultUnknown, Barrier: &Barrier{}},
		"/barrier/active_calls": {Result: ResultApplied, Barrier: &Barrier{ID: "b", ActiveCalls: 1}},
		"/before":               {Result: ResultUnknown, Before: -1},
	} {
		data, err := r.MarshalJSON()
		requireInvalid(t, err, path)
		assert.Nil(t, data)
		_, err = json.Marshal(r)
		assert.ErrorIs(t, err, ErrInvalid)
	}
}

// R2, R20, R23: receipts are read strictly. What a document does not say is neither a default nor evidence.
func TestReceiptIsReadStrictly(t *testing.T) {
	long := strings.Repeat("x", MaxDetail+1)
	for name, tc := range map[string]struct{ doc, old, repl, path string }{
		"unknown member":     {appliedDoc, `"ref"`, `"x":1,"ref"`, "/x"},
		"unknown in barrier": {appliedDoc, `"epoch"`, `"x":1,"epoch"`, "/barrier/x"},
		"unknown in failure": {refusedDoc, `"reason"`, `"cause":"c","reason"`, "/failure/cause"},
		"other case":         {appliedDoc, `"ref"`, `"Ref"`, "/Ref"},
		"twice":              {appliedDoc, `"ref"`, `"ref":"r","ref"`, "/ref"},
		"twice in failure":   {refusedDoc, `"effect"`, `"effect":"none","effect"`, "/failure/effect"},
		"null result":        {appliedDoc, `"APPLIED"`, `null`, "/result"},
		"null failure":       {refusedDoc, `"replayed":true`, `"barrier":null`, "/barrier"},
		"null effect":        {refusedDoc, `"none"`, `null`, "/failure/effect"},
		"null calls":         {appliedDoc, `"active_calls":0`, `"active_calls":null`, "/barrier/active_calls"},
		"null ref":           {appliedDoc, `"r-1"`, `null`, "/ref"},
		"no version":         {appliedDoc, `"schema_version":"operation_receipt.v1",`, ``, "/schema_version"},
		"other version":      {appliedDoc, `.v1"`, `.v2"`, "/schema_version"},
		"no result":          {appliedDoc, `"result":"APPLIED",`, ``, "/result"},
		"no method":          {appliedDoc, `"method":"/s/M",`, ``, "/method"},
		"no operation":       {appliedDoc, `"operation_id":"op-1",`, ``, "/operation_id"},
		"no digest":          {appliedDoc, `"digest":"` + receiptDigest + `",`, ``, "/digest"},
		"no barrier id":      {appliedDoc, `"id":"b-1",`, ``, "/barrier/id"},
		"no active calls":    {appliedDoc, `"active_calls":0,`, ``, "/barrier/active_calls"},
		"no code":            {refusedDoc, `"code":"ABORTED",`, ``, "/failure/code"},
		"other result":       {appliedDoc, `"APPLIED"`, `"DONE"`, "/result"},
		"lower case":         {appliedDoc, `"APPLIED"`, `"applied"`, "/result"},
		"number":             {appliedDoc, `"APPLIED"`, `1`, "/result"},
		"other code":         {refusedDoc, `"ABORTED"`, `"INTERNAL"`, "/failure/code"},
		"other effect":       {refusedDoc, `"none"`, `"applied"`, "/failure/effect"},
		"effect by code":     {refusedDoc, `"none"`, `"by_code"`, "/failure/effect"},
		"empty effect":       {refusedDoc, `"none"`, `""`, "/failure/effect"},
		"short digest":       {appliedDoc, receiptDigest, receiptDigest[2:], "/digest"},
		"long digest":        {appliedDoc, receiptDigest, receiptDigest + "00", "/digest"},
		"odd digest":         {appliedDoc, receiptDigest, receiptDigest[1:], "/digest"},
		"no hex":             {appliedDoc, receiptDigest, "xy" + receiptDigest[2:], "/digest"},
		"upper case hex":     {appliedDoc, receiptDigest, "AA" + receiptDigest[2:], "/digest"},
		"fraction":           {appliedDoc, `"after":5`, `"after":5.5`, "/after"},
		"text for a number":  {appliedDoc, `"after":5`, `"after":"5"`, "/after"},
		"too large":          {appliedDoc, `"after":5`, `"after":9223372036854775808`, "/after"},
		"calls run":          {appliedDoc, `"active_calls":0`, `"active_calls":1`, "/barrier/active_calls"},
		"went back":          {appliedDoc, `"after":5`, `"after":3`, "/after"},
		"negative":           {appliedDoc, `"before":4`, `"before":-4`, "/before"},
		"applied, failed":    {refusedDoc, `"REFUSED"`, `"APPLIED"`, "/failure"},
		"hidden text":        {appliedDoc, `"done"`, `"a\u0000"`, ""},
		"too long":           {appliedDoc, `"done"`, `"` + long + `"`, ""},
		"hidden message":     {refusedDoc, `"m"`, `"a\u202e"`, ""},
		"hidden barrier":     {appliedDoc, `"e-1"`, `"\n"`, ""},
		"replayed number":    {refusedDoc, `true`, `1`, "/replayed"},
		"trailing":           {appliedDoc, `1700000000000}`, `1700000000000}{}`, ""},
		"cut off":            {appliedDoc, `1700000000000}`, `17`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, tc.doc, tc.old)
			r := applied()
			err := r.UnmarshalJSON([]byte(strings.Replace(tc.doc, tc.old, tc.repl, 1)))
			requireInvalid(t, err, tc.path)
			assert.Equal(t, applied(), r, "a failed decode changes nothing")
		})
	}
	for _, bad := range []string{"", "null", "[]", `"APPLIED"`, "{}", "{"} {
		assert.ErrorIs(t, new(Receipt).UnmarshalJSON([]byte(bad)), ErrInvalid, bad)
	}
}

// R20, R23: no bytes make the decoder panic; what it accepts can stand, is clean, and is what the encoder writes.
func FuzzReceipt(f *testing.F) {
	f.Add([]byte(appliedDoc))
	f.Add([]byte(refusedDoc))
	f.Add([]byte(strings.Replace(appliedDoc, `"barrier":{"id":"b-1","active_calls":0,"epoch":"e-1"},`, ``, 1)))
	f.Add([]byte(`{"schema_version":"operation_receipt.v1","result":"UNKNOWN","method":"","operation_id":"",` +
		`"digest":"` + receiptDigest + `"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Receipt
		if err := r.UnmarshalJSON(data); err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			require.Equal(t, Receipt{}, r)
			return
		}
		require.NoError(t, r.Validate())
		require.Equal(t, r, r.Clean())
		written, err := r.MarshalJSON()
		require.NoError(t, err)
		var again Receipt
		require.NoError(t, again.UnmarshalJSON(written))
		require.Equal(t, r, again)
	})
}

// R20, R23: any receipt at all is refused, or can be stored and read back as Clean leaves it.
func FuzzEncodeReceipt(f *testing.F) {
	f.Add("APPLIED", "/s/M", "op", "ref", "detail", "by", int64(1), int64(2), "b", int64(0), "", "", uint8(0), false)
	f.Add("REFUSED", "\xff", "\x00", "\u2028", "", "", int64(0), int64(0), "", int64(0), "ABORTED", "m\x7f", uint8(9), true)
	f.Fuzz(func(t *testing.T, result, method, op, ref, detail, by string, before, after int64, barrier string, calls int64,
		code, message string, effect uint8, replayed bool,
	) {
		r := Receipt{
			Result: ResultCode(result), Method: method, OperationID: op, Ref: ref, Detail: detail, By: by, Before: before, After: after,
			Replayed: replayed, RecordedAt: calls,
		}
		if barrier != "" {
			r.Barrier = &Barrier{ID: barrier, ActiveCalls: calls, Epoch: detail}
		}
		if code != "" {
			r.Failure = &Failure{Code: FailureCode(code), Reason: Reason(ref), Effect: Effect(effect), Message: message, Current: before}
		}
		data, err := r.MarshalJSON()
		require.Equal(t, r.Validate() == nil, err == nil)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		var back Receipt
		require.NoError(t, back.UnmarshalJSON(data))
		require.Equal(t, r.Clean(), back)
	})
}
