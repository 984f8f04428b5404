//! The cases of the services beside GuestAgent.

use crate::cases::{path_in, same, write};
use crate::guest::{Failure, Guest};
use crate::schema::tunnel_frame::Frame;
use crate::schema::{
    ListRequest, MakeFolderRequest, RemoveRequest, RenameRequest, TunnelEnd, TunnelFrame, TunnelOpen, WriteFileHeader,
    tunnel_open::Target,
};

pub async fn folders(guest: &Guest) -> Result<(), Failure> {
    let mut tree = guest.tree.clone();
    let folder = path_in(guest, "rust-folder");
    let (before, after) = (format!("{folder}/before"), format!("{folder}/after"));
    let path: Vec<u8> = folder.into();
    let making = MakeFolderRequest { path: path.clone(), ..Default::default() };
    tree.make_folder(guest.request(making)).await?;
    write(guest, WriteFileHeader { path: before.clone(), ..Default::default() }, b"content").await?;
    let renaming = RenameRequest { path: before.into(), new_path: after.into(), ..Default::default() };
    tree.rename(guest.request(renaming)).await?;
    let listing = ListRequest { path: path.clone(), ..Default::default() };
    let mut batches = tree.list(guest.request(listing)).await?.into_inner();
    let mut names = Vec::new();
    while let Some(batch) = batches.message().await? {
        names.extend(batch.entries.into_iter().map(|entry| entry.name));
    }
    same(vec![b"after".to_vec()], names)?;
    let removal = RemoveRequest { path, recursive: true, ..Default::default() };
    same(2, tree.remove(guest.request(removal)).await?.into_inner().removed)
}

pub async fn tunnel(guest: &Guest) -> Result<(), Failure> {
    let target = Some(Target::Path(path_in(guest, "echo.sock")));
    let open = Frame::Open(TunnelOpen { target, ..Default::default() });
    let sent = [open, Frame::Data(b"hello".to_vec()), Frame::End(TunnelEnd {})].map(|frame| TunnelFrame { frame: Some(frame) });
    let mut frames = guest.tunnel.clone().open(guest.request(tokio_stream::iter(sent))).await?.into_inner();
    let (mut got, mut is_ended) = (Vec::new(), false);
    while let Some(message) = frames.message().await? {
        match message.frame {
            Some(Frame::Data(bytes)) => got.extend(bytes),
            Some(Frame::End(_)) => is_ended = true,
            _ => (),
        }
    }
    same((b"hello".to_vec(), true), (got, is_ended))
}
