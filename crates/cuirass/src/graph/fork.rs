//! Splitting a capture into branches that run in parallel, and joining them.

use crate::event::{Event, EventOptions};
use crate::graph::builder::{GraphBuilder, Phase, Role, state};
use crate::graph::capture::ForkKind;
use crate::graph::recording::Recording;
use crate::stream::{Stream, StreamOptions};
use crate::{Outcome, Result};
use cuirass_call::owner::{Opaque, Owned};
use cuirass_call::{event as event_call, stream as stream_call};
use cuirass_fault::{Failure, Misuse, room};
use std::sync::Arc;

impl GraphBuilder {
    /// Splits the capture into `count` branches: this builder, and `count - 1` new ones, which are returned and have to be
    /// joined before the capture ends.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for fewer than two, [`ErrorKind::State`](crate::ErrorKind::State)
    /// when it is not building; what the driver answers. No builder is then made; streams that had joined the capture
    /// already are given back when it ends.
    pub fn split(&self, count: usize) -> Result<Vec<GraphBuilder>> {
        if count < 2 {
            let message = format!("a capture is split into at least 2 branches, not {count}");
            return Err(Failure::misuse(Misuse::Value, message).raise());
        }
        let recording = self.building()?;
        let event = Event::create(self.context(), &EventOptions::default())?;
        let result = self.branch(&recording, &event, count - 1);
        match (result, event.close()) {
            (Ok(branches), Ok(())) => Ok(branches),
            (Ok(_branches), Err(error)) => Err(error),
            (Err(failure), Ok(())) => Err(failure.raise()),
            (Err(failure), Err(error)) => Err(Failure::from(error)
                .attach_to(failure, "the event between the branches was not given back")
                .raise()),
        }
    }

    fn branch(&self, recording: &Arc<Recording>, event: &Event, count: usize) -> Outcome<Vec<GraphBuilder>> {
        recording.set_in_parts();
        // Nobody else sees this event, so that the capture need not keep it.
        event_call::record(event.as_raw(), self.stream().raw())?;
        let mut streams = room::empty(count, "for the branches")?;
        for _ in 0..count {
            let stream = Stream::create(self.context(), &StreamOptions::default())?;
            // Kept first: even where the call returns an error the stream may have joined the capture.
            recording.keep(&stream);
            stream_call::wait_event(stream.raw(), event.as_raw(), 0)?;
            streams.push(stream);
        }
        let fork = |stream: Stream| {
            let phase = Phase::Forked(Owned::<ForkKind>::new(Opaque(stream.raw()), recording.clone()));
            GraphBuilder::new(stream, self.context().clone(), Role::Fork, phase)
        };
        Ok(streams.into_iter().map(fork).collect())
    }

    /// Whether another builder is a fork of the same capture, so that it can be joined.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) when it is not, or one of the two is not building.
    pub fn check_joinable(&self, fork: &GraphBuilder) -> Result<()> {
        let recording = self.building()?;
        let theirs = fork.building()?;
        if !Arc::ptr_eq(&recording, &theirs) {
            return Err(state("graph builders of different captures cannot be joined").raise());
        }
        if !fork.is_join_required() {
            return Err(state("a graph builder that is no fork cannot be joined to another").raise());
        }
        Ok(())
    }

    /// Joins forks of the same capture: what comes later on this builder waits for them. They are closed.
    ///
    /// # Errors
    /// As [`check_joinable`](GraphBuilder::check_joinable); what the driver answers. The forks that were not joined are
    /// then given up, and the end of the capture returns an error; the capture itself goes on.
    pub fn join(&self, forks: Vec<GraphBuilder>) -> Result<()> {
        let mut forks = forks.into_iter();
        while let Some(fork) = forks.next() {
            match self.join_one(&fork) {
                Ok(()) => fork.joined(),
                Err(failure) => {
                    // This one and the rest are given up.
                    let rest = 1 + forks.len();
                    let mut failure =
                        failure.note(format!("{rest} forked graph builders were not joined, and are closed"));
                    for given_up in std::iter::once(fork).chain(forks) {
                        if let Err(error) = given_up.close() {
                            failure = Failure::from(error).attach_to(failure, "a fork was not given back");
                        }
                    }
                    return Err(failure.raise());
                }
            }
        }
        Ok(())
    }

    fn join_one(&self, fork: &GraphBuilder) -> Outcome<()> {
        self.check_joinable(fork)?;
        self.stream().wait_for_stream(fork.stream())?;
        Ok(())
    }
}
