// Package outpost lets an application read a customer's balance from a Redis of
// its own, right after it has tracked an event, without a request to the engine.
//
// [Client.Track] writes the event to Redis before it returns; a batcher delivers it
// to the engine later. What is read locally counts the engine's own totals and
// everything that it may not have counted yet, so a balance is never too high for
// events that went through this Redis.
package outpost
