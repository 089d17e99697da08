//! `[[fault]]` of a profile: the table as typed, checked into a [`Fault`].
//!
//! It decides which keys a kind of fault knows; what the fault does is in `script`.

use std::time::Duration;

use serde::Deserialize;

use super::script::{Death, Fault, Pick, Slowed};
use super::typed::{Count, Share, Time};

/// `[[fault]]`: which keys have a meaning depends on the kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct FaultTable {
    kind: FaultKind,
    requests: Option<PickTable>,
    at_token: Option<u64>,
    after: Option<Time>,
    #[serde(rename = "for")]
    pause: Option<Time>,
    exit_code: Option<u8>,
    log: Option<Vec<String>>,
    status: Option<u16>,
    message: Option<String>,
    by: Option<Share>,
    what: Option<Slowed>,
    context: Option<Count>,
    batch: Option<u64>,
    tokens: Option<Count>,
    path: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FaultKind {
    Crash,
    DieWhileLoading,
    Hang,
    Stall,
    Refuse,
    Status,
    StreamError,
    Truncate,
    Mute,
    Sick,
    Slow,
    Leak,
}

/// `requests = { … }` of a fault.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
struct PickTable {
    nth: Vec<u64>,
    every: Option<u64>,
    share: Option<Share>,
    min_output: u64,
}

impl FaultTable {
    /// The fault, or what is wrong with it.
    pub(crate) fn check(mut self) -> Result<Fault, String> {
        let kind = self.kind;
        let missing = |key: &str| format!("`{key}` is missing");
        let fault = match kind {
            FaultKind::Crash => Fault::Crash {
                at_token: self.at_token.take().ok_or_else(|| missing("at-token"))?,
                death: self.death(),
            },
            FaultKind::DieWhileLoading => Fault::DieWhileLoading(self.death()),
            FaultKind::Hang => Fault::Hang {
                at_token: self.at_token.take().ok_or_else(|| missing("at-token"))?,
                pause: self.pause.take().map(|time| time.0),
            },
            FaultKind::Stall => Fault::Stall {
                pick: self.pick()?,
                at_token: self.at_token.take().ok_or_else(|| missing("at-token"))?,
                pause: self.pause.take().map(|time| time.0),
            },
            FaultKind::Refuse => Fault::Refuse { pick: self.pick()? },
            FaultKind::Status => {
                let status = self.status.take().ok_or_else(|| missing("status"))?;
                if !(400..600).contains(&status) {
                    return Err(format!("status {status} is no error: write 429, 500 or 503"));
                }
                let message = self.message.take().unwrap_or_else(|| "scripted status".to_owned());
                Fault::Status { pick: self.pick()?, status, message }
            }
            FaultKind::StreamError => Fault::StreamError {
                pick: self.pick()?,
                at_token: self.at_token.take().unwrap_or(0),
                message: self.message.take().unwrap_or_else(|| "scripted error".to_owned()),
            },
            FaultKind::Truncate => {
                Fault::Truncate { pick: self.pick()?, at_token: self.at_token.take().unwrap_or(0) }
            }
            FaultKind::Mute => Fault::Mute {
                path: self.path.take(),
                after: self.after.take().map_or(Duration::ZERO, |time| time.0),
                pick: self.pick()?,
            },
            FaultKind::Sick => Fault::Sick {
                at_token: self.at_token.take().ok_or_else(|| missing("at-token"))?,
                message: self.message.take().unwrap_or_else(|| "scripted sickness".to_owned()),
            },
            FaultKind::Slow => Fault::Slow {
                by: self.by.take().ok_or_else(|| missing("by"))?.0,
                what: self.what.take().unwrap_or_default(),
                context: self.context.take().map(|count| count.0),
                batch: self.batch.take(),
            },
            FaultKind::Leak => {
                Fault::Leak { tokens: self.tokens.take().ok_or_else(|| missing("tokens"))?.0 }
            }
        };
        match self.left_over() {
            Some(key) => Err(format!("`{key}` has no meaning for this kind of fault: remove it")),
            None => Ok(fault),
        }
    }

    fn death(&mut self) -> Death {
        Death {
            after: self.after.take().map_or(Duration::ZERO, |time| time.0),
            exit_code: self.exit_code.take().unwrap_or(1),
            log: self.log.take().unwrap_or_default(),
        }
    }

    fn pick(&mut self) -> Result<Pick, String> {
        let table = self.requests.take().unwrap_or_default();
        if table.every == Some(0) || table.nth.contains(&0) {
            return Err("requests are counted from 1".to_owned());
        }
        Ok(Pick {
            nth: table.nth,
            every: table.every,
            share: table.share.map(|share| share.0),
            min_output: table.min_output,
        })
    }

    fn left_over(&self) -> Option<&'static str> {
        let keys = [
            ("requests", self.requests.is_some()),
            ("at-token", self.at_token.is_some()),
            ("after", self.after.is_some()),
            ("for", self.pause.is_some()),
            ("exit-code", self.exit_code.is_some()),
            ("log", self.log.is_some()),
            ("status", self.status.is_some()),
            ("message", self.message.is_some()),
            ("by", self.by.is_some()),
            ("what", self.what.is_some()),
            ("context", self.context.is_some()),
            ("batch", self.batch.is_some()),
            ("tokens", self.tokens.is_some()),
            ("path", self.path.is_some()),
        ];
        keys.iter().find(|(_, given)| *given).map(|(key, _)| *key)
    }
}
