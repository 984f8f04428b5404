//! Calls Health with tonic and prints the status. Its environment has the certificates.

use std::env;
use std::error::Error;

use tonic::client::Grpc;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut security = ClientTlsConfig::new()
        .domain_name("localhost")
        .ca_certificate(Certificate::from_pem(env::var("CA")?));
    let certificate = env::var("CERTIFICATE")?;
    if !certificate.is_empty() {
        security = security.identity(Identity::from_pem(certificate, env::var("KEY")?));
    }
    let target = format!("https://{}", env::args().nth(1).ok_or("no target")?);
    let mut client = Grpc::new(Endpoint::from_shared(target)?.tls_config(security)?.connect_lazy());
    let codec = ProstCodec::<(), ()>::default();
    let path = "/svc.guest.v1alpha1.GuestAgent/Health".parse()?;
    let status = match client.ready().await {
        Ok(()) => client.unary(Request::new(()), path, codec).await.err().unwrap_or(Status::ok("")),
        Err(error) => Status::from_error(error.into()),
    };
    println!("{} {status:?}", status.code() as i32);
    Ok(())
}
