//! An exporter into a file, whose provider can be asked and sends messages: the
//! parts of the interface that the other sample has no use for.

use fencepost::host::{Failure, Records};
use fencepost::*;

const SECOND: i64 = 1_000_000;

#[derive(Default)]
struct Ledger;

impl Exporter for Ledger {
    fn describe(&self) -> Manifest<'static> {
        Manifest {
            name: "ledger",
            version: "1.0.0",
            identifier_max_length: 64,
            max_batch: 100,
            capabilities: &["append"],
            read_back: Some(ReadBack { lag: 60 * SECOND, granularity: 3600 * SECOND, evidence: &["sum_present"] }),
            webhook: Some(Signature {
                scheme: "t=,v1=",
                header: "Ledger-Signature",
                secret: "webhook_secret",
                tolerance: 300 * SECOND,
            }),
            every: 3600 * SECOND,
            ..Manifest::default()
        }
    }

    fn configure(&mut self, _: &Configuration) -> Result<(), Error> {
        Ok(())
    }

    fn deliver<'a>(&mut self, items: &[Item<'a>]) -> Result<Vec<Outcome<'a>>, Error> {
        let mut batch = Records::default();
        for it in items {
            batch.push(it, format!("{{\"value\":\"{}\"}}", it.value).as_bytes());
        }
        let outcome = |(it, a): (&Item<'a>, host::Appended)| {
            let kind = match (a.failure, a.earlier) {
                (Failure::None, false) => Kind::Accepted,
                (Failure::None, true) => Kind::AcceptedEarlier,
                _ => Kind::Retry,
            };
            let mut o = Outcome::new(it.id, kind, a.reason);
            o.provider_ref = Box::leak(a.sequence.to_string().into_boxed_str()); // a sample: a few bytes
            o
        };
        Ok(items.iter().zip(batch.append()).map(outcome).collect())
    }

    /// Answers with the meter and the customer that it was asked about, and for
    /// nobody says that it was not told.
    fn probe(&mut self, questions: &[Question]) -> Result<Vec<Sum>, Error> {
        let sum = |q: &Question| match q.customer {
            "" => Sum { code: "nobody".into(), message: q.feature.into(), ..Sum::default() },
            who => Sum {
                sum: ((q.to - q.from).div_euclid(SECOND)).to_string(),
                meter: q.mapped("meter").into(),
                message: who.into(),
                ..Sum::default()
            },
        };
        Ok(questions.iter().map(sum).collect())
    }

    fn webhook(&mut self, m: &Message) -> Result<Report, Error> {
        if m.body.is_empty() {
            return Err(Error::invalid("body", "not empty"));
        }
        let late = Evidence {
            identifier: String::from_utf8_lossy(m.body).into_owned(),
            refused: true,
            code: "late".into(),
            message: "no such customer".into(),
        };
        let other = Evidence { identifier: "other".into(), ..Evidence::default() };
        Ok(Report {
            id: "message".into(),
            evidence: vec![late, other],
            counted: 7,
            code: m.received_at.div_euclid(SECOND).to_string(),
        })
    }
}

serve!(Ledger);
