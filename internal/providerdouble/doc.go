// Package providerdouble holds stand-ins for receivers of usage other than
// Stripe: a receiver of Standard Webhooks, an ingestion API in the manner of
// OpenMeter and one in the manner of Lago, and the metering service of AWS
// Marketplace. Each enforces what is known of its original, keeps a ledger of
// what it took, and misbehaves when told.
//
// They verify signatures in their own words and share no code with the host.
package providerdouble
