//! The sample exporter in Rust. What its provider takes and answers is told in
//! examples/exporter-go/meterline, which is the same exporter in Go.

use fencepost::host::{Answer, Batch, Failure, Request};
use fencepost::json::{is_empty_object, quote, text_at};
use fencepost::*;

const MAX_IDENTIFIER: usize = 100;
const REFUSED: &[&str] = &["invalid_value", "timestamp_too_old"];
const MENDABLE: &[&str] = &["no_such_customer", "no_such_meter"];
const DAY: i64 = 24 * 3600 * 1_000_000;

#[derive(Default)]
struct Meterline {
    configured: bool,
    mode: String,
    account: String,
    url: String,
}

const fn code(class: Class, status: i64, equals: &'static [&'static str]) -> Pattern<'static> {
    Pattern { class, status, path: "/error/code", equals, contains: "" }
}

const ANSWERS: &[Pattern] = &[
    Pattern { class: Class::Duplicate, status: 409, path: "/error/id", equals: &[], contains: "{identifier}" },
    code(Class::Refused, 400, REFUSED),
    code(Class::Refused, 422, REFUSED),
    code(Class::Mendable, 400, MENDABLE),
    code(Class::Mendable, 422, MENDABLE),
];

impl Exporter for Meterline {
    fn describe(&self) -> Manifest<'static> {
        Manifest {
            name: "meterline",
            version: "1.0.0",
            identifier_max_length: MAX_IDENTIFIER as i64,
            identifier_horizon: 7 * DAY,
            window_past: 30 * DAY,
            window_future: 300_000_000,
            values: Values { significant_digits: 38, max_decimals: -1, negative: true, zero: true },
            max_batch: 100,
            rate: 100,
            concurrency: 8,
            corrections: Some(Correction::Negative),
            capabilities: &["http"],
            hosts: &["api.meterline.example"],
            secrets: &[Secret {
                name: "token",
                header: "Authorization",
                prefix: "Bearer ",
                test_prefixes: &[],
                live_prefixes: &[],
                scheme: "",
            }],
            mapping_keys: &["meter"],
            answers: ANSWERS,
            ..Manifest::default()
        }
    }

    fn configure(&mut self, c: &Configuration) -> Result<(), Error> {
        if c.mode != "test" && c.mode != "live" {
            return Err(Error::invalid("mode", "test or live"));
        }
        let base = if c.base_url.is_empty() { "https://api.meterline.example" } else { c.base_url };
        let host = base.strip_prefix("https://").unwrap_or("");
        let odd = |b: u8| b <= b' ' || b >= 0x7f || b"@?#\\".contains(&b);
        if host.is_empty() || host.starts_with('/') || host.bytes().any(odd) {
            return Err(Error::invalid("base_url", "an https address without user, query and fragment"));
        }
        if !c.settings.is_empty() && !is_empty_object(c.settings) {
            return Err(Error::invalid("settings", "an empty JSON object: there are no settings"));
        }
        self.mode = c.mode.into();
        self.account = c.account.into();
        self.url = format!("{}/v1/usage", base.trim_end_matches('/'));
        self.configured = true;
        Ok(())
    }

    fn deliver<'a>(&mut self, items: &[Item<'a>]) -> Result<Vec<Outcome<'a>>, Error> {
        if !self.configured {
            return Err(Error { tag: Tag::Invalid, code: "not_configured", field: "", rule: "Configure before Deliver" });
        }
        let mut batch = Batch::default();
        for item in items.iter().filter(|it| self.unsendable(it).is_none()) {
            batch.push(&Request {
                method: "POST",
                url: &self.url,
                headers: &[("Content-Type", "application/json"), ("Idempotency-Key", item.identifier)],
                body: &body(item),
                items: &[item.id],
                secrets: &["token"],
                ..Request::default()
            });
        }
        let mut answers = batch.send().into_iter();
        Ok(items
            .iter()
            .map(|item| match self.unsendable(item) {
                Some(code) => Outcome::new(item.id, Kind::Retry, code),
                None => match answers.next() {
                    Some(answer) => judge(item, &answer),
                    None => Outcome::new(item.id, Kind::Retry, "no_answer"),
                },
            })
            .collect())
    }
}

impl Meterline {
    /// Why an item must not be sent, or None.
    fn unsendable(&self, item: &Item) -> Option<&'static str> {
        Some(if item.mode != self.mode {
            "mode_not_served"
        } else if item.account != self.account {
            "account_not_served"
        } else if item.mapped("meter").is_empty() {
            "mapping_incomplete"
        } else if item.identifier.is_empty() || item.identifier.len() > MAX_IDENTIFIER {
            "identifier_invalid"
        } else if item.corrects.map_or(false, |c| c.method != Correction::Negative) {
            "correction_method_unknown"
        } else if item.customer.is_empty() {
            "customer_missing"
        } else if !plain_decimal(item.value) {
            "value_invalid"
        } else {
            return None;
        })
    }
}

fn plain_decimal(s: &str) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    match s.strip_prefix('-').unwrap_or(s).split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(s.strip_prefix('-').unwrap_or(s)),
    }
}

fn body(item: &Item) -> Vec<u8> {
    let mut b = Vec::with_capacity(160);
    for (name, value) in [
        ("{\"id\":", item.identifier),
        (",\"customer\":", item.customer),
        (",\"meter\":", item.mapped("meter")),
        (",\"value\":", item.value),
    ] {
        b.extend_from_slice(name.as_bytes());
        quote(&mut b, value);
    }
    b.extend_from_slice(format!(",\"timestamp\":{}}}", item.seconds()).as_bytes());
    b
}

/// What an answer means for its item. Whatever leaves open whether the item was
/// taken is a retry: the same identifier settles it.
fn judge<'a>(item: &Item<'a>, a: &Answer) -> Outcome<'a> {
    let retry = |code: &'static str| Outcome::new(item.id, Kind::Retry, code);
    match a.failure {
        Failure::None => {}
        Failure::NotSent => return retry("not_sent"),
        Failure::Unknown => return retry("no_answer"),
    }
    let ours = |kind, code: &'static str| Outcome { provider_ref: item.identifier, ..Outcome::new(item.id, kind, code) };
    match a.status {
        200 | 201 => match text_at(&a.body, &["id"]) {
            Some(id) if id == item.identifier => ours(Kind::Accepted, ""),
            _ => retry("foreign_answer"),
        },
        409 => {
            let code = text_at(&a.body, &["error", "code"]);
            match text_at(&a.body, &["error", "id"]) {
                Some(id) if code.as_deref() == Some("duplicate") => {
                    if id == item.identifier {
                        ours(Kind::AcceptedEarlier, "duplicate")
                    } else {
                        Outcome::new(item.id, Kind::Uncertain, "foreign_duplicate")
                    }
                }
                _ => retry("unknown_refusal"),
            }
        }
        400 | 422 => {
            let code = text_at(&a.body, &["error", "code"]).unwrap_or_default();
            let known = |list: &[&'static str]| list.iter().copied().find(|c| *c == code);
            match (known(REFUSED), known(MENDABLE)) {
                (Some(c), _) => Outcome::new(item.id, Kind::Rejected, c),
                (_, Some(c)) => Outcome { mendable: true, ..Outcome::new(item.id, Kind::Rejected, c) },
                _ => retry("unknown_refusal"),
            }
        }
        429 => Outcome { retry_after: retry_after(a), ..Outcome::new(item.id, Kind::RateLimited, "rate_limited") },
        status => Outcome { retry_after: retry_after(a), ..Outcome::new(item.id, Kind::Retry, format!("http_{}", status)) },
    }
}

/// Reads seconds; anything else is zero, and the host decides.
fn retry_after(a: &Answer) -> i64 {
    let value = a.header("Retry-After").trim_matches(|c| c == ' ' || c == '\t');
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return 0;
    }
    value.parse::<i64>().ok().filter(|s| *s <= 0x7fff_ffff).unwrap_or(0) * 1_000_000
}

serve!(Meterline);
