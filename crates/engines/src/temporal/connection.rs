//! The connection to a Temporal server: TLS, keys, the namespace, and the search attributes.

use std::time::Duration;

use temporalio_client::tonic::{Code, IntoRequest as _};
use temporalio_client::{
    Client, ClientOptions, ClientTlsOptions, Connection, ConnectionOptions, TlsOptions, Url,
};
use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
use temporalio_common::protos::temporal::api::operatorservice::v1::AddSearchAttributesRequest;
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeNamespaceRequest;

use super::interpreter::{DEFINITION, STATUS, TENANT};
use crate::address::TemporalAddress;
use crate::host_thread::HostError;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

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
    let unreachable = |why: String| {
        HostError::Unreachable(format!(
            "the Temporal server at {} cannot be used: {why}; check the address, and whether the server runs",
            address.host
        ))
    };
    let connected = tokio::time::timeout(CONNECT, Connection::connect(options)).await;
    let connection = match connected {
        Ok(connection) => connection.map_err(|error| unreachable(error.to_string()))?,
        Err(_) => {
            return Err(unreachable(
                "it did not answer within 10 seconds".to_owned(),
            ));
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
        Err(status) => Err(unreachable(status.message().to_owned())),
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
