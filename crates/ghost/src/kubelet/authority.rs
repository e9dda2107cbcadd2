//! A way around what keeps the kubelet from calling this server.
//!
//! The kubelet dials the registration socket by its bare path, and its gRPC library puts that path,
//! percent-encoded, into the pseudo-header `:authority` of each request. Here it is no authority by
//! the grammar of URIs, so that the HTTP/2 library resets the stream before anybody sees the call.
//! Nobody reads the value; so it is replaced by letters on its way in.
//!
//! The replacement has the length of what it replaces, so that nothing around it changes: it is
//! found by walking the compressed header block (RFC 7541, section 6) by lengths alone. Only the
//! size that the value has in the dynamic table may differ on both sides, which matters after some
//! dozens of requests on one connection; the kubelet makes two.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

/// What a client says first (RFC 9113, section 3.4), in bytes.
const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
/// The type of a HEADERS frame, and its flags.
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The longest frame that a peer may send unless it is told otherwise, which it is not.
const MAX_FRAME: usize = 16_384;
/// The name `:authority` in the static table.
const AUTHORITY: usize = 1;

/// A connection from the kubelet whose requests have an authority that can be read.
#[derive(Debug)]
pub(super) struct Readable<S = UnixStream> {
    stream: S,
    filter: Filter,
}

impl<S> Readable<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, filter: Filter::new() }
    }
}

impl<S: Send + Sync + Unpin> Connected for Readable<S> {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl<S: AsyncRead + Unpin> AsyncRead for Readable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.filter.released() == 0 {
            let mut bytes = [0; 4096];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                // The end, perhaps within a frame, which is not for this to judge.
                this.filter.release_all();
                break;
            }
            this.filter.push(read.filled());
        }
        this.filter.take(into);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Readable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Holds back what it has not understood yet: a HEADERS frame is released when it is there whole.
#[derive(Debug)]
struct Filter {
    /// What came and was not taken.
    bytes: Vec<u8>,
    /// How much of it may be taken.
    released: usize,
    /// How much of what comes next is of no interest.
    passing: usize,
}

impl Filter {
    fn new() -> Self {
        Self { bytes: Vec::new(), released: 0, passing: PREFACE }
    }

    fn released(&self) -> usize {
        self.released
    }

    fn release_all(&mut self) {
        self.released = self.bytes.len();
    }

    fn take(&mut self, into: &mut ReadBuf<'_>) {
        let count = self.released.min(into.remaining());
        into.put_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        self.released -= count;
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        loop {
            let held = &mut self.bytes[self.released..];
            let passing = self.passing.min(held.len());
            self.passing -= passing;
            self.released += passing;
            let held = &mut held[passing..];
            let Some((header, rest)) = held.split_at_mut_checked(FRAME_HEADER) else { return };
            let length =
                usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
            let (kind, flags) = (header[3], header[4]);
            if kind == HEADERS && length <= MAX_FRAME {
                let Some(payload) = rest.get_mut(..length) else { return };
                // What is malformed is left as it is, for the server to refuse.
                let _ = rewrite(payload, flags);
            }
            self.passing = FRAME_HEADER + length;
        }
    }
}

/// Overwrites the value of `:authority` in the payload of a HEADERS frame with these flags, as far
/// as the payload is well-formed.
fn rewrite(payload: &mut [u8], flags: u8) -> Option<()> {
    let mut end = payload.len();
    let mut at = 0;
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*payload.first()?))?;
        at += 1;
    }
    if flags & PRIORITY != 0 {
        at += 5;
    }
    let mut block = payload.get_mut(at..end)?;
    while let Some(first) = block.first().copied() {
        // The bits that tell the kinds of fields apart, and how many are left to a number.
        let (is_literal, bits) = match first {
            0x80.. => (false, 7),
            0x40.. => (true, 6),
            0x20.. => (false, 5),
            _ => (true, 4),
        };
        let (name, rest) = number(block, bits)?;
        block = rest;
        if !is_literal {
            continue;
        }
        if name == 0 {
            let (length, rest) = number(block, 7)?;
            block = rest.get_mut(length..)?;
        }
        if name == AUTHORITY {
            // No Huffman code: letters stand for themselves.
            *block.first_mut()? &= 0x7f;
        }
        let (length, rest) = number(block, 7)?;
        let (value, rest) = rest.split_at_mut_checked(length)?;
        if name == AUTHORITY {
            value.fill(b'a');
        }
        block = rest;
    }
    Some(())
}

/// Reads a number that begins in so many low bits of the first byte (RFC 7541, section 5.1).
fn number(block: &mut [u8], bits: u32) -> Option<(usize, &mut [u8])> {
    let (first, mut rest) = block.split_first_mut()?;
    let most = (1 << bits) - 1;
    let mut value = usize::from(*first) & most;
    if value < most {
        return Some((value, rest));
    }
    // More than three further bytes would be longer than any frame.
    for shift in [0, 7, 14] {
        let (byte, after) = rest.split_first_mut()?;
        value += (usize::from(*byte) & 0x7f) << shift;
        rest = after;
        if *byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What comes out when it goes in in pieces of these lengths, over and over.
    fn filtered(bytes: &[u8], lengths: &[usize]) -> Vec<u8> {
        let mut filter = Filter::new();
        let mut out = Vec::new();
        let mut rest = bytes;
        for length in lengths.iter().cycle() {
            let (piece, after) = rest.split_at((*length).min(rest.len()));
            filter.push(piece);
            rest = after;
            let mut space = vec![0; filter.released()];
            filter.take(&mut ReadBuf::new(&mut space));
            out.extend(space);
            if rest.is_empty() {
                break;
            }
        }
        filter.release_all();
        out.extend(filter.bytes);
        out
    }

    #[test]
    fn the_value_alone_is_replaced_whatever_stands_before_it() {
        // Padding of two bytes and a priority; a size update, an indexed field, a name and value of
        // the client's own, and the authority with a Huffman code.
        let head = [2, 0, 0, 0, 0, 0, 0x3f, 0x05, 0x82, 0x40, 2, b't', b'e', 1, b'x', 0x41];
        let mut payload = [&head[..], &[0x83, 0xff, 0xee, 0xdd, 0x86, 0, 0]].concat();
        let expected = [&head[..], &[3, b'a', b'a', b'a', 0x86, 0, 0]].concat();
        assert_eq!(rewrite(&mut payload, PADDED | PRIORITY), Some(()));
        assert_eq!(payload, expected);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_or_made_and_pieces_do_not_matter(
            bytes in prop::collection::vec(prop_oneof![Just(0), Just(1), Just(0x41), 0_u8..], 0..200),
            lengths in prop::collection::vec(1_usize..40, 1..8),
        ) {
            let whole = filtered(&bytes, &[bytes.len().max(1)]);
            prop_assert_eq!(whole.len(), bytes.len());
            prop_assert_eq!(filtered(&bytes, &lengths), whole);
        }

        #[test]
        fn any_payload_is_taken_without_a_panic(
            mut payload in prop::collection::vec(0_u8.., 0..80),
            flags in 0_u8..,
        ) {
            let length = payload.len();
            let _ = rewrite(&mut payload, flags);
            prop_assert_eq!(payload.len(), length);
        }
    }
}
