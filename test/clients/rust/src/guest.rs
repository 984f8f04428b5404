//! A guest agent as the cases use it.

use std::{error::Error, fs, path::PathBuf, time::Duration};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Streaming, metadata::AsciiMetadataValue};

use crate::schema::exec_frame::Frame;
use crate::schema::file_tree_client::FileTreeClient;
use crate::schema::guest_agent_client::GuestAgentClient;
use crate::schema::tunnel_client::TunnelClient;
use crate::schema::{ExecExit, ExecFrame, ExecSignal, ExecStart, TerminalSize};

/// Why a case failed.
pub type Failure = Box<dyn Error>;

/// Frames of a command that may wait to be sent.
const QUEUED_FRAMES: usize = 8;

/// How the agent is reached.
#[derive(Clone)]
pub struct Dial {
    /// host:port or unix:/path.
    pub target: String,
    /// Folder of ca.pem, client.pem and client.key; none: no TLS.
    pub certificates: Option<PathBuf>,
    /// Name in the agent's certificate.
    pub server_name: String,
}

impl Dial {
    fn channel(&self) -> Result<Channel, Failure> {
        let Some(folder) = &self.certificates else {
            return Ok(Endpoint::from_shared(self.target.clone())?.connect_lazy());
        };
        let read = |name| fs::read(folder.join(name));
        let security = ClientTlsConfig::new()
            .domain_name(&self.server_name)
            .ca_certificate(Certificate::from_pem(read("ca.pem")?))
            .identity(Identity::from_pem(read("client.pem")?, read("client.key")?));
        Ok(Endpoint::from_shared(format!("https://{}", self.target))?.tls_config(security)?.connect_lazy())
    }
}

/// Calls of one connection, each with the token.
pub struct Guest {
    pub agent: GuestAgentClient<Channel>,
    pub tree: FileTreeClient<Channel>,
    pub tunnel: TunnelClient<Channel>,
    pub folder: PathBuf,
    /// Argument of sleep(1) that marks the commands which the cases give up.
    pub pause: String,
    token: AsciiMetadataValue,
    dial: Dial,
}

impl Guest {
    pub fn new(dial: Dial, token: String, folder: PathBuf, pause: String) -> Result<Self, Failure> {
        Self::over(dial, token.parse()?, folder, pause)
    }

    /// The same over another connection.
    pub fn again(&self) -> Result<Self, Failure> {
        Self::over(self.dial.clone(), self.token.clone(), self.folder.clone(), self.pause.clone())
    }

    fn over(dial: Dial, token: AsciiMetadataValue, folder: PathBuf, pause: String) -> Result<Self, Failure> {
        let channel = dial.channel()?;
        let agent = GuestAgentClient::new(channel.clone());
        let tree = FileTreeClient::new(channel.clone());
        Ok(Self { agent, tree, tunnel: TunnelClient::new(channel), folder, pause, token, dial })
    }

    pub fn request<Message>(&self, message: Message) -> Request<Message> {
        with_token(message, self.token.clone())
    }

    pub async fn exec(&self, start: ExecStart) -> Result<Command, Failure> {
        self.exec_within(start, None).await
    }

    /// Starts a command whose call has a deadline.
    pub async fn exec_within(&self, start: ExecStart, timeout: Option<Duration>) -> Result<Command, Failure> {
        let (sender, receiver) = mpsc::channel(QUEUED_FRAMES);
        let mut request = self.request(ReceiverStream::new(receiver));
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        sender.send(ExecFrame { frame: Some(Frame::Start(start)) }).await?;
        let frames = self.agent.clone().exec(request).await?.into_inner();
        Ok(Command { requests: Some(sender), frames, stdout: Vec::new(), stderr: Vec::new(), exit: None })
    }
}

/// A request that carries a token.
pub fn with_token<Message>(message: Message, token: AsciiMetadataValue) -> Request<Message> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("svc-instance-token", token);
    request
}

/// A running command, frame by frame. Dropping it cancels the call.
pub struct Command {
    requests: Option<mpsc::Sender<ExecFrame>>,
    frames: Streaming<ExecFrame>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit: Option<ExecExit>,
}

impl Command {
    pub async fn write(&self, text: &str) -> Result<(), Failure> {
        self.send(Frame::Stdin(text.into())).await
    }

    pub async fn resize(&self, cols: u32, rows: u32) -> Result<(), Failure> {
        self.send(Frame::Resize(TerminalSize { cols, rows })).await
    }

    pub async fn signal(&self, number: u32) -> Result<(), Failure> {
        self.send(Frame::Signal(ExecSignal { number })).await
    }

    /// Half-closes the call.
    pub fn close_stdin(&mut self) {
        self.requests = None;
    }

    /// Takes in one frame; false at the end of a call that ended with OK.
    pub async fn next(&mut self) -> Result<bool, Failure> {
        let Some(message) = self.frames.message().await? else { return Ok(false) };
        match message.frame {
            Some(Frame::Started(_)) => (),
            Some(Frame::Stdout(bytes)) => self.stdout.extend(bytes),
            Some(Frame::Stderr(bytes)) => self.stderr.extend(bytes),
            Some(Frame::Exit(exit)) => self.exit = Some(exit),
            other => return Err(format!("a frame that only clients send: {other:?}").into()),
        }
        Ok(true)
    }

    pub async fn until(&mut self, text: &str) -> Result<(), Failure> {
        while !String::from_utf8_lossy(&self.stdout).contains(text) {
            if !self.next().await? {
                return Err(format!("ended before {text:?}").into());
            }
        }
        Ok(())
    }

    /// Reads to the end of the call.
    pub async fn wait(&mut self) -> Result<ExecExit, Failure> {
        while self.next().await? {}
        self.exit.ok_or("the call ended without an exit frame".into())
    }

    async fn send(&self, frame: Frame) -> Result<(), Failure> {
        let requests = self.requests.as_ref().ok_or("the call is half-closed")?;
        Ok(requests.send(ExecFrame { frame: Some(frame) }).await?)
    }
}
