//! Compresses one inner packet, and back.
//!
//! Each packet is compressed by itself, so that a loss harms no other packet and nothing of one
//! flow shows in the length of another. LZ4 in the block format, or Zstandard (RFC 8878) in one
//! frame without magic number and checksum: the datagram's tag covers both.
//!
//! A result is only used if it makes the frame smaller. What comes back is at most one inner packet
//! of [`MAX_PACKET`] bytes, whatever the input says: memory is bounded by the output buffer.
//!
//! Decides nothing. Holds the tables that both algorithms need, made when they are first used; they
//! carry nothing from one packet to the next. A node has one for all its sessions.

use std::fmt;

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, DParameter, FrameFormat};

use super::coding::{Algorithm, Coding};
use super::dictionary::Dictionaries;
use crate::error::DropReason;
use crate::wire::inner::{MAX_PACKET, Pieces, declared_len};

/// The level of Zstandard: higher ones take longer and save 1 % more of a full packet.
const LEVEL: i32 = 1;
/// The level with a dictionary. Telemetry is short, so the work is little; level 1 finds too few of
/// the dictionary's short words, and would need a fifth more bytes.
const LEVEL_WITH_DICTIONARY: i32 = 6;
/// Padded results have a multiple of so many bytes.
pub const PADDED_TO: usize = 32;
/// Bytes of a compressed frame that an ordinary one does not have, and that are not in the result:
/// the length.
const FRAME_COST: usize = 2;
/// Room that LZ4 asks for, however small its result is.
const ROOM: usize = lz4_flex::block::get_maximum_output_size(MAX_PACKET) + 1;

/// Compresses packets, and back.
#[derive(Default)]
pub struct Coder {
    dictionaries: Dictionaries,
    table: Option<Box<CompressTable>>,
    /// By the number of their dictionary.
    zstd: Vec<Zstd>,
    /// The packet in one piece, or the packet that comes back.
    packet: Vec<u8>,
    /// The last result.
    result: Vec<u8>,
}

/// Zstandard with one dictionary, or none.
#[derive(Default)]
struct Zstd {
    compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
}

impl fmt::Debug for Coder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coder").finish_non_exhaustive()
    }
}

impl Coder {
    /// One with these dictionaries.
    pub fn new(dictionaries: Dictionaries) -> Self {
        Self { dictionaries, ..Self::default() }
    }

    /// The dictionaries that it has.
    pub const fn dictionaries(&self) -> &Dictionaries {
        &self.dictionaries
    }

    /// Compresses a packet. The result is what follows the numbering in a compressed frame: coding,
    /// data and, if it is `padded`, padding. `None` if the frame would not be smaller.
    pub fn compress(&mut self, coding: Coding, packet: Pieces<'_>, padded: bool) -> Option<&[u8]> {
        let most = packet.len().min(MAX_PACKET).checked_sub(FRAME_COST + 1)?;
        self.packet.clear();
        packet.copy_to(&mut self.packet);
        self.result.resize(ROOM, 0);
        let Self { dictionaries, table, zstd, packet, result } = self;
        let (first, room) = result.split_first_mut()?;
        let len = match coding.algorithm()? {
            Algorithm::Lz4 => {
                let table = table.get_or_insert_with(Box::default);
                compress_into_with_table(packet, room, table).ok()?
            }
            Algorithm::Zstd => {
                let compressor = compressor(zstd, dictionaries, coding.dictionary())?;
                compressor.compress_to_buffer(packet, &mut room[..most]).ok()?
            }
        };
        *first = coding.to_byte();
        result.truncate(1 + len);
        if padded {
            pad(result);
        }
        (result.len() <= most).then_some(&self.result[..])
    }

    /// [`Self::decompress`] into memory that the caller has until [`Self::give_back`].
    ///
    /// # Errors
    /// As there.
    pub fn take(&mut self, result: &[u8]) -> Result<Vec<u8>, DropReason> {
        let len = self.decompress(result)?.len();
        self.packet.truncate(len);
        Ok(std::mem::take(&mut self.packet))
    }

    /// Takes back the memory of a packet.
    pub fn give_back(&mut self, packet: Vec<u8>) {
        self.packet = packet;
    }

    /// The inner packet in the result of [`Self::compress`], which came from a peer.
    ///
    /// # Errors
    /// [`DropReason::BadFrame`] if the coding or its dictionary is not known, if the data is
    /// broken, or if it is anything but one inner packet of at most [`MAX_PACKET`] bytes.
    pub fn decompress(&mut self, result: &[u8]) -> Result<&[u8], DropReason> {
        let (coding, data) = parts(result).ok_or(DropReason::BadFrame)?;
        self.packet.resize(MAX_PACKET, 0);
        let Self { dictionaries, zstd, packet, .. } = self;
        let len = match coding.algorithm() {
            Some(Algorithm::Lz4) => decompress_into(data, packet).ok(),
            Some(Algorithm::Zstd) => decompressor(zstd, dictionaries, coding.dictionary())
                .and_then(|it| it.decompress_to_buffer(data, &mut packet[..]).ok()),
            None => None,
        };
        let packet = len.and_then(|len| self.packet.get(..len)).ok_or(DropReason::BadFrame)?;
        if declared_len(packet) != Some(packet.len()) {
            return Err(DropReason::BadFrame);
        }
        Ok(packet)
    }
}

/// Coding and data of a result, without its padding.
fn parts(result: &[u8]) -> Option<(Coding, &[u8])> {
    let (&first, data) = result.split_first()?;
    let coding = Coding::from_byte(first & !Coding::PADDED)?;
    let padding = if first & Coding::PADDED == 0 { 0 } else { usize::from(*data.last()?) };
    let is_padded = first & Coding::PADDED != 0;
    if is_padded && !(1..=PADDED_TO).contains(&padding) {
        return None;
    }
    Some((coding, data.get(..data.len().checked_sub(padding)?)?))
}

/// Adds padding to a result; its last byte says how much there is.
fn pad(result: &mut Vec<u8>) {
    result[0] |= Coding::PADDED;
    let padding = PADDED_TO - result.len() % PADDED_TO;
    result.resize(result.len() + padding - 1, 0);
    result.push(u8::try_from(padding).unwrap_or(1));
}

/// The compressor with a dictionary; `None` if there is no such dictionary.
fn compressor<'z>(
    zstd: &'z mut Vec<Zstd>,
    dictionaries: &Dictionaries,
    number: u8,
) -> Option<&'z mut Compressor<'static>> {
    let (place, bytes) = place_of(zstd, dictionaries, number)?;
    if place.compressor.is_none() {
        let mut new = Compressor::default();
        for parameter in [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ChecksumFlag(false),
            CParameter::DictIdFlag(false),
        ] {
            new.set_parameter(parameter).ok()?;
        }
        let level = if bytes.is_empty() { LEVEL } else { LEVEL_WITH_DICTIONARY };
        new.set_dictionary(level, bytes).ok()?;
        place.compressor = Some(new);
    }
    place.compressor.as_mut()
}

/// The decompressor with a dictionary; `None` if there is no such dictionary.
fn decompressor<'z>(
    zstd: &'z mut Vec<Zstd>,
    dictionaries: &Dictionaries,
    number: u8,
) -> Option<&'z mut Decompressor<'static>> {
    let (place, bytes) = place_of(zstd, dictionaries, number)?;
    if place.decompressor.is_none() {
        let mut new = Decompressor::with_dictionary(bytes).ok()?;
        new.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
        place.decompressor = Some(new);
    }
    place.decompressor.as_mut()
}

/// The place of a dictionary, and its bytes: none for number 0.
fn place_of<'z, 'd>(
    zstd: &'z mut Vec<Zstd>,
    dictionaries: &'d Dictionaries,
    number: u8,
) -> Option<(&'z mut Zstd, &'d [u8])> {
    let bytes = match number {
        0 => &[],
        _ => dictionaries.content(number)?,
    };
    zstd.resize_with(zstd.len().max(usize::from(number) + 1), Zstd::default);
    Some((zstd.get_mut(usize::from(number))?, bytes))
}

#[cfg(test)]
#[path = "compression_tests.rs"]
mod tests;
