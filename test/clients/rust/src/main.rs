//! Makes the calls that its standard input asks for with tonic (../program.ts has the protocol).

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::io::{Read, Write, stdin, stdout};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

const OPEN: u8 = 0;
const MESSAGE: u8 = 1;
const END: u8 = 2;
const CANCEL: u8 = 3;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    let _entered = runtime.enter();
    let channel = dial(env::args().nth(1).ok_or("no target")?)?;
    let mut requests: HashMap<u32, UnboundedSender<Bytes>> = HashMap::new();
    let mut calls: HashMap<u32, AbortHandle> = HashMap::new();
    let mut head = [0; 9];
    while stdin().read_exact(&mut head).is_ok() {
        let mut fields = &head[..];
        let (size, id, kind) = (fields.get_u32(), fields.get_u32(), fields.get_u8());
        let mut body = vec![0; size as usize - 5];
        stdin().read_exact(&mut body)?;
        match kind {
            OPEN => {
                let (sender, receiver) = unbounded_channel();
                requests.insert(id, sender);
                let call = call(id, channel.clone(), String::from_utf8(body)?, receiver);
                calls.insert(id, runtime.spawn(call).abort_handle());
            }
            // A call that is over takes no more: its status says why.
            MESSAGE => drop(requests.get(&id).map(|sender| sender.send(body.into()))),
            END => drop(requests.remove(&id)),
            CANCEL => {
                calls[&id].abort();
                finish(id, &Status::cancelled("given up"));
            }
            _ => return Err(format!("frame of kind {kind}").into()),
        }
    }
    Ok(())
}

fn dial(target: String) -> Result<Channel, Failure> {
    let Ok(authority) = env::var("CA") else {
        return Ok(Endpoint::from_shared(target)?.connect_lazy());
    };
    let security = ClientTlsConfig::new()
        .domain_name(env::var("SERVER_NAME")?)
        .ca_certificate(Certificate::from_pem(authority))
        .identity(Identity::from_pem(env::var("CERTIFICATE")?, env::var("KEY")?));
    Ok(Endpoint::from_shared(format!("https://{target}"))?.tls_config(security)?.connect_lazy())
}

async fn call(id: u32, channel: Channel, words: String, requests: UnboundedReceiver<Bytes>) {
    let failure = answers(id, channel, &words, requests).await.err();
    let status = failure.map_or(Status::ok(""), |failure| match failure.downcast::<Status>() {
        Ok(status) => *status,
        Err(other) => Status::unknown(other.to_string()),
    });
    finish(id, &status);
}

/// The words: how many requests and responses there are, the path, the token, and the milliseconds it may take.
async fn answers(
    id: u32,
    channel: Channel,
    words: &str,
    mut requests: UnboundedReceiver<Bytes>,
) -> Result<(), Failure> {
    let words: Vec<_> = words.split('\n').collect();
    let mut client = Grpc::new(channel);
    client.ready().await?;
    let mut head = Request::new(());
    head.metadata_mut().insert("svc-instance-token", words[2].parse()?);
    if let Ok(timeout_ms) = words[3].parse() {
        head.set_timeout(Duration::from_millis(timeout_ms));
    }
    let path = words[1].parse()?;
    let answers = if words[0].starts_with("stream") {
        client.streaming(head.map(|()| UnboundedReceiverStream::new(requests)), path, Raw).await
    } else {
        let request = requests.recv().await.ok_or("no request")?;
        client.server_streaming(head.map(|()| request), path, Raw).await
    };
    let mut answers = answers?.into_inner();
    while let Some(answer) = answers.message().await? {
        write(id, MESSAGE, &answer);
    }
    Ok(())
}

/// Tells the status: its code, its message and its bytes with all details.
fn finish(id: u32, status: &Status) {
    let code = match (status.code(), status.message()) {
        // What tonic itself says where the deadline passes before the answer's headers are there.
        (Code::Cancelled, "Timeout expired") => Code::DeadlineExceeded,
        (code, _) => code,
    };
    let message = status.message().as_bytes();
    let mut body = vec![code as u8];
    body.put_u16(message.len() as u16);
    write(id, END, &[&body, message, status.details()].concat());
}

fn write(id: u32, kind: u8, body: &[u8]) {
    let mut frame = Vec::with_capacity(body.len() + 9);
    frame.put_u32(body.len() as u32 + 5);
    frame.put_u32(id);
    frame.put_u8(kind);
    frame.put_slice(body);
    let mut output = stdout().lock();
    output.write_all(&frame).and_then(|()| output.flush()).expect("standard output takes it");
}

/// Hands messages over as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;
    fn encoder(&mut self) -> Raw {
        Raw
    }
    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
