//! The connection to a Temporal server: TLS, keys, the namespace, and the search attributes.

use std::time::Duration;

use temporalio_client::errors::ClientConnectError;
use temporalio_client::tonic::{Code, IntoRequest as _, Status};
use temporalio_client::{
    Client, ClientOptions, ClientTlsOptions, Connection, ConnectionOptions, TlsOptions, Url,
};
use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
use temporalio_common::protos::temporal::api::operatorservice::v1::AddSearchAttributesRequest;
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeNamespaceRequest;

use super::interpreter::{DEFINITION, STATUS, TENANT};
use crate::address::TemporalAddress;
use crate::faults::{connect_fault, denied, plain};
use crate::host_thread::{HostError, HostHealth};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How clients say that the other side has closed the connection. "operation was canceled" is said of a request that was not sent
/// yet, "transport error" of any other end of the connection.
const CLOSED: [&str; 5] = [
    "connection closed",
    "ConnectionReset",
    "BrokenPipe",
    "operation was canceled",
    "transport error",
];
/// A server that closes connections with TLS so many times, one after the other, refuses this client; one that is killed does not
/// listen the next time.
const CLOSES: (usize, Duration) = (3, Duration::from_millis(200));
/// How often the server is asked whether it answers, and how long that may take.
const HEALTH: Duration = Duration::from_secs(2);
const HEALTH_ANSWER: Duration = Duration::from_secs(3);

fn file(path: &str) -> Result<Vec<u8>, HostError> {
    std::fs::read(path)
        .map_err(|error| HostError::Address(format!("the file {path:?} cannot be read: {error}")))
}

/// Connects, and makes sure that the namespace is there.
pub(super) async fn connect(
    address: &TemporalAddress,
    identity: &str,
) -> Result<Client, HostError> {
    let scheme = match address.tls {
        true => "https",
        false => "http",
    };
    let url = Url::parse(&format!("{scheme}://{}", address.host))
        .map_err(|error| HostError::Address(format!("{:?}: {error}", address.host)))?;
    let tls = match address.tls {
        true => Some(tls_options(address)?),
        false => None,
    };
    let api_key = match &address.api_key_env {
        Some(name) => Some(std::env::var(name).map_err(|_| {
            HostError::Address(format!(
                "the variable {name} of the environment has no API key; set it, or leave out api_key_env"
            ))
        })?),
        None => None,
    };
    let options = ConnectionOptions::new(url)
        .identity(identity.to_owned())
        .connect_timeout(CONNECT)
        .maybe_tls_options(tls)
        .maybe_api_key(api_key)
        .build();
    let place = format!("the Temporal server at {}", address.host);
    let unreachable = |why: String| connect_fault(&place, &why);
    let mut closes = 0;
    let connection = loop {
        let connected = tokio::time::timeout(CONNECT, Connection::connect(options.clone())).await;
        match connected {
            Ok(Err(ClientConnectError::SystemInfoCallError(status))) => {
                closes += 1;
                if address.tls && is_closed(&status) && closes < CLOSES.0 {
                    tokio::time::sleep(CLOSES.1).await;
                    continue;
                }
                return Err(refused(&place, address, &status));
            }
            Ok(connection) => break connection.map_err(|error| unreachable(causes(&error)))?,
            Err(_) => {
                return Err(unreachable(
                    "it did not answer within 10 seconds".to_owned(),
                ));
            }
        }
    };
    let client = Client::new(connection, ClientOptions::new(&*address.namespace).build())
        .map_err(|error| unreachable(error.to_string()))?;
    let asked = DescribeNamespaceRequest {
        namespace: address.namespace.clone(),
        ..Default::default()
    };
    let described = client
        .connection()
        .workflow_service()
        .describe_namespace(asked.into_request())
        .await;
    match described {
        Ok(_) => Ok(client),
        Err(status) if status.code() == Code::NotFound => Err(unreachable(format!(
            "it has no namespace {:?}",
            address.namespace
        ))),
        // A key may be allowed to run workflows and not to describe the namespace.
        Err(status) if status.code() == Code::PermissionDenied => Ok(client),
        Err(status) => Err(refused(&place, address, &status)),
    }
}

fn is_closed(status: &Status) -> bool {
    let said = format!("{status:?}");
    CLOSED.iter().any(|it| said.contains(it))
}

/// Why a call failed: the server does not know who this process is, or did not answer.
fn refused(place: &str, address: &TemporalAddress, status: &Status) -> HostError {
    let said = format!("{status:?}");
    let has = |words: &[&str]| words.iter().any(|it| said.contains(it));
    // The causes may have what TLS says.
    if let error @ HostError::Tls(_) = connect_fault(place, &said) {
        return error;
    }
    let is_closed = is_closed(status);
    match status.code() {
        // A proxy before the server answers in HTTP.
        _ if has(&["status: 401", "status: 403"]) => {
            denied(place, "a proxy before it refuses the key")
        }
        Code::Unauthenticated | Code::PermissionDenied => denied(place, status.message()),
        // TLS 1.3 refuses a client after the handshake, and the client sees only that the connection is closed.
        _ if is_closed && address.tls => HostError::Tls(format!(
            "{place} closes the connection after the handshake: {}",
            match address.client {
                Some(_) =>
                    "it does not accept the certificate of this client: check `cert=FILE`, and which authority it trusts",
                None =>
                    "it asks for a certificate of this client: give it with `cert=FILE` and `key=FILE`",
            }
        )),
        _ if is_closed => connect_fault(
            place,
            "it closes the connection: it is no Temporal server, or wants TLS (`?tls=true`)",
        ),
        _ => connect_fault(place, status.message()),
    }
}

/// What an error is about: what TLS says behind it, or the last of its causes.
fn causes(error: &ClientConnectError) -> String {
    match connect_fault("", &format!("{error:?}")) {
        HostError::Tls(_) => format!("{error:?}"),
        _ => {
            let mut last: &dyn std::error::Error = error;
            while let Some(cause) = last.source() {
                last = cause;
            }
            last.to_string()
        }
    }
}

/// Asks the server again and again whether it answers.
pub(super) async fn watch_health((client, namespace): (Client, String), health: HostHealth) {
    loop {
        tokio::time::sleep(HEALTH).await;
        let asked = DescribeNamespaceRequest {
            namespace: namespace.clone(),
            ..Default::default()
        };
        let mut service = client.connection().workflow_service();
        let described = service.describe_namespace(asked.into_request());
        match tokio::time::timeout(HEALTH_ANSWER, described).await {
            Ok(Ok(_)) => health.answers(),
            Ok(Err(status)) if status.code() == Code::PermissionDenied => health.answers(),
            Ok(Err(status)) => health.fails(plain(status.message())),
            Err(_) => health.fails("it does not answer".to_owned()),
        }
    }
}

fn tls_options(address: &TemporalAddress) -> Result<TlsOptions, HostError> {
    let ca = address.ca.as_deref().map(file).transpose()?;
    let client = match &address.client {
        Some((cert, key)) => Some(
            ClientTlsOptions::builder()
                .client_cert(file(cert)?)
                .client_private_key(file(key)?)
                .build(),
        ),
        None => None,
    };
    Ok(TlsOptions::builder()
        .maybe_server_root_ca_cert(ca)
        .maybe_domain(address.server_name.clone())
        .maybe_client_tls_options(client)
        .build())
}

/// Registers the search attributes. Says whether the server knows them.
pub(super) async fn register_attributes(client: &Client, namespace: &str) -> bool {
    let keyword = IndexedValueType::Keyword as i32;
    let names = [STATUS.name(), TENANT.name(), DEFINITION.name()];
    let request = AddSearchAttributesRequest {
        search_attributes: names
            .iter()
            .map(|name| ((*name).to_owned(), keyword))
            .collect(),
        namespace: namespace.to_owned(),
    };
    let added = client
        .connection()
        .operator_service()
        .add_search_attributes(request.into_request())
        .await;
    match added {
        Ok(_) => true,
        Err(status) if status.code() == Code::AlreadyExists => true,
        Err(status) => {
            tracing::warn!(
                why = status.message(),
                "the search attributes StepwellStatus, StepwellTenant and StepwellDefinition cannot be registered; runs have none"
            );
            false
        }
    }
}
