//! Generates the schema's messages and client from SCHEMA_DESCRIPTORS, a file that `buf build` made: no protoc is needed.

use std::{env, error::Error, fs};

use prost::Message;
use tonic_prost_build::FileDescriptorSet;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=SCHEMA_DESCRIPTORS");
    let path = env::var("SCHEMA_DESCRIPTORS").map_err(|_| "SCHEMA_DESCRIPTORS names no file of descriptors")?;
    println!("cargo::rerun-if-changed={path}");
    let descriptors = FileDescriptorSet::decode(&*fs::read(path)?)?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
