//! Documents of the installation: small named JSON texts beside the runs (definitions, schedules, tokens, webhooks).
//! The store keeps them and knows none of them. Several servers may change the same document: each change names the
//! version that it is based on.

use stepwell_kernel::time::Time;

use super::Result;

/// Keeps small documents with compare-and-set.
pub trait Documents {
    /// One document; none if there is no such document.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the document as it is then.
    fn document(&self, kind: &str, tenant: &str, key: &str) -> Result<Option<StoredDocument>>;

    /// Documents of a kind, by tenant and key in the order of their bytes.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the documents as they are then.
    fn documents(&self, filter: &DocumentFilter) -> Result<Vec<StoredDocument>>;

    /// Writes a document if its version is the expected one, or with none expected, if it is not there. Returns the
    /// new version; none if the document has another version, and then nothing was written. A document that is new
    /// has version 1, also if there was one of its name before.
    ///
    /// Durable on return: the document, if a version is returned.
    ///
    /// Crash before the return: the document is written or not.
    ///
    /// Twice: the second call finds another version and returns none. After a lost answer the document is read to
    /// know whether it was written.
    fn put_document(
        &self,
        document: &NewDocument,
        expected: Option<u64>,
        now: Time,
    ) -> Result<Option<u64>>;

    /// Deletes a document if its version is the expected one. Returns whether it was deleted.
    ///
    /// Durable on return: the deletion, if true is returned.
    ///
    /// Crash before the return: the document is there or not.
    ///
    /// Twice: the second call finds no document and returns false.
    fn delete_document(&self, kind: &str, tenant: &str, key: &str, expected: u64) -> Result<bool>;
}

/// A document to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewDocument {
    /// What the document is: its readers know the word.
    pub kind: String,
    /// The tenant that the document belongs to; empty if it belongs to the installation.
    pub tenant: String,
    /// Unique among the documents of its kind and tenant.
    pub key: String,
    /// The content, as JSON text. The store does not look into it.
    pub body: String,
}

/// A document that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    pub kind: String,
    pub tenant: String,
    pub key: String,
    /// Counts the changes, from 1.
    pub version: u64,
    /// The content, as JSON text.
    pub body: String,
    /// When this version was written.
    pub changed_at: Time,
}

/// Which documents to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentFilter {
    pub kind: String,
    /// Only documents of this tenant; of all tenants if absent.
    pub tenant: Option<String>,
    /// Only documents whose keys begin with this text.
    pub prefix: String,
    /// Only documents after this tenant and key: the next page.
    pub after: Option<(String, String)>,
    /// At most this many.
    pub limit: usize,
}
