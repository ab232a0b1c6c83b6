//! The stable codes of everything that runs a program. Codes of one tool are on its page in
//! `docs/tools`, the others in `docs/errors`.

/// The working directory is not there.
pub(crate) const PROCESS_CWD: &str = "PROCESS_CWD";
/// The program could not be started.
pub(crate) const PROCESS_START: &str = "PROCESS_START";
/// A command ended with something else than 0.
pub(crate) const SHELL_EXIT: &str = "SHELL_EXIT";
/// A command is not there, or may not be run.
pub(crate) const SHELL_NOT_FOUND: &str = "SHELL_NOT_FOUND";
/// The code raised something. Where the exception has a usable name, the code is `PY_` and the name.
pub(crate) const PY_EXCEPTION: &str = "PY_EXCEPTION";
/// The interpreter ended before the code gave a result.
pub(crate) const PYTHON_EXIT: &str = "PYTHON_EXIT";
/// The interpreter that calls are forked from went away.
pub(crate) const PYTHON_LOST: &str = "PYTHON_LOST";
/// There is no such interpreter.
pub(crate) const PYTHON_NOT_FOUND: &str = "PYTHON_NOT_FOUND";
/// The result cannot be handed on.
pub(crate) const PYTHON_RESULT: &str = "PYTHON_RESULT";
