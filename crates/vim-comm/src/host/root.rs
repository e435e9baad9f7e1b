//! Rank 0: reads from all others at once, and answers them.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use serde::{Deserialize, Serialize};

use super::frame::{Frame, Kind, receive, send};
use crate::error::CommError;

/// The sockets of rank 0.
pub(super) struct Root {
    /// Of ranks 1, 2, ….
    pub(super) peers: Vec<Peer>,
    /// What the peers' threads read, each with its rank; `None` at a socket's end.
    frames: Receiver<(usize, Option<Frame>)>,
}

/// Another rank.
pub(super) struct Peer {
    pub(super) stream: UnixStream,
    /// Buffers for its thread to read into.
    buffers: Sender<Vec<u8>>,
}

/// Why rank 0 has no answer.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum Fault {
    Lost(usize),
    Parted(String),
}

impl From<Fault> for CommError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Lost(rank) => Self::Lost { rank },
            Fault::Parted(why) => Self::Parted { why },
        }
    }
}

impl Root {
    /// Begins to read from the sockets of ranks 1, 2, …. `folder` is named where that fails.
    pub(super) fn new(streams: Vec<UnixStream>, folder: &Path) -> Result<Self, CommError> {
        let (sender, frames) = channel();
        let peer = |(index, stream): (usize, UnixStream)| {
            let (buffers, spare) = channel();
            let (reader, sender) = (stream.try_clone()?, sender.clone());
            let thread = thread::Builder::new().name(format!("vim-comm-{}", index + 1));
            thread.spawn(move || read(index + 1, reader, &sender, &spare))?;
            Ok(Peer { stream, buffers })
        };
        let peers = streams.into_iter().enumerate().map(peer).collect::<Result<_, _>>();
        Ok(Self { peers: peers.map_err(CommError::io("read from sockets of", folder))?, frames })
    }

    /// What ranks 1, 2, … send for this call.
    pub(super) fn collect(
        &mut self,
        kind: Kind,
        call: u64,
        own: &[u8],
    ) -> Result<Vec<Frame>, CommError> {
        let mut frames: Vec<Option<Frame>> = Vec::new();
        frames.resize_with(self.peers.len(), || None);
        while frames.iter().any(Option::is_none) {
            let fault = match self.frames.recv() {
                Ok((rank, Some(frame))) => match parted(rank, &frame, kind, call, own) {
                    Some(why) => Fault::Parted(why),
                    None => {
                        frames[rank - 1] = Some(frame);
                        continue;
                    }
                },
                Ok((rank, None)) => Fault::Lost(rank),
                // Unreachable: each thread says when it ends.
                Err(_) => Fault::Lost(1),
            };
            return Err(self.fail(fault));
        }
        Ok(frames.into_iter().flatten().collect())
    }

    /// Gives the answer to all others, and the buffers back to their threads.
    pub(super) fn answer(
        &mut self,
        kind: Kind,
        call: u64,
        bytes: &[u8],
        frames: Vec<Frame>,
    ) -> Result<(), CommError> {
        for (peer, frame) in self.peers.iter_mut().zip(frames) {
            // A thread that has ended needs no buffer.
            let _ = peer.buffers.send(frame.bytes);
        }
        let mut sent = self.peers.iter_mut().map(|peer| send(&mut peer.stream, kind, call, bytes));
        match sent.position(|sent| sent.is_err()) {
            None => Ok(()),
            Some(lost) => Err(self.fail(Fault::Lost(lost + 1))),
        }
    }

    /// Tells the others.
    fn fail(&mut self, fault: Fault) -> CommError {
        let text = serde_json::to_vec(&fault).unwrap_or_default();
        for peer in &mut self.peers {
            // One of them may be the one that is gone.
            let _ = send(&mut peer.stream, Kind::Fault, 0, &text);
        }
        fault.into()
    }
}

/// A peer's thread.
fn read(
    rank: usize,
    mut stream: UnixStream,
    frames: &Sender<(usize, Option<Frame>)>,
    buffers: &Receiver<Vec<u8>>,
) {
    while let Ok(frame) = receive(&mut stream, buffers.try_recv().unwrap_or_default()) {
        if frames.send((rank, Some(frame))).is_err() {
            return;
        }
    }
    let _ = frames.send((rank, None));
}

/// How a rank's call differs from that of rank 0.
fn parted(rank: usize, frame: &Frame, kind: Kind, call: u64, own: &[u8]) -> Option<String> {
    let does = |kind: Kind, call: u64, bytes: usize| {
        let size = if kind.is_sum() { format!(" in {bytes} bytes") } else { String::new() };
        format!("{}{size} in its call {call}", kind.verb())
    };
    let equal = (frame.kind, frame.call) == (kind, call)
        && (!kind.is_sum() || frame.bytes.len() == own.len());
    let (own, other) =
        (does(kind, call, own.len()), does(frame.kind, frame.call, frame.bytes.len()));
    (!equal).then(|| format!("rank 0 {own}, rank {rank} {other}"))
}
