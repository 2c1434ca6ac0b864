package faultnet

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// marker is the text of every error that is made here.
const marker = "injected by faultnet"

// raise is a statement that fails.
func raise(state string) string {
	return "DO $faultnet$ BEGIN RAISE EXCEPTION USING ERRCODE = '" + state + "', MESSAGE = '" + marker + "'; END $faultnet$"
}

// mine is a statement that makes the COMMIT of its transaction fail, as a deferred constraint does, and leaves nothing behind.
func mine(state string) string {
	return `DO $faultnet$ BEGIN
  CREATE FUNCTION pg_temp.faultnet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION USING ERRCODE = '` + state + `', MESSAGE = '` + marker + `';
  END $$;
  CREATE TEMP TABLE faultnet (x int);
  CREATE CONSTRAINT TRIGGER faultnet AFTER INSERT ON pg_temp.faultnet DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION pg_temp.faultnet();
  INSERT INTO pg_temp.faultnet VALUES (1);
END $faultnet$`
}

// failing makes the last of several statements fail, or what comes after the only one. A text with literals is not taken apart.
func failing(sql, state string) string {
	sql = strings.TrimRight(sql, "; \n")
	if last := strings.LastIndexByte(sql, ';'); last >= 0 && !strings.ContainsAny(sql, "'$\"") {
		return sql[:last+1] + raise(state) + ";" + sql[last+1:]
	}
	return sql + ";" + raise(state)
}

// query is a Query message.
func query(sql string) message { return encoded(&pgproto3.Query{String: sql}) }

func queryText(m message) string {
	var q pgproto3.Query
	if q.Decode(m.body()) != nil {
		return ""
	}
	return q.String
}

// smuggled puts a statement into a flight of the extended protocol: before the Sync at its end, or before the last statement. It
// also returns what comes before it, by kind.
func smuggled(flight []message, sql string, beforeLast bool) (longer []message, before map[byte]int) {
	place := len(flight) - 1
	for beforeLast && place > 0 && flight[place].kind() != fromClientBind {
		place--
	}
	if beforeLast && place > 0 && flight[place-1].kind() == fromClientParse { // which has no name, or one that it keeps
		place--
	}
	before = map[byte]int{}
	for _, m := range flight[:place] {
		before[m.kind()]++
	}
	statement := []message{encoded(&pgproto3.Parse{Query: sql}), encoded(&pgproto3.Bind{}), encoded(&pgproto3.Execute{})}
	return slices.Concat(flight[:place], statement, flight[place:]), before
}

// withoutSmuggled leaves out what the server says of a smuggled statement: the client has not asked for that.
func withoutSmuggled(answer []message, before map[byte]int) []message {
	seen := map[byte]int{}
	return slices.DeleteFunc(slices.Clone(answer), func(m message) bool {
		asked, ok := map[byte]byte{
			fromServerParsed: fromClientParse, fromServerBound: fromClientBind,
			fromServerComplete: fromClientExecute, fromServerEmpty: fromClientExecute,
		}[m.kind()]
		if !ok {
			return false
		}
		seen[asked]++
		return seen[asked] == before[asked]+1
	})
}

// injected says whether m is an error that was made here.
func injected(m message) bool {
	var e pgproto3.ErrorResponse
	return m.kind() == fromServerError && e.Decode(m.body()) == nil && e.Message == marker
}

// fatalError is the last word of a server that ends a connection.
func fatalError(state string) message {
	return encoded(&pgproto3.ErrorResponse{
		Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: state, Message: marker,
	})
}

func encoded(m pgproto3.Message) message {
	data, err := m.Encode(nil)
	if err != nil {
		return nil // unreachable: nothing that is made here is too long
	}
	return data
}
