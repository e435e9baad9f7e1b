//! Messages on a socket: a header that says what they belong to, and bytes.

use std::io::{self, Read, Write};

/// What a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A rank says which one it is.
    Hello,
    SumF32,
    SumF64,
    SumBf16,
    Broadcast,
    Gather,
    /// Rank 0 says why there is no answer.
    Fault,
}

const KINDS: [Kind; 7] = [
    Kind::Hello,
    Kind::SumF32,
    Kind::SumF64,
    Kind::SumBf16,
    Kind::Broadcast,
    Kind::Gather,
    Kind::Fault,
];

impl Kind {
    /// Whether all ranks send equally much.
    pub(super) fn is_sum(self) -> bool {
        matches!(self, Self::SumF32 | Self::SumF64 | Self::SumBf16)
    }

    /// What a rank does, for messages.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Hello => "joins",
            Self::SumF32 => "sums f32",
            Self::SumF64 => "sums f64",
            Self::SumBf16 => "sums bf16",
            Self::Broadcast => "broadcasts",
            Self::Gather => "gathers",
            Self::Fault => "fails",
        }
    }
}

/// A message.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// Number of the call that it belongs to.
    pub(super) call: u64,
    pub(super) bytes: Vec<u8>,
}

/// Kind, call and length, 8 bytes each.
const HEADER: usize = 24;

/// Writes a message.
pub(super) fn send(to: &mut impl Write, kind: Kind, call: u64, bytes: &[u8]) -> io::Result<()> {
    let mut header = [0; HEADER];
    header[0] = kind as u8;
    header[8..16].copy_from_slice(&call.to_le_bytes());
    header[16..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    to.write_all(&header)?;
    to.write_all(bytes)
}

/// Reads a message into `buffer`, whose content is dropped.
pub(super) fn receive(from: &mut impl Read, mut buffer: Vec<u8>) -> io::Result<Frame> {
    let mut header = [0; HEADER];
    from.read_exact(&mut header)?;
    let number = |at: usize| header[at..at + 8].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
    let (kind, call, length) = (number(0), number(8), number(16));
    let kind = usize::try_from(kind).ok().and_then(|kind| KINDS.get(kind).copied());
    let kind = kind.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    buffer.clear();
    // Grows as bytes come, whatever the header promises.
    if from.take(length).read_to_end(&mut buffer)? as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Frame { kind, call, bytes: buffer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_as_they_went() {
        for (at, &kind) in KINDS.iter().enumerate() {
            assert_eq!(kind as usize, at, "{kind:?}");
            let mut sent = Vec::new();
            send(&mut sent, kind, 1 << 40, b"bytes").unwrap();
            let got = receive(&mut sent.as_slice(), b"old content".to_vec()).unwrap();
            assert_eq!((got.kind, got.call, got.bytes.as_slice()), (kind, 1 << 40, &b"bytes"[..]));
        }
    }

    #[test]
    fn cut_and_foreign_messages_are_errors() {
        let mut sent = Vec::new();
        send(&mut sent, Kind::Gather, 7, b"bytes").unwrap();
        for length in 0..sent.len() {
            assert!(receive(&mut &sent[..length], Vec::new()).is_err(), "{length} bytes");
        }
        sent[0] = KINDS.len() as u8;
        assert!(receive(&mut sent.as_slice(), Vec::new()).is_err());
        let mut huge = vec![0; HEADER];
        huge[16..].fill(0xff);
        assert!(receive(&mut huge.as_slice(), Vec::new()).is_err());
    }
}
