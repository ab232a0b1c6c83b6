//! Redis Streams. Each run has a stream of its own, `PREFIX` + id of the run, and a message has the id `SEQ-PLACE` in it:
//! a repeat finds itself there and changes nothing. A delivery is written by one script:
//! all of it or nothing.

mod source;

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{RedisConnectionInfo, RedisError};
use stepwell_http::hosts::HostRules;
use tokio::task::JoinHandle;

use crate::address::{AddressFault, BrokerAddress};
use crate::cloud_event::{Format, Message, Prefix};
use crate::credentials::Credentials;
use crate::dial;
use crate::kinds::Surroundings;
use crate::link::{Broker, Failure, Link};

pub(crate) use source::RedisSource;

/// Appends entries, each only if it is not there. `ARGV`: seconds to keep the stream (0: forever), then for each entry its
/// id, the number of its fields, and the fields. An entry whose place has passed comes at the end: a dead letter that is
/// sent once more. So does an entry whose place has other content: a run of another store that has the same id. Returns how
/// many entries are new.
const APPEND: &str = r"
local added, at = 0, 2
while at <= #ARGV do
  local id, count = ARGV[at], tonumber(ARGV[at + 1])
  local fields = {}
  for i = 1, count do fields[i] = ARGV[at + 1 + i] end
  at = at + 2 + count
  local there = redis.call('XRANGE', KEYS[1], id, id)
  local same = #there == 1 and #there[1][2] == count
  for i = 1, count do same = same and there[1][2][i] == fields[i] end
  if not same then
    local added_as = redis.pcall('XADD', KEYS[1], id, unpack(fields))
    if type(added_as) == 'table' and added_as.err then
      if not string.find(added_as.err, 'equal or smaller') then return added_as end
      local last = redis.call('XINFO', 'STREAM', KEYS[1])
      local top = '0'
      for i = 1, #last, 2 do
        if last[i] == 'last-generated-id' then top = string.match(last[i + 1], '^%d+') end
      end
      local late = redis.pcall('XADD', KEYS[1], top .. '-*', unpack(fields))
      if type(late) == 'table' and late.err then return late end
    end
    added = added + 1
  end
end
if tonumber(ARGV[1]) > 0 then redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return added
";

/// Streams of a Redis server.
#[derive(Clone, Debug)]
pub(crate) struct Redis {
    address: BrokerAddress,
    around: Surroundings,
    prefix: String,
    keep: u64,
    format: Format,
}

impl Redis {
    pub(crate) fn new(
        address: BrokerAddress,
        around: &Surroundings,
    ) -> Result<Redis, AddressFault> {
        database(&address)?;
        let keep = match address.param("keep").map(str::parse) {
            None => 0,
            Some(Ok(seconds)) if seconds > 0 => seconds,
            Some(_) => return Err(AddressFault::new("`keep` is a number of seconds")),
        };
        Ok(Redis {
            prefix: address.param("prefix").unwrap_or("stepwell:").to_owned(),
            keep,
            format: Format::of(&address)?,
            around: around.clone(),
            address,
        })
    }
}

/// The number of the database, which the path of the address is.
fn database(address: &BrokerAddress) -> Result<i64, AddressFault> {
    match address.path.as_str() {
        "" => Ok(0),
        path => path.parse().map_err(|_| {
            AddressFault::new("the path is the number of the database: redis://HOST/0")
        }),
    }
}

/// A connection, with the task that drives it.
#[derive(Debug)]
pub(crate) struct RedisConnection {
    pub(crate) commands: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Connects to a server of an address.
pub(crate) async fn connect(
    address: &BrokerAddress,
    around: &Surroundings,
) -> Result<RedisConnection, Failure> {
    let credentials = Credentials::resolve(address, &*around.secrets).await;
    let credentials = credentials.map_err(Failure::Refused)?;
    let mut info = RedisConnectionInfo::default();
    if let Some(user) = &credentials.username {
        info = info.set_username(user);
    }
    if let Some(password) = &credentials.password {
        info = info.set_password(password);
    }
    let number = database(address).map_err(|fault| Failure::Never(fault.to_string()))?;
    info = info.set_db(number);
    let tls = match address.scheme.as_str() {
        "rediss" => Some(Arc::new(dial::tls(address, &credentials)?)),
        _ => None,
    };
    let rules: &HostRules = &around.hosts;
    let stream = dial::connect(address, rules, tls.as_ref()).await?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(around.timeout));
    let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
    let (commands, driver) = opened.map_err(|error| failure(&error))?;
    Ok(RedisConnection {
        commands,
        driver: tokio::spawn(driver),
    })
}

/// What an error of Redis means for a delivery.
fn failure(error: &RedisError) -> Failure {
    let why = format!("Redis: {error}");
    // What concerns every delivery: memory is full, the login fails, the server is not ready.
    let of_all = [
        "OOM",
        "NOAUTH",
        "WRONGPASS",
        "MISCONF",
        "LOADING",
        "READONLY",
        "CLUSTERDOWN",
        "MASTERDOWN",
        "TRYAGAIN",
    ];
    match error.code() {
        Some(code) if !of_all.contains(&code) => Failure::Refused(why),
        _ => Failure::Down(why),
    }
}

impl Broker for Redis {
    type Link = RedisLink;

    fn servers(&self) -> String {
        self.address.servers()
    }

    async fn connect(&self) -> Result<RedisLink, Failure> {
        Ok(RedisLink {
            connection: connect(&self.address, &self.around).await?,
            prefix: self.prefix.clone(),
            keep: self.keep,
            format: self.format,
        })
    }
}

/// A connection to the streams.
#[derive(Debug)]
pub(crate) struct RedisLink {
    connection: RedisConnection,
    prefix: String,
    keep: u64,
    format: Format,
}

impl Link for RedisLink {
    async fn send(&mut self, messages: &[Message], confirmed: &mut usize) -> Result<(), Failure> {
        let Some(first) = messages.first() else {
            return Ok(());
        };
        let mut script = redis::cmd("EVAL");
        script.arg(APPEND).arg(1);
        script
            .arg(format!("{}{}", self.prefix, first.run_id))
            .arg(self.keep);
        for message in messages {
            let fields = fields(message, self.format);
            script.arg(format!("{}-{}", message.seq, message.place));
            script.arg(fields.len() * 2);
            for (name, value) in &fields {
                script.arg(name).arg(value);
            }
        }
        let added: Result<i64, RedisError> =
            script.query_async(&mut self.connection.commands).await;
        added.map_err(|error| failure(&error))?;
        *confirmed += messages.len();
        Ok(())
    }
}

/// The fields of an entry: `event` with the whole CloudEvent, or its attributes and `data`.
fn fields(message: &Message, format: Format) -> Vec<(String, Vec<u8>)> {
    let encoded = message.encode(format, Prefix::Underscore);
    let headers = encoded.headers.into_iter();
    let mut fields: Vec<_> = headers
        .map(|(name, value)| (name, value.into_bytes()))
        .collect();
    let body = match format {
        Format::Structured => "event",
        Format::Binary => "data",
    };
    fields.push((body.to_owned(), encoded.body));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_a_database_and_a_prefix() {
        let open = |text: &str| {
            let address = crate::kinds::sink_address(text)?;
            Redis::new(address, &Surroundings::default())
        };
        let redis = open("redis://h/2?prefix=a:&keep=60").unwrap();
        assert_eq!((redis.prefix.as_str(), redis.keep), ("a:", 60));
        for wrong in [
            "redis://h/x",
            "redis://h?keep=0",
            "redis://h?keep=x",
            "redis://h?format=x",
        ] {
            assert!(open(wrong).is_err(), "{wrong}");
        }
    }
}
