package pgstore

// WithoutTurns is s without the advisory locks that keep waits for values fair: what it promises rests on row locks alone.
func WithoutTurns(s *Store) *Store {
	c := *s
	c.sql.sharesTurn = `SELECT $1::text, $2::text[]`
	c.sql.takesTurn = `SELECT $1::text, $2::text, $3::text, $4::bigint`
	return &c
}
