// Package stripedouble is a stand-in for the part of Stripe that takes usage:
// a real HTTPS server that answers POST /v1/billing/meter_events as Stripe's
// API v1 does, keeps a durable ledger of what it charged, and misbehaves on
// request. Tests and the demo trust its ledger to judge whether an item was
// charged once, so nothing in the ledger depends on what a client says of
// itself.
//
// It is a test double. Only what is listed here is modelled; of API v2 nothing
// but the retrieval of an error report is.
//
// # Order of checks
//
// A request to /v1 is judged in this order, and the first check that fails
// answers: route, API key, account, rate limit, Idempotency-Key (replay,
// mismatch, in use), parameters, lock per customer and meter, meter, customer,
// identifier. Parameters are checked before execution, so what they refuse is
// not stored under the Idempotency-Key. Meter, customer and identifier are
// checked by execution, so their refusals are stored, as is a 500.
//
// # Answers
//
// A success is 200 with
//
//	{"object":"billing.meter_event","created":1704824589,"event_name":"llm_tokens",
//	 "identifier":"fencepost_1","livemode":false,
//	 "payload":{"stripe_customer_id":"cus_1","value":"25"},"timestamp":1704824580}
//
// Every refusal is
//
//	{"error":{"type":T,"code":C,"message":M,"param":P,"doc_url":U,"request_log_url":L}}
//
// where code, param and doc_url are absent if the table has none. T is
// invalid_request_error unless stated.
//
//	status  code                               param                         message
//	401     -                                  -                             You did not provide an API key. …
//	401     -                                  -                             Invalid API Key provided: sk_test_****…
//	403     account_invalid                    -                             The provided key does not have access to account 'acct_x' (or that account does not exist). …
//	404     url_invalid                        -                             Unrecognized request URL (GET: /v1/x). …
//	429     rate_limit                         -                             Request rate limit exceeded. …            (header Stripe-Rate-Limited-Reason: global-rate)
//	400     -       (type idempotency_error)   -                             Keys for idempotent requests can only be used with the same parameters they were first used with. …
//	409     idempotency_key_in_use             -                             There is currently another in-progress request using this Idempotent Key …
//	        (type idempotency_error)
//	400     parameter_missing                  event_name, payload           Missing required param: event_name.
//	400     parameter_unknown                  the parameter                 Received unknown parameter: x
//	400     parameter_invalid_empty            event_name, identifier        You passed an empty string for 'event_name'. …
//	400     parameter_invalid_integer          timestamp                     Invalid integer: x
//	400     -                                  event_name, identifier        Invalid string: must be at most 100 characters
//	400     -                                  payload                       Invalid object
//	400     meter_event_no_customer_defined    payload[stripe_customer_id]   The event payload has no customer. …
//	400     meter_event_invalid_value          payload[value]                The value in the event payload is not a decimal number. …
//	400     meter_event_value_too_many_digits  payload[value]                The value in the event payload can have at most 15 digits. Received 1234567890123456.
//	400     timestamp_too_far_in_past          timestamp                     The event timestamp cannot be more than 35 days in past. Expected a timestamp greater than or equal to 1758141836.
//	400     timestamp_in_future                timestamp                     The event timestamp cannot be more than 5 minutes in future. Expected a timestamp less than or equal to 1758141836.
//	429     lock_timeout                       -                             This object cannot be accessed right now because another API request or Stripe process is currently accessing it. …
//	400     no_meter                           event_name                    No active meter found for event name "x".
//	400     archived_meter                     event_name                    No active meter found for event name "x".
//	400     resource_missing                   payload[stripe_customer_id]   No such customer: 'cus_x'
//	400     -                                  -                             An event already exists with identifier fencepost_1.   (header Stripe-Should-Retry: false)
//	500     -       (type api_error)           -                             An unknown error occurred
//
// The refusal of a repeated identifier has no code, which is how API v1 has
// been seen to answer; the documented name is duplicate_meter_event and
// [CodesAll] adds it. The sentences of the value, timestamp and meter refusals
// are those that integrators have seen; whether API v1 also carries a code
// there is not documented, so the codes are those of Stripe's asynchronous
// error report, and [CodesNone] leaves them out. An exporter has to recognise
// both forms.
//
// A refusal never says whether the content of a repeated identifier was the
// same. Values may be negative or zero; they must be plain decimals ("12.50",
// never "1e3") of at most 12 decimals.
//
// # Identifier and Idempotency-Key
//
// An identifier belongs to (account, mode). It is refused for
// [Config.DedupeWindow] after the last charge and charges again afterwards.
//
// An Idempotency-Key belongs to (account, mode) too and is forgotten after
// [Config.DedupeWindow] or 24 hours, whichever is longer. The same key with
// the same parameters answers the stored status and body with header
// Idempotent-Replayed: true; what is stored survives a restart. Stored: the
// outcome of an execution, 200, 400 or 500. Not stored: 401, 403, 404, 409,
// 429, refused parameters, and everything a fault does on the network.
//
// # Adjustments
//
// POST /v1/billing/meter_event_adjustments with type=cancel, event_name and
// cancel[identifier] takes one event out of the net total. It passes the same
// checks, but for parameters of its own and no lock. A success is 200 with
//
//	{"object":"billing.meter_event_adjustment","cancel":{"identifier":"fencepost_1"},
//	 "event_name":"llm_tokens","livemode":false,"status":"pending","type":"cancel"}
//
// Documented: the parameters, the answer's fields, and that an event can be
// cancelled within 24 hours of being received, here by the double's clock. All
// else is assumed, because neither documentation nor anybody's report tells it:
//
//	a second cancellation     400 The meter event with identifier fencepost_1 has already been canceled.
//	                          or, with [RepeatedCancelTaken], 200 as the first
//	an unknown identifier,    400 resource_missing, No such meter event: 'fencepost_1'
//	another event_name, an
//	event that was rejected
//	after 24 hours            400 You can only cancel events within 24 hours of Stripe receiving them.
//	the identifier later      as before: cancelling does not set it free
//
// # Reads
//
// GET /v1/billing/meters lists meters by event name (status, limit,
// starting_after). Without [Config.Meters] those that were used are listed.
//
// GET /v1/billing/meters/ID/event_summaries sums what was charged to a customer
// in [start_time, end_time), which are whole minutes, or hours or days with
// value_grouping_window. Documented: parameters, fields, alignment, and that
// sums lag by a time that is not published: here [Config.SummaryLag] after the
// acceptance, and after a cancellation. Assumed: latest first, and no summary
// where there is no usage. Sums are binary floating point, as at Stripe.
//
// GET /v2/core/events/ID answers an error report with its data.
//
// # Late rejections
//
// The fault late:reject, or [Server.Reject], turns a charge into none: the event
// leaves the totals and counts as rejected. Its identifier stays known
// (assumed). For each meter one report v1.billing.meter.error_report_triggered
// is made, or v1.billing.meter.no_meter_found for code no_meter, with
// [Config.Samples] victims for each code (documented: some; how many is not).
// Code duplicate_meter_event takes nothing back. Reports are posted to
// [Config.WebhookURL] with a Stripe-Signature header, again until the answer is
// 2xx. As at Stripe they are thin: their data is to be fetched, unless
// [Config.FullReports] is set.
//
// # Ledger
//
// The ledger is a file of JSON lines, appended before an answer is sent and
// synced too if [Config.Sync] is set. A start reads it; a last line that was
// cut short is dropped and cut off the file, any other damage is an error. A
// directory belongs to one running server.
//
// # Control
//
//	GET  /__ledger          the judgement: see [Ledger]
//	GET  /__ledger/events   one [Entry] per line, in order of first charge
//	POST /__clock           {"advance":"25h"}: moves the double's clock, durably
//	POST /__faults          {"faults":"after:500@p0.1"}: replaces the schedule
//	GET  /__reports         every error report with its signature: see [Report]
//	POST /__webhook         {"url":"http://…","secret":"whsec_…"}: who receives them
//	POST /__reject          {"code":"no_meter","identifiers":["fencepost_1"]}: a late rejection
//	POST /__preload         an [Entry]: an event that somebody else reported
//	POST /__reset           forgets ledger, keys and counters
//
// These need no API key. Serve the double on loopback only.
//
// # Faults
//
// See [ParseFaults] for the schedule.
package stripedouble
