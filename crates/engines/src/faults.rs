//! Why an engine outside cannot be used, from what its client says: certificates and keys that do not fit are told apart from a
//! server that is away, since waiting does not help there.

use crate::host_thread::HostError;

/// What clients say about certificates, what it means, and whose certificate it is.
const CERTIFICATES: [(&[&str], &str); 7] = [
    (
        &["UnknownIssuer"],
        "nobody vouches for the certificate of the server that is known here: give its authority with `ca=FILE`",
    ),
    (
        &["NotValidForName"],
        "the certificate of the server is for another name: write the name as the host of the address, or for Temporal as \
         `server_name=NAME`",
    ),
    (
        &["Expired", "NotValidYet"],
        "the certificate of the server is not valid at this time",
    ),
    (
        &["CertificateRequired", "No required SSL certificate"],
        "the server asks for a certificate of this client: give it with `cert=FILE` and `key=FILE`",
    ),
    (
        &[
            "AlertReceived(UnknownCA)",
            "AlertReceived(BadCertificate)",
            "AlertReceived(CertificateUnknown)",
            "AlertReceived(CertificateExpired)",
            "AlertReceived(CertificateRevoked)",
            "AlertReceived(DecryptError)",
            "AlertReceived(AccessDenied)",
            "AlertReceived(UnsupportedCertificate)",
            "The SSL certificate error",
        ],
        "the server does not accept the certificate of this client: check `cert=FILE`, and which authority the server trusts",
    ),
    (
        &["InvalidContentType", "InvalidMessage("],
        "the server does not speak TLS at this port: leave out the options of TLS, or use another port",
    ),
    (
        &["InvalidCertificate(", "AlertReceived("],
        "the certificates of the server and of this client do not fit together",
    ),
];

/// What clients say about a server that is away or is another one, and what it means.
const AWAY: [(&[&str], &str); 3] = [
    (
        &["ConnectionRefused", "Connection refused"],
        "nothing listens there (connection refused)",
    ),
    (
        &[
            "failed to lookup address",
            "dns error",
            "DNS resolution error",
        ],
        "the name of its host is not known (DNS)",
    ),
    (
        &["http2 error", "received unexpected message from connection"],
        "what listens there speaks another protocol",
    ),
];

/// The error that fits what a client says, with the place of the server. `said` has every cause, as `Debug` shows it.
pub(crate) fn connect_fault(place: &str, said: &str) -> HostError {
    for (words, meaning) in CERTIFICATES {
        if words.iter().any(|word| said.contains(word)) {
            return HostError::Tls(format!("{place} cannot be used: {meaning}"));
        }
    }
    let said = plain(said);
    HostError::Unreachable(format!(
        "{place} cannot be used: {said}; check the address, and whether the server runs"
    ))
}

/// What a client says about a server that does not answer, in one line and in plain words where they are known.
pub(crate) fn plain(said: &str) -> String {
    for (words, meaning) in AWAY {
        if words.iter().any(|word| said.contains(word)) {
            return meaning.to_owned();
        }
    }
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The server does not accept who this process says it is.
pub(crate) fn denied(place: &str, why: &str) -> HostError {
    HostError::Denied(format!(
        "{place} refuses this process: {why}; check the key or the token in the variable of the environment that the address \
         names, and its rights"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_told_apart_from_a_server_that_is_away() {
        for (said, code, part) in [
            (
                "transport error: InvalidCertificate(UnknownIssuer)",
                "ENGINE_TLS",
                "ca=FILE",
            ),
            (
                "AlertReceived(CertificateRequired)",
                "ENGINE_TLS",
                "cert=FILE",
            ),
            ("AlertReceived(UnknownCA)", "ENGINE_TLS", "does not accept"),
            (
                "InvalidMessage(InvalidContentType)",
                "ENGINE_TLS",
                "speak TLS",
            ),
            ("AlertReceived(InternalError)", "ENGINE_TLS", "do not fit"),
            ("it said\nno", "ENGINE_UNREACHABLE", "it said no; check"),
            (
                "Os { code: 111, kind: ConnectionRefused }",
                "ENGINE_UNREACHABLE",
                "nothing listens there",
            ),
            (
                "h2 protocol error: http2 error",
                "ENGINE_UNREACHABLE",
                "another protocol",
            ),
        ] {
            let error = connect_fault("the server at h:1", said);
            assert_eq!(error.code(), code, "{said}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
