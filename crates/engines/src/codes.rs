//! The codes of what is refused or found on the way to an engine outside.

/// The history of the engine outside and the log of the store do not belong together.
pub const ENGINE_DIVERGED: &str = "ENGINE_DIVERGED";
/// The engine outside does not answer.
pub const ENGINE_UNREACHABLE: &str = "ENGINE_UNREACHABLE";
/// The address of an engine cannot be read, or this program was built without that engine.
pub const ENGINE_ADDRESS: &str = "ENGINE_ADDRESS";
/// The engine outside and this process do not trust each other's certificates.
pub const ENGINE_TLS: &str = "ENGINE_TLS";
/// The engine outside does not accept the key, the token or the certificate of this process.
pub const ENGINE_DENIED: &str = "ENGINE_DENIED";
