// Package faultnet stands on the way to the database: it counts what passes, and breaks it.
//
// A proxy on 127.0.0.1 relays a test's PostgreSQL connections and follows the protocol's messages. Tests connect
// through it with the connection string that it gives them; nothing else about them changes.
package faultnet
