//! Runs the cases of the transport suite with tonic, and prints a line for each: "ok NAME" or "FAILED NAME: why". The
//! token is in GUEST_TOKEN.

mod cases;
mod guest;
mod services;

use std::{collections::HashMap, env, process::ExitCode};

use guest::{Dial, Failure, Guest};

/// The schema, generated; its messages for the agent's own configuration have no use here.
#[allow(dead_code)]
mod schema {
    tonic::include_proto!("svc.guest.v1alpha1");
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run())) {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode, Failure> {
    let options = options()?;
    let option = |name: &str| options.get(name).ok_or(format!("--{name} is missing")).cloned();
    let dial = Dial {
        target: option("target")?,
        certificates: options.get("certificates").map(Into::into),
        server_name: options.get("server-name").cloned().unwrap_or_default(),
    };
    let guest = Guest::new(dial, env::var("GUEST_TOKEN")?, option("folder")?.into(), option("pause")?)?;
    Ok(cases::run_all(&guest).await)
}

/// `--name value` pairs.
fn options() -> Result<HashMap<String, String>, Failure> {
    let mut words = env::args().skip(1);
    let mut options = HashMap::new();
    while let Some(word) = words.next() {
        let name = word.strip_prefix("--").ok_or(format!("{word:?} is no option"))?;
        options.insert(name.to_owned(), words.next().ok_or(format!("{word} needs a value"))?);
    }
    Ok(options)
}
