//! The simulated engine: vLLM's HTTP surface over a scheduler whose times come out of a profile.
//!
//! Requests arrive over TCP or an in-memory pipe, a pure `scheduler` decides when each token is
//! due, `clock` waits for it, `api` writes it the way vLLM does. It measures nothing and shares
//! no wire type with `load`: one mistake made twice would cancel out.
//!
//! A token leaves at the first tick of tokio's timer, 1 ms apart, at or after its due time. Due
//! times are absolute, so the rounding (at most 1 ms, never early) does not add up over steps.

mod api;
mod blocks;
mod clock;
mod curve;
mod fault_table;
mod metrics;
mod noise;
mod profile;
mod request;
mod scheduler;
mod script;
mod stream;
mod tokenizer;
mod truth;
mod typed;

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod wire_tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use crate::transport::Connect;

pub use profile::{Profile, ProfileError};

use api::{Api, Hangup};
use script::Fault;
use truth::{Noted, Truth};

/// Bytes that an in-memory connection holds before its writer waits.
const PIPE: usize = 256 * 1024;

/// Runs a simulated engine with vLLM's HTTP surface.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Times, capacity and faults; a small built-in engine where absent
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Model name that is served
    #[arg(long, default_value = "sim")]
    pub model: String,
    /// Seed of noise and faults
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Log when each request was read and each token written, as JSON Lines
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
    /// Key that requests below /v1 must carry
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
}

/// Serves until a signal or a fault ends it.
///
/// Exit code: 0 after SIGTERM or SIGINT, 20 for a profile that can't be used, 1 where it can't
/// listen, and what the profile says for a crash.
pub fn main(args: Args) -> ExitCode {
    let profile = match &args.profile {
        Some(path) => Profile::load(path),
        None => Ok(Profile::default()),
    };
    let profile = match profile {
        Ok(profile) => profile,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(20);
        }
    };
    let truth = match args.truth.as_deref().map(Truth::create).transpose() {
        Ok(truth) => truth,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(20);
        }
    };
    allow_connections();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let code = match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(serve(&args, profile, truth.clone()));
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            eprintln!("error: can't start the runtime: {error}");
            1
        }
    };
    if let Some(truth) = truth {
        truth.flush();
    }
    ExitCode::from(code)
}

/// Raises the soft limit of open files to the hard one: each stream is a connection, and a shell
/// allows 1024 files. Where that is refused, connections beyond the limit wait, and the log says so.
fn allow_connections() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Serves over TCP; the exit code is what ends it.
async fn serve(args: &Args, profile: Profile, truth: Option<Truth>) -> u8 {
    let profile = Arc::new(profile);
    // The port is taken at once, and connections are refused until loading is done, as vLLM does.
    let socket = match bind(&args.host, args.port).await {
        Ok(socket) => socket,
        Err(error) => {
            eprintln!("error: can't bind {}:{}: {error}", args.host, args.port);
            return 1;
        }
    };
    eprintln!("INFO sim: loading {} (version {})", args.model, profile.version);
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("error: can't listen for signals: {error}");
            return 1;
        }
    };
    let death = profile.faults.iter().find_map(Fault::while_loading);
    let loading = death.map_or(profile.start_up, |death| death.after);
    tokio::select! {
        () = signals.next() => return 0,
        () = tokio::time::sleep(loading) => {}
    }
    if let Some(death) = death {
        death.log.iter().for_each(|line| eprintln!("{line}"));
        return death.exit_code;
    }
    let listener = match socket.listen(4096) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("error: can't listen on {}:{}: {error}", args.host, args.port);
            return 1;
        }
    };
    let (api, mut dead) = Api::start(
        Arc::clone(&profile),
        args.seed,
        &args.model,
        args.api_key.as_deref(),
        truth,
        false,
    );
    eprintln!("INFO sim: application startup complete on http://{}:{}", args.host, args.port);
    tokio::select! {
        () = signals.next() => 0,
        () = accept(listener, api, dead.clone()) => 1,
        _ = dead.wait_for(|dead| *dead) => {
            let crash = profile.faults.iter().find_map(Fault::crash);
            crash.map_or(1, |death| {
                death.log.iter().for_each(|line| eprintln!("{line}"));
                death.exit_code
            })
        }
    }
}

async fn bind(host: &str, port: u16) -> std::io::Result<TcpSocket> {
    let mut last = std::io::Error::other("the name has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        match socket.bind(address) {
            Ok(()) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn accept(listener: TcpListener, api: Api, dead: watch::Receiver<bool>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it a token waits for the peer's acknowledgement of the one before.
                let _ = stream.set_nodelay(true);
                tokio::spawn(connection(stream, api.clone(), dead.clone()));
            }
            Err(error) => {
                // Out of file handles, most likely: the next attempt may find one.
                eprintln!("WARNING sim: accept failed: {error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Serves one connection until the peer closes it or the engine dies.
async fn connection<S>(stream: S, api: Api, mut dead: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let pen = api.pen();
    let socket = Noted { socket: hyper_util::rt::TokioIo::new(stream), pen: pen.clone() };
    let service = hyper::service::service_fn(move |request| {
        let (api, pen) = (api.clone(), pen.clone());
        async move {
            let response = api.answer(request, pen).await;
            match response.extensions().get::<Hangup>() {
                Some(hangup) => Err(*hangup),
                None => Ok(response),
            }
        }
    });
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(socket, service);
    tokio::select! {
        // A broken connection is the peer's business or a scripted fault.
        _ = serving => {}
        _ = dead.wait_for(|dead| *dead) => {}
    }
}

/// Starts the simulated engine on the current runtime, served over in-memory pipes.
///
/// In a runtime with paused time everything, the profile's start-up included (503 on every path
/// until then), runs as fast as the machine can. After a scripted crash, or death while loading,
/// every pipe is closed, also those opened later. The engine ends when the last connection and
/// the returned [`Connect`] are gone.
///
/// # Panics
/// Outside a tokio runtime; so does a later call of the returned [`Connect`].
pub fn start_in_process(
    profile: Profile,
    seed: u64,
    model: &str,
    api_key: Option<&str>,
) -> Connect {
    let (api, dead) = Api::start(Arc::new(profile), seed, model, api_key, None, true);
    Arc::new(move || {
        let (near, far) = tokio::io::duplex(PIPE);
        if !*dead.borrow() {
            tokio::spawn(connection(far, api.clone(), dead.clone()));
        }
        near
    })
}

/// SIGTERM and SIGINT.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            #[cfg(unix)]
            terminate: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}
