//! Copies and fills.

use crate::objects::{buffer, operation, stream, taken};
use cuirass::memory::{
    BatchedCopy, Buffer, CopyExtent, CopyOptions, Location, MemcpyOverlapMode, MemcpySrcAccessOrder, PinnedMemory,
    Pitched, Transfer, copy_batch, copy_batch_unordered,
};
use cuirass::{Result, Stream};
use cuirass_testkit::operation::Operation;
use std::sync::Arc;

/// The version that introduced batches of copies.
const BATCHES: u32 = 12080;

fn one() -> Result<(Buffer, Stream)> {
    let stream = stream()?;
    Ok((buffer(&stream)?, stream))
}

fn two() -> Result<(Buffer, Buffer, Stream)> {
    let stream = stream()?;
    Ok((buffer(&stream)?, buffer(&stream)?, stream))
}

fn memory() -> Result<PinnedMemory<u32>> {
    PinnedMemory::from_slice(&[7; 16])
}

/// A copy under way, and between what.
type UnderWay<M> = (Buffer, Stream, Option<Transfer<M>>);

/// A copy under way, into memory that is the transfer's own.
fn owned_transfer() -> Result<UnderWay<PinnedMemory<u32>>> {
    let (buffer, stream) = one()?;
    let transfer = buffer.copy_to_pinned(memory()?, &stream)?;
    Ok((buffer, stream, Some(transfer)))
}

/// A copy under way, out of memory that is shared.
fn shared_transfer() -> Result<UnderWay<Arc<PinnedMemory<u32>>>> {
    let (buffer, stream) = one()?;
    let transfer = buffer.copy_from_pinned(Arc::new(memory()?), &stream)?;
    Ok((buffer, stream, Some(transfer)))
}

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![
        operation!("Buffer::copy_from_slice", one, |(buffer, stream)| buffer.copy_from_slice(&[1_u32; 16], stream)),
        operation!("Buffer::copy_to_slice", one, |(buffer, stream)| {
            let mut values = [0_u32; 16];
            buffer.copy_to_slice(&mut values, stream)
        }),
        operation!("Buffer::copy_from", two, |(to, from, stream)| to.copy_from(from, stream)),
        operation!("Buffer::copy_from_unordered", two, |(to, from, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { to.copy_from_unordered(from, stream) }
        }),
        operation!("Buffer::fill", one, |(buffer, stream)| buffer.fill(7, stream)),
    ];
    for (case, pattern) in [("1 byte", &[1_u8][..]), ("2 bytes", &[1, 2]), ("4 bytes", &[1, 2, 3, 4])] {
        let fill = move |(buffer, stream): &mut (Buffer, Stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { buffer.fill_unordered(pattern, stream) }
        };
        operations.push(operation!("Buffer::fill_unordered", one, fill).case(case));
    }
    operations.extend(transfers());
    operations.extend(with_options());
    operations.extend(rows());
    operations
}

fn with_options() -> Vec<Operation> {
    const OPTIONS: CopyOptions = CopyOptions {
        src_access_order: MemcpySrcAccessOrder::Stream,
        src_location_hint: Some(Location::Host),
        dst_location_hint: None,
        overlap_mode: MemcpyOverlapMode::PreferOverlapWithCompute,
    };
    fn pair<'a>(to: &'a Buffer, from: &'a Buffer) -> BatchedCopy<'a> {
        BatchedCopy { to, from, options: OPTIONS }
    }
    vec![
        operation!("Buffer::copy_from_with", two, |(to, from, stream)| {
            to.copy_from_with(from, &CopyOptions::default(), stream)
        })
        .case("a plain copy"),
        operation!("Buffer::copy_from_with", two, |(to, from, stream)| to.copy_from_with(from, &OPTIONS, stream))
            .needs(BATCHES),
        operation!("Buffer::copy_from_with_unordered", two, |(to, from, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { to.copy_from_with_unordered(from, &OPTIONS, stream) }
        })
        .needs(BATCHES),
        operation!("copy_batch", two, |(to, from, stream)| copy_batch(&[pair(to, from)], stream)).needs(BATCHES),
        operation!("copy_batch_unordered", two, |(to, from, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { copy_batch_unordered(&[pair(to, from)], stream) }
        })
        .needs(BATCHES),
    ]
}

fn rows() -> Vec<Operation> {
    const FLAT: CopyExtent = CopyExtent { width: 4, height: 3, depth: 1 };
    const DEEP: CopyExtent = CopyExtent { width: 4, height: 3, depth: 2 };
    let pitched = Pitched { offset: 4, pitch: 8, rows: 0 };
    vec![
        operation!("Buffer::copy_pitched_from", two, move |(to, from, stream)| {
            to.copy_pitched_from(pitched, from, Pitched::default(), FLAT, stream)
        }),
        operation!("Buffer::copy_pitched_from_unordered", two, move |(to, from, stream)| {
            // SAFETY: [test] the same stream orders everything.
            unsafe { to.copy_pitched_from_unordered(pitched, from, Pitched::default(), DEEP, stream) }
        }),
        operation!("Buffer::copy_pitched_from_slice", one, move |(buffer, stream)| {
            buffer.copy_pitched_from_slice(pitched, &[7_u32; 6], Pitched::default(), DEEP, stream)
        }),
        operation!("Buffer::copy_pitched_to_slice", one, move |(buffer, stream)| {
            let mut values = [0_u32; 6];
            buffer.copy_pitched_to_slice(pitched, &mut values, Pitched::default(), DEEP, stream)
        }),
    ]
}

fn transfers() -> Vec<Operation> {
    vec![
        operation!("Buffer::copy_from_pinned", || Ok((one()?, Arc::new(memory()?))), |((buffer, stream), memory)| {
            buffer.copy_from_pinned(Arc::clone(memory), stream)
        }),
        operation!("Buffer::copy_from_pinned", || Ok((one()?, Some(memory()?))), |((buffer, stream), memory)| {
            buffer.copy_from_pinned(Arc::new(taken(memory)), stream)
        })
        .case("the memory's last share"),
        operation!("Buffer::copy_to_pinned", || Ok((one()?, Some(memory()?))), |((buffer, stream), memory)| {
            buffer.copy_to_pinned(taken(memory), stream)
        }),
        operation!("Transfer::is_done", owned_transfer, |(_, _, transfer)| {
            transfer.as_ref().map_or(Ok(true), Transfer::is_done)
        }),
        operation!("Transfer::wait", owned_transfer, |(_, _, transfer)| taken(transfer).wait()),
        operation!("Transfer::wait", shared_transfer, |(_, _, transfer)| taken(transfer).wait()).case("shared memory"),
        operation!("Transfer (dropped)", owned_transfer, |(_, _, transfer)| {
            drop(taken(transfer));
            Ok(())
        })
        .reports(),
        operation!("Transfer (dropped)", shared_transfer, |(_, _, transfer)| {
            drop(taken(transfer));
            Ok(())
        })
        .case("shared memory")
        .reports(),
    ]
}
