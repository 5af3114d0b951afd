//! A public operation, as the gauntlet's registry has it.

use crate::told::Told;
use cuirass_fault::Error;
use std::any::Any;

/// How an operation ends when a call of it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// It returns the error.
    Raises,
    /// It is a release where nothing can propagate: it makes a report.
    Reports,
    /// It makes no call at all.
    MakesNoCall,
}

/// What the caller has current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// No context.
    Nothing,
    /// A context that is not the operation's.
    Other,
    /// The device's primary context.
    Primary,
}

/// Something that the checks let pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// A failure of one of these calls may be reported where the operation itself returns something else.
    Reported(&'static [&'static str]),
    /// These kinds may stay created although the operation failed; whoever holds them gives them back later.
    Stays(&'static [&'static str]),
    /// It sets the current context: that is what it is for.
    SetsCurrent,
    /// What is leaked is told by this text, and not one by one.
    LeaksTogether(&'static str),
    /// It makes a report with these words whatever happens: not of a failed call, but of what the program did.
    Says(&'static str),
    /// What an answer says is kept, so that objects follow it from then on.
    KeepsAnswers,
}

/// An operation of the registry. `S` in [`Operation::new`] is what existed before it.
pub struct Operation {
    /// `Stream::close`; `Stream (dropped)` for a drop.
    pub name: &'static str,
    /// Which of several cases of it: "on a default stream". Empty where there is one.
    pub case: &'static str,
    /// How it ends.
    pub ends: Ends,
    /// What the caller has current: it is swept once for each.
    pub callers: Vec<Caller>,
    /// Whether it submits something that cannot be taken back.
    pub submits: bool,
    /// The CUDA version of the driver that it needs; 0 where any does.
    pub needs: u32,
    /// What is let pass, each with its reason.
    pub allowed: Vec<(Allowed, &'static str)>,
    set_up: Box<dyn Fn() -> Result<Box<dyn Prepared>, Told>>,
}

/// An operation with the objects that it needs.
pub trait Prepared {
    /// Runs it, once; what it made is returned, and kept until the checks are done.
    fn operate(&mut self) -> Result<Box<dyn Any>, Told>;
    /// Whether the objects that existed before still work: an operation on each.
    fn follow_up(&self) -> Result<(), Told>;
    /// What else was wrong, that only the language knows; asked once what the operation made is gone.
    fn remarks(&mut self) -> Vec<String> {
        Vec::new()
    }
}

struct Case<S, F, G> {
    objects: S,
    operate: F,
    follow_up: G,
}

impl<S, R: 'static, F: Fn(&mut S) -> Result<R, Error>, G: Fn(&S) -> Result<(), Error>> Prepared for Case<S, F, G> {
    fn operate(&mut self) -> Result<Box<dyn Any>, Told> {
        Ok((self.operate)(&mut self.objects).map(|made| Box::new(made) as Box<dyn Any>)?)
    }

    fn follow_up(&self) -> Result<(), Told> {
        Ok((self.follow_up)(&self.objects)?)
    }
}

impl Operation {
    /// An operation that returns its error. What it consumes is taken out of an `Option` in `S`.
    pub fn new<S: 'static, R: 'static>(
        name: &'static str,
        set_up: impl Fn() -> Result<S, Error> + 'static,
        operate: impl Fn(&mut S) -> Result<R, Error> + Copy + 'static,
        follow_up: impl Fn(&S) -> Result<(), Error> + Copy + 'static,
    ) -> Operation {
        let set_up = move || Ok(Box::new(Case { objects: set_up()?, operate, follow_up }) as Box<dyn Prepared>);
        Operation::prepared(name, set_up)
    }

    /// An operation whose objects are made, used and asked in some other way.
    pub fn prepared(name: &'static str, set_up: impl Fn() -> Result<Box<dyn Prepared>, Told> + 'static) -> Operation {
        Operation {
            name,
            case: "",
            ends: Ends::Raises,
            callers: vec![Caller::Nothing, Caller::Other],
            submits: false,
            needs: 0,
            allowed: Vec::new(),
            set_up: Box::new(set_up),
        }
    }

    /// It can return nothing: its failures are reported.
    #[must_use]
    pub fn reports(self) -> Operation {
        Operation { ends: Ends::Reports, ..self }
    }

    /// It makes no call, which is checked.
    #[must_use]
    pub fn makes_no_call(self) -> Operation {
        Operation { ends: Ends::MakesNoCall, callers: vec![Caller::Nothing], ..self }
    }

    /// Names one of several cases.
    #[must_use]
    pub fn case(self, case: &'static str) -> Operation {
        Operation { case, ..self }
    }

    /// Says what callers have current.
    #[must_use]
    pub fn called_with(self, callers: &[Caller]) -> Operation {
        Operation { callers: callers.to_vec(), ..self }
    }

    /// It submits something that cannot be taken back.
    #[must_use]
    pub fn submits(self) -> Operation {
        Operation { submits: true, ..self }
    }

    /// It needs a driver of this CUDA version, 12030 for 12.3. On an older one it is swept for its refusal alone.
    #[must_use]
    pub fn needs(self, version: u32) -> Operation {
        Operation { needs: version, ..self }
    }

    /// Whether this driver is too old for it.
    pub fn is_lacking(&self) -> bool {
        crate::driver_version() < self.needs
    }

    /// Lets something pass, for a reason.
    #[must_use]
    pub fn allow(mut self, allowed: Allowed, reason: &'static str) -> Operation {
        self.allowed.push((allowed, reason));
        self
    }

    /// Its name and its case.
    pub fn title(&self) -> String {
        if self.case.is_empty() { self.name.to_owned() } else { format!("{}: {}", self.name, self.case) }
    }

    /// Makes what it needs.
    ///
    /// # Errors
    /// What the set-up fails with.
    pub fn prepare(&self) -> Result<Box<dyn Prepared>, Told> {
        (self.set_up)()
    }

    pub(crate) fn may_report(&self, call: &str) -> bool {
        self.allowed.iter().any(|(allowed, _)| matches!(allowed, Allowed::Reported(calls) if calls.contains(&call)))
    }

    pub(crate) fn may_leave(&self, kind: &str) -> bool {
        self.allowed.iter().any(|(allowed, _)| matches!(allowed, Allowed::Stays(kinds) if kinds.contains(&kind)))
    }

    pub(crate) fn sets_current(&self) -> bool {
        self.allowed.iter().any(|(allowed, _)| *allowed == Allowed::SetsCurrent)
    }

    pub(crate) fn leaks_together(&self, texts: &str) -> bool {
        self.allowed
            .iter()
            .any(|(allowed, _)| matches!(allowed, Allowed::LeaksTogether(words) if texts.contains(words)))
    }

    pub(crate) fn says(&self, text: &str) -> bool {
        self.allowed.iter().any(|(allowed, _)| matches!(allowed, Allowed::Says(words) if text.contains(words)))
    }

    pub(crate) fn keeps_answers(&self) -> bool {
        self.allowed.iter().any(|(allowed, _)| *allowed == Allowed::KeepsAnswers)
    }
}
