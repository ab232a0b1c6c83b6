//! What a call of the binary came to, for both test programs of this crate.

use std::process::Output;

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Call {
    pub(crate) fn of(output: Output) -> Call {
        Call {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Its standard output, if it went well.
    pub(crate) fn good(self, args: &[&str]) -> String {
        assert_eq!(self.code, 0, "{args:?}: {}{}", self.out, self.err);
        self.out
    }
}
