//! The tokens of tasks: a claim in a form that only a server of this store can make. A worker gives the token back with
//! its result; any server can read it, also after a restart.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use stepwell_engine::remote::RemoteClaim;
use stepwell_kernel::keys::hex;

/// What every token begins with: its form, so that another form can be told apart.
const FORM: &str = "t1.";
/// How many bytes of the signature a token has.
const SIGNED: usize = 16;
/// Keeps these signatures apart from everything else that is made with the same secret.
const PURPOSE: &[u8] = b"task of a worker outside\0";

/// What a token says.
#[derive(Deserialize, Serialize)]
struct TokenBody {
    /// The tenant that the worker was bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    claim: RemoteClaim,
}

/// Makes and reads tokens.
#[derive(Clone)]
pub(super) struct TaskTokens(Hmac<Sha256>);

impl TaskTokens {
    pub(super) fn new(secret: &[u8; 32]) -> TaskTokens {
        let mac = Hmac::<Sha256>::new_from_slice(secret);
        // A key of any length is good.
        let mut mac = mac.unwrap_or_else(|_| Hmac::new(&Default::default()));
        mac.update(PURPOSE);
        TaskTokens(mac)
    }

    pub(super) fn make(&self, tenant: Option<&str>, claim: &RemoteClaim) -> String {
        let body = TokenBody {
            tenant: tenant.map(str::to_owned),
            claim: claim.clone(),
        };
        // Text and numbers always have a form in JSON.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut mac = self.0.clone();
        mac.update(&body);
        let signed = mac.finalize().into_bytes();
        format!("{FORM}{}.{}", hex(&signed[..SIGNED]), hex(&body))
    }

    /// The claim of a token that is genuine and of the caller's tenant; a caller without a tenant may use all.
    pub(super) fn open(&self, tenant: Option<&str>, token: &str) -> Option<RemoteClaim> {
        let (signed, body) = token.strip_prefix(FORM)?.split_once('.')?;
        let (signed, body) = (unhex(signed)?, unhex(body)?);
        if signed.len() != SIGNED {
            return None;
        }
        let mut mac = self.0.clone();
        mac.update(&body);
        // Takes the same time wherever the difference is.
        mac.verify_truncated_left(&signed).ok()?;
        let body: TokenBody = serde_json::from_slice(&body).ok()?;
        (tenant.is_none() || body.tenant.as_deref() == tenant).then_some(body.claim)
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use stepwell_engine::store::RunNo;
    use stepwell_kernel::effect::Target;
    use stepwell_kernel::plan::{StepNo, StepRef};

    use super::*;

    #[test]
    fn a_token_is_read_by_its_tenant_and_cannot_be_changed() {
        let tokens = TaskTokens::new(&[7; 32]);
        let claim = RemoteClaim {
            run: RunNo(5),
            run_id: "run_5".into(),
            target: Target::Step(StepRef::first(StepNo(2))),
            name: "ship".into(),
            execution: 3,
            worker: "acme/w".into(),
        };
        let token = tokens.make(Some("acme"), &claim);
        assert_eq!(tokens.open(Some("acme"), &token).as_ref(), Some(&claim));
        assert_eq!(tokens.open(None, &token).as_ref(), Some(&claim));
        assert_eq!(tokens.open(Some("other"), &token), None);
        let other = TaskTokens::new(&[8; 32]);
        assert_eq!(other.open(None, &token), None, "another store");
        let last = token.len() - 1;
        for broken in ["", "t1.", "t1.00.00", &token[..last], &format!("{token}00")] {
            assert_eq!(tokens.open(None, broken), None, "{broken}");
        }
        let mut forged = token.into_bytes();
        forged[last] ^= 1;
        let forged = String::from_utf8(forged).unwrap();
        assert_eq!(tokens.open(None, &forged), None);
    }
}
