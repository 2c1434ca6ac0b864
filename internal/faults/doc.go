// Package faults holds the exhaustive fault test: every fault, at every boundary of every scenario, on PostgreSQL.
package faults
