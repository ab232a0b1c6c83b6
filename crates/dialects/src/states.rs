//! The macro behind the words of a language for the states of runs and steps. The tables are in the `words.rs` of the
//! languages.

/// A word of a language, and when a run or a step has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateWord {
    pub word: &'static str,
    /// When a run or a step has the word, as the documents say it.
    pub when: &'static str,
}

/// The words of a language.
#[derive(Clone, Copy, Debug)]
pub struct LanguageWords {
    /// The states of a run.
    pub run: &'static [StateWord],
    /// What is said beside the state of a run.
    pub run_substatus: &'static [StateWord],
    /// The states of a step-run.
    pub step: &'static [StateWord],
}

/// Defines words from one table: each row is when the word holds, the variant and the word.
macro_rules! state_words {
    (
        $(#[$meta:meta])*
        $enum:ident { $($(#[doc = $doc:literal])+ $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum { $($(#[doc = $doc])+ $variant,)+ }

        impl $enum {
            /// Every word, in the order of the table.
            pub const WORDS: &'static [$crate::states::StateWord] = &[
                $($crate::states::StateWord { word: $word, when: concat!($($doc),+) },)+
            ];

            /// The word in messages and events.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $($enum::$variant => $word,)+ }
            }
        }
    };
}

/// Defines what every language has beside its tables: all its words, and the states as words. The tables are `RunWord`,
/// `RunSubstatus` and `StepWord`; the functions that choose from them are `run_state`, `run_substate` and `step_state`.
macro_rules! language_words {
    () => {
        /// The words of the language.
        pub const WORDS: $crate::states::LanguageWords = $crate::states::LanguageWords {
            run: RunWord::WORDS,
            run_substatus: RunSubstatus::WORDS,
            step: StepWord::WORDS,
        };

        /// The word for the state of a run.
        #[must_use]
        pub fn run_word(state: &State) -> &'static str {
            run_state(state).word()
        }

        /// The word that is said beside the state of a run.
        #[must_use]
        pub fn run_substatus(state: &State) -> Option<&'static str> {
            run_substate(state).map(RunSubstatus::word)
        }

        /// The word for the state of a step-run.
        #[must_use]
        pub fn step_word(plan: &Plan, state: &State, at: StepRef) -> &'static str {
            step_state(plan, state, at).word()
        }
    };
}

pub(crate) use {language_words, state_words};
