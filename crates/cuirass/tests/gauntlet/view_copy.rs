//! Copies between tensors that lie in different ways.

use crate::objects::{Plain, buffer, operation, stream};
use cuirass::memory::Buffer;
use cuirass::view::{Strided, StridedCopy, StridedLayout};
use cuirass::{Result, Stream};
use cuirass_testkit::operation::Operation;

type Tensors = (Buffer, Buffer, Stream, Plain<Vec<u8>>);

fn tensors() -> Result<Tensors> {
    let stream = stream()?;
    Ok((buffer(&stream)?, buffer(&stream)?, stream, Plain(vec![0; 64])))
}

fn lies(address: u64, is_host: bool, strides: &[i64; 2]) -> Result<Strided> {
    Ok(Strided { address, layout: StridedLayout::new(&[4, 4], Some(strides), 1)?, is_host })
}

fn of(buffer: &Buffer, strides: [i64; 2]) -> Result<Strided> {
    lies(buffer.as_raw(), false, &strides)
}

fn host(memory: &mut Plain<Vec<u8>>, strides: [i64; 2]) -> Result<Strided> {
    lies(memory.0.as_mut_ptr().expose_provenance() as u64, true, &strides)
}

fn submit(copy: &StridedCopy, stream: &Stream, blocking: bool) -> Result<()> {
    // SAFETY: [test] both live until the stream has passed the copy: their release is ordered by it.
    unsafe { copy.submit(stream, None, blocking) }
}

fn turned() -> Result<StridedCopy> {
    let (to, from) = (lies(4096, true, &[4, 1])?, lies(8192, false, &[1, 4])?);
    StridedCopy::new(&to, &from)
}

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![
        operation!("StridedCopy::new", || Ok(()), |()| turned()).makes_no_call(),
        operation!("StridedCopy::staging", || Ok(()), |()| turned().map(|copy| copy.staging())).makes_no_call(),
        operation!("StridedCopy::is_synchronous", || Ok(()), |()| turned().map(|copy| copy.is_synchronous()))
            .makes_no_call(),
    ];
    for (case, strides) in [("one piece", [4, 1]), ("rows", [8, 1]), ("turned", [1, 4])] {
        let copy = move |(to, from, stream, _): &mut Tensors| {
            submit(&StridedCopy::new(&of(to, [4, 1])?, &of(from, strides)?)?, stream, false)
        };
        operations.push(operation!("StridedCopy::submit", tensors, copy).case(case));
    }
    let to_host = |(_, from, stream, memory): &mut Tensors| {
        submit(&StridedCopy::new(&host(memory, [1, 4])?, &of(from, [4, 1])?)?, stream, true)
    };
    let from_host = |(to, _, stream, memory): &mut Tensors| {
        submit(&StridedCopy::new(&of(to, [4, 1])?, &host(memory, [1, 4])?)?, stream, true)
    };
    let within_host = |(_, _, stream, memory): &mut Tensors| {
        let to = host(memory, [1, 4])?;
        let from = Strided { address: to.address + 32, ..host(memory, [4, 1])? };
        submit(&StridedCopy::new(&to, &from)?, stream, true)
    };
    let blocking = |(to, from, stream, _): &mut Tensors| {
        submit(&StridedCopy::new(&of(to, [4, 1])?, &of(from, [4, 1])?)?, stream, true)
    };
    operations.push(operation!("StridedCopy::submit", tensors, to_host).case("the host scatters"));
    operations.push(operation!("StridedCopy::submit", tensors, from_host).case("the host gathers"));
    operations.push(operation!("StridedCopy::submit", tensors, within_host).case("within the host"));
    operations.push(operation!("StridedCopy::submit", tensors, blocking).case("blocking"));
    operations
}
