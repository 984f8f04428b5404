//! The suite's cases by the names of its columns; the duties come last because they end the connection.

use std::{fmt::Debug, process::ExitCode, time::Duration};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::guest::{Failure, Guest, with_token};
use crate::services::{folders, tunnel};
use crate::schema::{
    ExecStart, FileType, HealthRequest, HookKind, ReadFileRequest, RestoreDutiesRequest, RunHookRequest, StatPathRequest,
    Terminal, WriteFileHeader, WriteFileRequest, WriteFileResponse, write_file_request::Message,
};

const FILE_BYTES: usize = 8 << 20;
const CHUNK_BYTES: usize = 256 << 10;
const SIGUSR1: u32 = 10;
/// Time for one case: the machine may be busy.
const CASE_LIMIT: Duration = Duration::from_secs(60);

/// Runs all, one after another, and prints how each went.
pub async fn run_all(guest: &Guest) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    macro_rules! run {
        ($($name:literal $case:ident),*) => {$(
            let outcome = tokio::time::timeout(CASE_LIMIT, $case(guest)).await;
            match outcome.map_err(Failure::from).flatten() {
                Ok(()) => println!("ok {}", $name),
                Err(problem) => {
                    println!("FAILED {}: {}", $name, problem.to_string().replace('\n', " "));
                    code = ExitCode::FAILURE;
                }
            }
        )*};
    }
    run!(
        "health" health, "exec" exec_with_input, "terminal" terminal, "signal" signal, "files" files, "stat" stat,
        "folders" folders, "tunnel" tunnel, "hook" hook, "errors" errors_with_details, "token" token, "cancel" cancel,
        "deadline" deadline, "duties" duties
    );
    code
}

async fn health(guest: &Guest) -> Result<(), Failure> {
    let health = guest.agent.clone().health(guest.request(HealthRequest {})).await?.into_inner();
    same((true, true, true), (health.alive, health.ready, health.guest_time.is_some()))
}

async fn exec_with_input(guest: &Guest) -> Result<(), Failure> {
    let start = ExecStart { stdin: true, ..shell("tr a-z A-Z; echo careful >&2; exit 3") };
    let mut command = guest.exec(start).await?;
    command.write("hello ").await?;
    command.write("sandbox").await?;
    command.close_stdin();
    let exit = command.wait().await?;
    same((&b"HELLO SANDBOX"[..], &b"careful\n"[..]), (&command.stdout, &command.stderr))?;
    same((3, 0, true), (exit.code, exit.signal, exit.output_complete))
}

async fn terminal(guest: &Guest) -> Result<(), Failure> {
    let terminal = Some(Terminal { cols: 100, rows: 30, term: String::new() });
    let script = "test -t 0 && stty size && read line && stty size";
    let mut command = guest.exec(ExecStart { terminal, ..shell(script) }).await?;
    command.until("30 100").await?;
    command.resize(120, 40).await?;
    command.write("go\n").await?;
    command.until("40 120").await?;
    same(0, command.wait().await?.code)
}

async fn signal(guest: &Guest) -> Result<(), Failure> {
    let script = "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done";
    let mut command = guest.exec(shell(script)).await?;
    command.until("ready").await?;
    command.signal(SIGUSR1).await?;
    command.until("caught").await?;
    same(7, command.wait().await?.code)
}

async fn files(guest: &Guest) -> Result<(), Failure> {
    let path = path_in(guest, "rust/content");
    let mut content = vec![0; FILE_BYTES];
    SystemRandom::new().fill(&mut content).map_err(|_| "no random bytes")?;
    let sum = digest(&SHA256, &content);
    let header = WriteFileHeader {
        path: path.clone(),
        sha256: Some(sum.as_ref().to_vec()),
        create_parents: true,
        ..Default::default()
    };
    let written = write(guest, header, &content).await?;
    same((FILE_BYTES as u64, sum.as_ref()), (written.bytes_written, &written.sha256))?;
    let request = ReadFileRequest { path, ..Default::default() };
    let mut chunks = guest.agent.clone().read_file(guest.request(request)).await?.into_inner();
    let mut read = Vec::new();
    while let Some(chunk) = chunks.message().await? {
        read.extend(chunk.data);
    }
    same(sum.as_ref(), digest(&SHA256, &read).as_ref())
}

pub async fn write(guest: &Guest, header: WriteFileHeader, content: &[u8]) -> Result<WriteFileResponse, Status> {
    let data = content.chunks(CHUNK_BYTES).map(|chunk| Message::Data(chunk.to_vec()));
    let messages: Vec<_> = [Message::Header(header)]
        .into_iter()
        .chain(data)
        .map(|message| WriteFileRequest { message: Some(message), ..Default::default() })
        .collect();
    let answer = guest.agent.clone().write_file(guest.request(tokio_stream::iter(messages))).await?;
    Ok(answer.into_inner())
}

async fn stat(guest: &Guest) -> Result<(), Failure> {
    let path = path_in(guest, "rust-attributes");
    write(guest, WriteFileHeader { path: path.clone(), mode: Some(0o604), ..Default::default() }, b"twelve bytes").await?;
    let request = StatPathRequest { path, ..Default::default() };
    let answer = guest.agent.clone().stat_path(guest.request(request)).await?.into_inner();
    same(
        (FileType::Regular, 12, 0o604, true),
        (answer.r#type(), answer.size, answer.mode, answer.mtime.is_some()),
    )
}

async fn hook(guest: &Guest) -> Result<(), Failure> {
    let run = async |kind: HookKind| {
        let request = RunHookRequest { kind: kind.into(), timeout_ms: 0, ..Default::default() };
        guest.agent.clone().run_hook(guest.request(request)).await
    };
    let before = run(HookKind::PreSnapshot).await?.into_inner();
    let after = run(HookKind::PostRestore).await?.into_inner();
    same(
        (true, 3, "at rest\n", "a word\n", false),
        (before.ran, before.exit_code, &before.stdout_tail, &before.stderr_tail, after.ran),
    )
}

async fn errors_with_details(guest: &Guest) -> Result<(), Failure> {
    let start = ExecStart { args: vec!["no-such-command".into()], ..Default::default() };
    let command = match guest.exec(start).await {
        Ok(mut command) => command.wait().await.map(drop),
        Err(problem) => Err(problem),
    };
    failed(status_of(command)?, Code::NotFound, "EXEC_NOT_FOUND", &[("errno", "ENOENT")])?;
    let path = path_in(guest, "no/such/file");
    let request = StatPathRequest { path: path.clone(), ..Default::default() };
    let no_path = guest.agent.clone().stat_path(guest.request(request)).await.map(drop);
    failed(no_path.err(), Code::NotFound, "PATH_NOT_FOUND", &[("path", &path), ("errno", "ENOENT")])?;
    let sha256 = Some(digest(&SHA256, b"else").as_ref().to_vec());
    let header = WriteFileHeader { path: path_in(guest, "f"), sha256, ..Default::default() };
    let corrupt = write(guest, header, b"this").await.map(drop);
    failed(corrupt.err(), Code::DataLoss, "CHECKSUM_MISMATCH", &[])
}

async fn token(guest: &Guest) -> Result<(), Failure> {
    let request = with_token(HealthRequest {}, "not-the-token-0123456789".parse()?);
    let refused = guest.agent.clone().health(request).await.map(drop);
    failed(refused.err(), Code::Unauthenticated, "UNAUTHENTICATED", &[])
}

async fn cancel(guest: &Guest) -> Result<(), Failure> {
    let start = ExecStart { args: vec!["sleep".into(), guest.pause.clone()], ..Default::default() };
    let mut command = guest.exec(start).await?;
    same(true, command.next().await?)?;
    drop(command);
    health(guest).await
}

async fn deadline(guest: &Guest) -> Result<(), Failure> {
    let start = ExecStart { args: vec!["sleep".into(), guest.pause.clone()], ..Default::default() };
    let outcome = match guest.exec_within(start, Some(Duration::from_millis(500))).await {
        Ok(mut command) => command.wait().await.map(drop),
        Err(problem) => Err(problem),
    };
    let status = status_of(outcome)?.ok_or("the call ended with OK")?;
    // What tonic itself says where the deadline passes before the answer's headers are there.
    if (status.code(), status.message()) == (Code::Cancelled, "Timeout expired") {
        return Ok(());
    }
    same(Code::DeadlineExceeded, status.code())
}

async fn duties(guest: &Guest) -> Result<(), Failure> {
    let mut entropy = vec![0; 64];
    SystemRandom::new().fill(&mut entropy).map_err(|_| "no random bytes")?;
    let request = RestoreDutiesRequest { entropy, host_time: None };
    let done = guest.agent.clone().run_restore_duties(guest.request(request)).await?.into_inner();
    same((64, false), (done.entropy_bytes_mixed, done.clock_stepped))?;
    same(done.degraded.is_empty(), done.entropy_credited)?;
    let again = guest.again()?;
    let request = again.request(RestoreDutiesRequest::default());
    let refused = again.agent.clone().run_restore_duties(request).await.map(drop);
    failed(refused.err(), Code::InvalidArgument, "INVALID_FIELD", &[("field", "entropy")])
}

fn shell(script: &str) -> ExecStart {
    ExecStart { args: ["sh", "-c", script].map(Into::into).to_vec(), ..Default::default() }
}

pub fn path_in(guest: &Guest, name: &str) -> String {
    guest.folder.join(name).to_string_lossy().into_owned()
}

pub fn same<Expected: PartialEq<Actual> + Debug, Actual: Debug>(expected: Expected, actual: Actual) -> Result<(), Failure> {
    if expected == actual { Ok(()) } else { Err(format!("got {actual:?} instead of {expected:?}").into()) }
}

/// The status that a call ended with; none: OK. Another failure is the case's own.
fn status_of(outcome: Result<(), Failure>) -> Result<Option<Status>, Failure> {
    match outcome {
        Ok(()) => Ok(None),
        Err(problem) => problem.downcast::<Status>().map(|status| Some(*status)),
    }
}

/// A call must have failed in this way, with these entries among its metadata.
fn failed(status: Option<Status>, code: Code, reason: &str, metadata: &[(&str, &str)]) -> Result<(), Failure> {
    let status = status.ok_or("the call ended with OK")?;
    same(code, status.code()).map_err(|problem| format!("{problem}: {}", status.message()))?;
    let info = status.get_details_error_info().ok_or("the status has no ErrorInfo")?;
    same(("svc.guest", reason), (&info.domain, &info.reason))?;
    for (name, value) in metadata {
        same(Some(*value), info.metadata.get(*name).map(String::as_str))?;
    }
    Ok(())
}
