//! Waiting until an engine is ready: asking health, models and a canary, in the time that there is,
//! and making sure that it is this launch's process that answers.
//!
//! What an answer means is decided in `ready`; what a failure leads to in `launch`.

use std::net::{IpAddr, ToSocketAddrs};
use std::time::Duration;

use tokio::time::Instant;

use super::launch::Fault;
use super::port::{self, Listener};
use super::ready::{self, Listed, Sign};
use super::remote::{Answer, LIMIT, Remote, RemoteError};
use super::{Canary, LaunchSpec};
use crate::quantity::print_duration;

/// How long a stranger may answer on the engine's port before the launch is given up: until then
/// the engine's own end, with its own words, is the better explanation.
const STRANGER: Duration = Duration::from_secs(10);
/// From when on a request without an answer says more than the answer before it.
const MUTE: Duration = Duration::from_secs(1);

/// Waiting for readiness.
pub(super) struct Wait<'a> {
    spec: &'a LaunchSpec,
    step: &'static str,
    begin: Instant,
    seen: String,
    /// What is being asked, and since when.
    open: Option<(String, Instant)>,
    /// Root of the engine's tree; `None` for an engine that was not started here.
    supervisor: Option<i32>,
}

impl<'a> Wait<'a> {
    /// From now on.
    pub(super) fn begin(spec: &'a LaunchSpec, supervisor: Option<i32>) -> Wait<'a> {
        let seen = "nothing".to_owned();
        Wait { spec, step: "health", begin: Instant::now(), seen, open: None, supervisor }
    }

    /// Asks until the engine is ready, in the time that it has.
    pub(super) async fn until_ready(
        &mut self,
        remote: &Remote,
        on_step: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(Remote, Listed), Fault> {
        let limit = self.spec.ready.timeout;
        match tokio::time::timeout_at(self.begin + limit, self.steps(remote, on_step)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let seen = match &self.open {
                    Some((what, since)) if since.elapsed() >= MUTE => {
                        format!("no answer to {what} for {} s", since.elapsed().as_secs())
                    }
                    Some(_) | None => self.seen.clone(),
                };
                let limit = print_duration(limit);
                let message = format!("not ready within {limit}; last seen: {seen}");
                Err(Fault { timed_out: true, ..Fault::new(self.step, message) })
            }
        }
    }

    async fn steps(
        &mut self,
        remote: &Remote,
        on_step: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(Remote, Listed), Fault> {
        on_step("health");
        self.health(remote).await?;
        self.step = "models";
        on_step("models");
        let model = self.models(remote).await?;
        let remote = remote.with_model(&model.id);
        if self.spec.ready.completion {
            self.step = "canary";
            on_step("canary");
            self.canary(&remote).await?;
        }
        Ok((remote, model))
    }

    /// An answer, or why there is none; what is asked is known meanwhile.
    async fn ask(
        &mut self,
        what: &str,
        asking: impl Future<Output = Result<Answer, RemoteError>>,
    ) -> Result<Answer, RemoteError> {
        if self.open.as_ref().is_none_or(|(open, _)| open != what) {
            self.open = Some((what.to_owned(), Instant::now()));
        }
        let answer = asking.await;
        // An engine that is asked again has been mute since the first time.
        if !matches!(answer, Err(RemoteError::TimedOut { .. })) {
            self.open = None;
        }
        answer
    }

    async fn pause(&self) {
        tokio::time::sleep(ready::pause(self.begin.elapsed())).await;
    }

    async fn health(&mut self, remote: &Remote) -> Result<(), Fault> {
        let mut strange_since: Option<Instant> = None;
        loop {
            let sign = match self.ask("GET /health", remote.get("/health", LIMIT)).await {
                Ok(answer) => ready::health(self.spec.kind, &answer),
                Err(error) => Sign::NotYet(error.to_string()),
            };
            match sign {
                Sign::Ready(()) => match self.stranger().await {
                    None => return Ok(()),
                    Some(stranger) => {
                        self.seen = stranger;
                        let since = *strange_since.get_or_insert_with(Instant::now);
                        if since.elapsed() >= STRANGER {
                            return Err(Fault {
                                address_in_use: true,
                                ..Fault::new("health", self.seen.clone())
                            });
                        }
                    }
                },
                Sign::NotYet(seen) => self.seen = seen,
                Sign::Never(why) => return Err(Fault::new("health", why)),
            }
            self.pause().await;
        }
    }

    /// Who answers in the engine's place; `None` where nobody does, or it can't be told.
    async fn stranger(&self) -> Option<String> {
        stranger(self.spec, self.supervisor?).await
    }

    async fn models(&mut self, remote: &Remote) -> Result<Listed, Fault> {
        let named = self.spec.model.as_deref();
        loop {
            let answer = self.ask("GET /v1/models", remote.get("/v1/models", LIMIT)).await;
            let sign = match answer {
                Ok(answer) => ready::models(self.spec.kind, &answer, named),
                Err(error) => Sign::NotYet(error.to_string()),
            };
            match (sign, named) {
                (Sign::Ready(model), _) => return Ok(model),
                // What the list says does not matter then, once there is a name.
                (Sign::NotYet(_) | Sign::Never(_), Some(named)) if !self.spec.ready.models => {
                    return Ok(Listed { id: named.to_owned(), ..Listed::default() });
                }
                (Sign::NotYet(seen), _) => self.seen = seen,
                (Sign::Never(why), _) => return Err(Fault::mismatch("models", why)),
            }
            self.pause().await;
        }
    }

    async fn canary(&mut self, remote: &Remote) -> Result<(), Fault> {
        let mut chat = match self.spec.canary {
            Canary::Completions | Canary::Either => false,
            Canary::Chat => true,
        };
        loop {
            let (path, body) = ready::canary(remote.model(), chat);
            // The first completion may compile kernels for minutes: it has all the time there is.
            let asking = remote.post(path, &body, self.spec.ready.timeout);
            let sign = match self.ask(&format!("POST {path}"), asking).await {
                Ok(answer) if answer.is_absent() && !chat && self.spec.canary == Canary::Either => {
                    chat = true;
                    continue;
                }
                Ok(answer) => ready::canary_sign(path, &answer),
                Err(error) => Sign::NotYet(error.to_string()),
            };
            match sign {
                Sign::Ready(()) => return Ok(()),
                Sign::NotYet(seen) => self.seen = seen,
                Sign::Never(why) => return Err(Fault::new("canary", why)),
            }
            self.pause().await;
        }
    }
}

/// Who answers on the port of the engine below `root` in its place; `None` where nobody does, or it
/// can't be told.
pub(super) async fn stranger(spec: &LaunchSpec, root: i32) -> Option<String> {
    let command = spec.command.as_ref()?;
    if command.argv.iter().any(|word| port::hands_over(word)) {
        return None;
    }
    let (host, port) = (port::bare(&spec.host).to_owned(), spec.port);
    let looking = tokio::task::spawn_blocking(move || {
        let addresses = (host.as_str(), port).to_socket_addrs();
        let hosts: Vec<IpAddr> = addresses.into_iter().flatten().map(|at| at.ip()).collect();
        port::listener(port, &hosts, root)
    });
    let who = match looking.await {
        Ok(Listener::Other(owner)) => format!("process {owner}"),
        Ok(Listener::User(user)) => format!("a process of the user with id {user}"),
        Ok(Listener::Unknown | Listener::Ours | Listener::Forwarder) | Err(_) => return None,
    };
    Some(format!("{who}, which this launch did not start, answers on port {port}"))
}
