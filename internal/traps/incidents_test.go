package traps

// A proof is how a report of the list is ruled out: by tests, each named as a test function or as how a subtest's name begins; or
// not, because what it is about does not exist here. Both are there when tests rule out what is left of it.
type proof struct {
	by      []string
	because string
}

func by(tests ...string) proof { return proof{by: tests} }

func cannotBeMet(because string, tests ...string) proof { return proof{tests, because} }

// unused are the numbers between others that the list does not have.
func unused() proof { return cannotBeMet("the list has no such number") }

// part is a part of the list of reports: its numbers from first to last.
type part struct {
	first, last int
	rows        map[int]proof
}

// parts are those that are about what every base has: one table of all their numbers.
var parts = map[string]part{
	"4b in-progress records, digest mismatch, hash stability": {18, 38, map[int]proof{
		18: by("S20 other content is a conflict in every state", "S20 other content is not claimed", "S20 the digest outlives the completion"),
		19: unused(),
		20: by("incident 20:"),
		21: by("incident 21:"),
		22: unused(),
		23: by("S20 other content is a conflict in every state", "3 conflict before in progress"),
		24: cannotBeMet("nothing here repeats a confirm or a mutation by itself; reads are repeated",
			"TestReadsAreRepeated", "TestWhatIsNotRepeated", "TestRetryPolicy"),
		25: cannotBeMet("nothing here repeats a confirm or a mutation by itself; the key of a read is in its bytes and metadata",
			"TestReadsAreRepeated", "TestWhatIsNotRepeated"),
		26: by("TestIncident26AReusedBrokerCarriesNoKey"),
		27: by("TestDigestIgnoresSpelling"),
		28: by("TestCanonicalJSON", "TestIncident28DigestOfAnyLocale"),
		29: by("TestDigestOfBigNumbers", "TestExactNumbers"),
		30: by("incident 30:"),
		31: by("TestCanonicalJSON"),
		32: by("incident 32:", "S17 outcomes come back byte for byte", "TestOutcomesAreBytes"),
		33: by("TestDigestTellsContentApart"),
		34: by("incident 34:"),
		35: by("TestDigestTellsContentApart", "TestDocumentsThatDiffer"),
		36: unused(),
		37: by("S12 S17 S18 a second confirm replays, byte for byte", "TestRoundTrips"),
		38: by("TestGoldenRowsOnSQLite", "TestGoldenRowsOnPostgres"),
	}},
	"4d transactions, savepoints, isolation": {49, 65, map[int]proof{
		49: by("incident 49:", "TestItemsWithNewSQL"),
		50: cannotBeMet("no store has hooks after a commit; the memory's, of what is undone, go with their item",
			"TestOnRollbackRunsTheLastFirst", "S15 S7 one failing item of three"),
		51: by("TestIncident51AnySwallowedError", "TestSwallowedSQLError", "TestSwallowedErrors"),
		52: unused(),
		53: by("incident 53:", "TestExecutorEndsTransaction"),
		54: by("S4 more than 64 items are refused", "TestSavepointsAreReleased", "TestMostItemsFitTheSubtransactionCache"),
		55: by("TestSerializationFailureIsNoOutcome", "TestRetryIsTheTransactions"),
		56: by("incident 56:"),
		57: unused(),
		58: by("incident 58: a unique violation", "incident 58: a lost race"),
		59: by("TestLoserOfARaceSeesTheWinner", "TestFixedSnapshots", "S12 a claim waits for one that is under way"),
		60: by("S15 a panic, a Goexit and a silent executor"),
		61: by("incident 61:"),
		62: unused(),
		63: by("incident 63:", "S14 a caller that leaves costs no outcome"),
		64: unused(),
		65: by("TestIncident65OrdinalsDoNotShift"),
	}},
	"4e poolers, locks, row security, tenancy, embedded": {66, 79, map[int]proof{
		66: by("incident 66:", "TestThroughPgBouncer"),
		67: by("TestIncident67AFailedMigrationBlocksNothing"),
		68: by("TestIncident68SimpleProtocol"),
		69: by("incident 69: the suite", "TestThroughPgBouncer"),
		70: by("incident 70:", "TestRowSecurity"),
		71: by("TestIncident71OwnerIsBound", "TestCheckRowSecurity", "TestDownSeesThroughRowSecurity"),
		72: by("TestIncident72InsertOnly"),
		73: by("S16 a key string in two tenants is two keys", "S16 S11 accepted keys are each tenant's own"),
		74: by("S16 another tenant's key looks absent", "S11 S16 unknown and foreign keys get one answer"),
		75: unused(),
		76: by("TestIncident76TwoWritersOfOneFile", "TestProcessesRaceOnAFreshFile", "TestWritesWaitForOtherProcesses",
			"S12 25 concurrent confirms run once"),
		77: cannotBeMet("a store has no answer before its write is durable: what is not is an error, and memory is said not to be durable",
			"TestOwnWritesAreDurable", "TestCheck"),
		78: cannotBeMet("a proposal is not written again when it is executed, so nothing tells of a claim that the database has lost: "+
			"the promise is for acknowledged commits that survive, and Check tells a setting that does not keep them",
			"TestOwnWritesAreDurable", "TestCheck"),
		79: by("TestIncident79ClaimRefused", "TestDatabaseDown", "TestLostStoreCalls"),
	}},
	"4f payload limits and odd bytes": {80, 83, map[int]proof{
		80: by("S17 odd outcomes are stored and replayed as told", "TestReplayIsByteIdentical"),
		81: unused(),
		82: by("incident 82:", "S17 odd outcomes are stored and replayed as told"),
		83: by("incident 83:"),
	}},
}
