package contract

import (
	"errors"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

const (
	problemUnknown = "is not a member of this document"
	problemMissing = "is required"
	problemNull    = "must not be null"
	problemVersion = `must be "` + SchemaVersion + `"`
	problemKey     = "must be a UUID in its 36-character form, other than the nil UUID"
)

// wireNames are the member names of this package's documents: the only ones that an error text shows.
var wireNames = map[string]bool{
	"schema_version": true, "idempotency_key": true, "surface_key": true, "contract_version": true, "items": true,
	"item_id": true, "op": true, "params": true, "outcomes": true, "state": true, "ref": true, "reason": true,
	"detail": true, "replayed": true, "recovery": true, "action": true, "message": true,
	"result": true, "method": true, "operation_id": true, "digest": true, "before": true, "after": true, "barrier": true,
	"id": true, "active_calls": true, "epoch": true, "by": true, "provisional": true, "recorded_at": true, "failure": true,
	"code": true, "effect": true, "current": true,
}

// refuseNull is called before every value that is decoded, whatever its type.
var refuseNull = json.UnmarshalFromFunc(func(dec *jsontext.Decoder, _ any) error {
	if dec.PeekKind() == jsontext.KindNull {
		return invalid("", problemNull)
	}
	return errors.ErrUnsupported // go on with the default
})

// decode reads one document into v. Members that v does not name and nulls are refused; names match exactly. The error
// is an *InvalidError. Members that are missing keep v's values.
func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true), json.WithUnmarshalers(refuseNull))
	if err == nil {
		return nil
	}
	return decodeError(err)
}

// decodeError turns the JSON package's errors, which quote the document, into the contract's, which do not.
func decodeError(err error) error {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return syntaxError("", err)
	}
	problem := "must be " + typeName(semantic.GoType)
	if errors.Is(err, json.ErrUnknownName) {
		problem = problemUnknown
	}
	if own, ok := errors.AsType[*InvalidError](err); ok {
		problem = own.Problem
	}
	return invalidAt("", semantic.JSONPointer, problem)
}

func typeName(t reflect.Type) string {
	if t != nil {
		switch t.Kind() {
		case reflect.Bool:
			return "true or false"
		case reflect.Int64:
			return "a whole number"
		case reflect.Slice:
			return "an array"
		case reflect.Struct:
			return "an object"
		}
	}
	return "a string"
}

type member struct {
	name    string
	present bool
}

func checkPresent(path string, members ...member) error {
	for _, m := range members {
		if !m.present {
			return invalid(path+"/"+m.name, problemMissing)
		}
	}
	return nil
}

func checkVersion(v *string) error {
	if err := checkPresent("", member{"schema_version", v != nil}); err != nil {
		return err
	}
	if *v != SchemaVersion {
		return invalid("/schema_version", problemVersion)
	}
	return nil
}

// parseKey takes the canonical text form only, in either case (S2).
func parseKey(path, s string) (uuid.UUID, error) {
	key, err := uuid.Parse(s)
	if err != nil || len(s) != len(uuid.Nil.String()) || key == uuid.Nil {
		return uuid.Nil, invalid(path, problemKey)
	}
	return key, nil
}
