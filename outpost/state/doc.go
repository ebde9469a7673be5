// Package state is the outpost's shared state in Redis, layout v1: what an
// application has tracked of each customer that the engine may not count yet,
// and the engine's own totals up to an instant.
//
// Lua scripts are the only writers. A call may be repeated: events are known by
// id. Quantities are exact in Redis and here.
package state
