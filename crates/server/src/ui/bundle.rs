//! The files of the UI. Written by `cargo xtask ui`.

use super::UiFile;

#[rustfmt::skip]
pub(super) const FILES: &[UiFile] = &[
    UiFile { path: "assets/app.js", kind: "text/javascript; charset=utf-8", bytes: include_bytes!("../../ui/assets/app.js") },
    UiFile { path: "assets/editor.js", kind: "text/javascript; charset=utf-8", bytes: include_bytes!("../../ui/assets/editor.js") },
    UiFile { path: "assets/index.css", kind: "text/css; charset=utf-8", bytes: include_bytes!("../../ui/assets/index.css") },
    UiFile { path: "favicon.svg", kind: "image/svg+xml", bytes: include_bytes!("../../ui/favicon.svg") },
    UiFile { path: "index.html", kind: "text/html; charset=utf-8", bytes: include_bytes!("../../ui/index.html") },
];
