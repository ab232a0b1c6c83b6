//! The compiled form of a template: kept while it is used, compiled again when it is wanted later.
//!
//! Compiled code takes many times the memory of its source, and a definition may have tens of thousands of templates of
//! which a run evaluates each once. So only [`MOST_KEPT`] programs of the process are kept compiled; the one that is given
//! up was not evaluated for a full round of the others. Compiling is a pure function of the source: nobody can tell
//! from a result whether it was done again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use minijinja::{Environment, Error, Expression};

use super::library;

/// Programs that stay compiled.
const MOST_KEPT: usize = 4096;

static KEPT: Mutex<Kept> = Mutex::new(Kept::new());

/// A template that needs the engine.
pub(super) struct Program {
    slot: Arc<Slot>,
    is_expression: bool,
}

/// What the engine executes.
pub(super) enum Code {
    /// One `{{ … }}` and nothing else: the result keeps its type instead of becoming text.
    Expression(Expression<'static, 'static>),
    /// Text and tags, in an environment of its own under the name `""`.
    Document(Environment<'static>),
}

#[derive(Default)]
struct Slot {
    code: Mutex<Option<Arc<Code>>>,
    /// Whether the program was evaluated since the hand passed it.
    is_used: AtomicBool,
}

impl Program {
    /// A program, compiled once to see that it can be.
    pub(super) fn compile(guarded: String, is_expression: bool) -> Result<Program, Error> {
        let program = Program {
            slot: Arc::default(),
            is_expression,
        };
        program.code(|| guarded)?;
        Ok(program)
    }

    /// The compiled code; `guarded` is asked for the text if it has to be compiled again.
    pub(super) fn code(&self, guarded: impl FnOnce() -> String) -> Result<Arc<Code>, Error> {
        let slot = &self.slot;
        slot.is_used.store(true, Ordering::Relaxed);
        if let Some(code) = &*lock(&slot.code) {
            return Ok(Arc::clone(code));
        }
        let code = Arc::new(compile(guarded(), self.is_expression)?);
        *lock(&slot.code) = Some(Arc::clone(&code));
        let given_up = lock(&KEPT).keep(Arc::downgrade(slot));
        // Outside the lock, because freeing code takes a while.
        drop(given_up.and_then(|slot| lock(&slot.code).take()));
        Ok(code)
    }
}

fn compile(guarded: String, is_expression: bool) -> Result<Code, Error> {
    let shared = library::environment();
    if is_expression {
        return shared
            .compile_expression_owned(guarded)
            .map(Code::Expression);
    }
    let mut own = shared.clone();
    own.add_template_owned("", guarded)?;
    Ok(Code::Document(own))
}

/// No code panics with one of these locks held, and half a change of them does not exist.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The programs that are compiled, as a clock: the hand goes round and gives up the first one that was not evaluated
/// since the hand passed it.
struct Kept {
    slots: Vec<Weak<Slot>>,
    hand: usize,
}

impl Kept {
    const fn new() -> Kept {
        Kept {
            slots: Vec::new(),
            hand: 0,
        }
    }

    /// Adds a slot that has just been filled; returns the slot whose code is to be given up for it.
    fn keep(&mut self, slot: Weak<Slot>) -> Option<Arc<Slot>> {
        if self.slots.len() < MOST_KEPT {
            self.slots.push(slot);
            return None;
        }
        loop {
            let at = self.hand;
            self.hand = (at + 1) % MOST_KEPT;
            let kept = self.slots[at].upgrade();
            let is_used = |it: &Arc<Slot>| it.is_used.swap(false, Ordering::Relaxed);
            // The second round finds none in use, unless others evaluate faster than the hand turns.
            if !kept.as_ref().is_some_and(is_used) {
                self.slots[at] = slot;
                return kept;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(program: &Program) -> bool {
        lock(&program.slot.code).is_some()
    }

    #[test]
    fn a_program_that_is_not_evaluated_is_given_up_and_compiled_again_when_it_is() {
        let text = |n: usize| format!("1 + {n}");
        let make = |n| Program::compile(text(n), true).unwrap();
        let rare = make(0);
        let often = make(1);
        let others: Vec<Program> = (2..3 * MOST_KEPT)
            .map(|n| {
                often.code(|| text(1)).unwrap();
                make(n)
            })
            .collect();
        assert!(!compiled(&rare));
        let kept = others.iter().filter(|it| compiled(it)).count();
        assert!(kept <= MOST_KEPT, "{kept} are compiled");
        let code = rare.code(|| text(0)).unwrap();
        let Code::Expression(expression) = &*code else {
            panic!("an expression is compiled as one");
        };
        assert_eq!(expression.eval(()).unwrap().to_string(), "1");
        assert!(compiled(&rare));
    }
}
