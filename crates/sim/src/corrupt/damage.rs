//! One change of a copy: of the bytes of its files, or of its rows (`row_damage`).

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::rng::Rng;
use super::row_damage::{self, RowDamage};
use super::samples::{Copy, Samples};

/// The size of a page of the samples; the store makes no other.
const PAGE: u64 = 4096;

/// What is changed in a copy of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// One bit of the database.
    BitFlip,
    /// Some bytes of the database in a row.
    Bytes,
    /// A page of the database.
    ZeroPage,
    /// The end of the database.
    Cut,
    SwappedPages,
    /// Half of a page is that of another page.
    TornPage,
    /// The end of the write-ahead log.
    LogCut,
    /// A bit of the write-ahead log.
    LogBytes,
    /// Bytes or the end of an artifact.
    Artifact,
    Row(RowDamage),
    PostgresRow(RowDamage),
}

impl Damage {
    pub(super) fn draw(samples: &Samples, rng: &mut Rng) -> Damage {
        if samples.has_postgres() && rng.one_in(10) {
            return Damage::PostgresRow(RowDamage::draw(rng));
        }
        match rng.below(100) {
            0..14 => Damage::BitFlip,
            14..26 => Damage::Bytes,
            26..31 => Damage::ZeroPage,
            31..36 => Damage::Cut,
            36..41 => Damage::SwappedPages,
            41..46 => Damage::TornPage,
            46..51 => Damage::LogCut,
            51..56 => Damage::LogBytes,
            56..58 => Damage::Artifact,
            _ => Damage::Row(RowDamage::draw(rng)),
        }
    }

    pub(super) fn kind(self) -> &'static str {
        match self {
            Damage::BitFlip => "bit of the database",
            Damage::Bytes => "bytes of the database",
            Damage::ZeroPage => "page of zeros",
            Damage::Cut => "database cut",
            Damage::SwappedPages => "pages swapped",
            Damage::TornPage => "page torn",
            Damage::LogCut => "write-ahead log cut",
            Damage::LogBytes => "bit of the write-ahead log",
            Damage::Artifact => "artifact",
            Damage::Row(RowDamage::Value) => "row: value",
            Damage::Row(RowDamage::Deleted) => "row: deleted",
            Damage::Row(RowDamage::Doubled) => "row: doubled",
            Damage::Row(RowDamage::Swapped) => "row: swapped with another",
            Damage::PostgresRow(RowDamage::Value) => "PostgreSQL row: value",
            Damage::PostgresRow(RowDamage::Deleted) => "PostgreSQL row: deleted",
            Damage::PostgresRow(RowDamage::Doubled | RowDamage::Swapped) => {
                "PostgreSQL row: swapped with another"
            }
        }
    }

    /// Damages a copy, and says what was changed.
    pub(super) fn apply(self, copy: &Copy, rng: &mut Rng) -> Result<String> {
        let database = copy.database();
        match self {
            Damage::BitFlip => flip(&database, rng),
            Damage::Bytes => {
                let (size, length) = (size(&database)?, rng.between(1, 64));
                let at = rng.below(size.saturating_sub(length));
                let bytes: Vec<u8> = (0..length).map(|_| rng.draw() as u8).collect();
                write(&database, at, &bytes)?;
                Ok(format!("{length} bytes from {at}, page {}", at / PAGE + 1))
            }
            Damage::ZeroPage => {
                let page = rng.below(size(&database)? / PAGE);
                write(&database, page * PAGE, &[0; PAGE as usize])?;
                Ok(format!("page {}", page + 1))
            }
            Damage::Cut => {
                let size = size(&database)?;
                let to = match rng.one_in(2) {
                    true => rng.below(size),
                    false => rng.below(size / PAGE) * PAGE,
                };
                cut(&database, to)?;
                Ok(format!("{to} of {size} bytes are left"))
            }
            Damage::SwappedPages => {
                let pages = size(&database)? / PAGE;
                let one = rng.below(pages);
                let other = (one + 1 + rng.below(pages - 1)) % pages;
                let (first, second) = (page(&database, one)?, page(&database, other)?);
                write(&database, one * PAGE, &second)?;
                write(&database, other * PAGE, &first)?;
                Ok(format!("pages {} and {}", one + 1, other + 1))
            }
            Damage::TornPage => {
                let pages = size(&database)? / PAGE;
                let torn = rng.below(pages);
                let other = (torn + 1 + rng.below(pages - 1)) % pages;
                let half = PAGE / 2;
                let from = page(&database, other)?;
                let (at, bytes) = match rng.one_in(2) {
                    true => (torn * PAGE, &from[..half as usize]),
                    false => (torn * PAGE + half, &from[half as usize..]),
                };
                write(&database, at, bytes)?;
                Ok(format!(
                    "bytes from {at} on, page {}, are those of page {}",
                    torn + 1,
                    other + 1
                ))
            }
            Damage::LogCut => {
                let log = log_of(copy);
                let size = size(&log)?;
                let to = rng.below(size);
                cut(&log, to)?;
                Ok(format!("{to} of {size} bytes are left"))
            }
            Damage::LogBytes => flip(&log_of(copy), rng),
            Damage::Artifact => {
                let file = artifact(&copy.folder.join("artifacts"))?.context("no artifact")?;
                match rng.one_in(2) {
                    true => flip(&file, rng),
                    false => {
                        let to = rng.below(size(&file)?);
                        cut(&file, to)?;
                        Ok(format!("{to} bytes are left"))
                    }
                }
            }
            Damage::Row(kind) => row_damage::sqlite(kind, &database, rng),
            Damage::PostgresRow(kind) => row_damage::postgres(kind, copy, rng),
        }
    }
}

fn log_of(copy: &Copy) -> PathBuf {
    copy.folder.join("runs.db-wal")
}

/// The first file below a folder.
fn artifact(folder: &Path) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let found = match path.is_dir() {
            true => artifact(&path)?,
            false => Some(path),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn size(path: &Path) -> Result<u64> {
    let found = fs::metadata(path).with_context(|| path.display().to_string())?;
    Ok(found.len())
}

fn page(path: &Path, number: u64) -> Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(number * PAGE))?;
    let mut bytes = vec![0; PAGE as usize];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn write(path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.seek(SeekFrom::Start(at))?;
    Ok(file.write_all(bytes)?)
}

fn cut(path: &Path, to: u64) -> Result<()> {
    Ok(OpenOptions::new().write(true).open(path)?.set_len(to)?)
}

fn flip(path: &Path, rng: &mut Rng) -> Result<String> {
    let at = rng.below(size(path)?);
    let bit = rng.below(8);
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut byte)?;
    byte[0] ^= 1 << bit;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(&byte)?;
    Ok(format!("bit {bit} of byte {at}, page {}", at / PAGE + 1))
}
