//! Streams.

use crate::objects::{device, event, operation, other_context, stream, taken};
use cuirass::{Context, EventOptions, Result, Stream, StreamOptions};
use cuirass_testkit::operation::{Caller, Operation};
use std::mem::ManuallyDrop;
use std::sync::Arc;

const ALL: [Caller; 3] = [Caller::Nothing, Caller::Other, Caller::Primary];
const SOME: [Caller; 2] = [Caller::Other, Caller::Primary];

/// A stream that cuirass has borrowed, and its owner.
fn borrowed() -> Result<(Stream, Stream)> {
    let owner = stream()?;
    // SAFETY: [test] the owner is kept.
    let borrowed = unsafe { Stream::borrow_raw(owner.as_raw(), Some(Arc::new(owner.clone()))) };
    Ok((borrowed, owner))
}

/// The last share of a context, but for the stream's own.
fn last_of_context() -> Result<Option<Stream>> {
    let context = other_context()?;
    Stream::create(&context, &StreamOptions::default()).map(Some)
}

pub fn operations() -> Vec<Operation> {
    let primary = || device().context();
    let own = || Ok(Some(stream()?));
    let mut operations = vec![
        operation!("Stream::create", primary, |context| Stream::create(context, &StreamOptions::default()))
            .called_with(&ALL),
        operation!("Stream::create", primary, |context: &mut Context| {
            Stream::create(context, &StreamOptions { priority: Some(-1), ..StreamOptions::default() })
        })
        .case("with a priority"),
        operation!("Stream::close", own, |stream| taken(stream).close()),
        operation!("Stream::close", last_of_context, |stream| taken(stream).close())
            .case("the last of its context")
            .allow(
                cuirass_testkit::operation::Allowed::Reported(&["cuCtxDestroy_v2"]),
                "the context is another object: close() answers for its own",
            ),
        operation!("Stream (dropped)", own, |stream| {
            drop(taken(stream));
            Ok(())
        })
        .reports(),
        operation!("Stream (dropped)", last_of_context, |stream| {
            drop(taken(stream));
            Ok(())
        })
        .case("the last of its context")
        .reports(),
        operation!("Stream::context", stream, |stream| stream.context()).makes_no_call(),
        operation!("Stream::context", borrowed, |(stream, _)| stream.context()).case("borrowed").called_with(&ALL),
        operation!("Stream::context", || Ok(Stream::legacy_default()), |stream| stream.context())
            .case("the default stream")
            .called_with(&SOME),
        operation!("Stream::device", stream, |stream| stream.device()).makes_no_call(),
        operation!("Stream::device", borrowed, |(stream, _)| stream.device()).case("borrowed"),
        operation!("Stream::synchronize", stream, |stream| stream.synchronize()),
        operation!("Stream::let_go_behind", stream, |stream| {
            stream.let_go_behind(Box::new(0)).map_err(|failed| failed.1)
        }),
        operation!("Stream::is_done", stream, |stream| stream.is_done()),
        operation!("Stream::record", || Ok((stream()?, event()?)), |(stream, event)| stream.record(event)),
        operation!("Stream::record_new", stream, |stream| stream.record_new(&EventOptions::default()))
            .called_with(&ALL),
        operation!("Stream::wait", || Ok((stream()?, event()?)), |(stream, event)| stream.wait(event)),
        operation!("Stream::wait_for_stream", || Ok((stream()?, stream()?)), |(stream, other)| {
            stream.wait_for_stream(other)
        }),
        operation!("Stream::wait_for_stream", || Ok((stream()?, borrowed()?)), |(stream, (other, _))| {
            stream.wait_for_stream(other)
        })
        .case("a borrowed one"),
        operation!("Stream::wait_for_stream_of", || Ok((stream()?, stream()?)), |(stream, other)| {
            stream.wait_for_stream_of(other, device())
        }),
        operation!("Stream::wait_for_stream_of", stream, |stream| {
            stream.wait_for_stream_of(&Stream::legacy_default(), device())
        })
        .called_with(&ALL)
        .case("the legacy default stream's work"),
        operation!("Stream::wait_for_stream_of", stream, |stream| {
            Stream::per_thread_default().wait_for_stream_of(stream, device())
        })
        .called_with(&ALL)
        .case("the per-thread default stream waits"),
        operation!("Stream::capture_status", stream, |stream| stream.capture_status()),
        operation!("Stream::priority", stream, |stream| stream.priority()),
        operation!("Stream::is_nonblocking", stream, |stream| stream.is_nonblocking()),
        operation!("Stream::id", stream, |stream| stream.id()),
    ];
    operations.extend(without_calls());
    operations
}

fn without_calls() -> Vec<Operation> {
    vec![
        operation!("Stream::legacy_default", || Ok(()), |()| Ok(Stream::legacy_default())).makes_no_call(),
        operation!("Stream::per_thread_default", || Ok(()), |()| Ok(Stream::per_thread_default())).makes_no_call(),
        operation!("Stream::as_raw", stream, |stream| Ok(stream.as_raw())).makes_no_call(),
        operation!("Stream::is_default", stream, |stream| Ok(stream.is_default())).makes_no_call(),
        operation!("Stream::is_shared", stream, |stream| Ok(stream.is_shared())).makes_no_call(),
        operation!("Stream::is_owned", stream, |stream| Ok(stream.is_owned())).makes_no_call(),
        operation!("Stream::borrow_raw", stream, |stream| {
            // SAFETY: [test] the owner is kept.
            Ok(unsafe { Stream::borrow_raw(stream.as_raw(), Some(Arc::new(stream.clone()))) })
        })
        .makes_no_call(),
        operation!("Stream::from_raw", || Ok(Some(stream()?)), |stream| {
            // Its owner must not end it too.
            let stream = ManuallyDrop::new(taken(stream));
            let (raw, context) = (stream.as_raw(), stream.context()?);
            // SAFETY: [test] nobody else has it any more.
            Ok(unsafe { Stream::from_raw(raw, &context) })
        })
        .makes_no_call(),
    ]
}
