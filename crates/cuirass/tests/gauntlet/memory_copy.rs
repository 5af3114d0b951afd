//! Copies and fills.

use crate::objects::{buffer, operation, stream, taken};
use cuirass::memory::{Buffer, PinnedMemory, Transfer};
use cuirass::{Result, Stream};
use cuirass_testkit::operation::Operation;
use std::sync::Arc;

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
    operations
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
