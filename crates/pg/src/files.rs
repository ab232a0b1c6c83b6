//! The password file and the service file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ParameterError;

/// The password of the first line of a password file that fits: `host:port:database:user:password`, where
/// `*` fits everything and a backslash takes the next character as it is. A file that others may read is
/// not used, as with libpq.
pub(crate) fn password(
    file: &Path,
    host: &str,
    port: u16,
    dbname: &str,
    user: &str,
) -> Option<String> {
    if is_open_to_others(file) {
        return None;
    }
    let text = fs::read_to_string(file).ok()?;
    let port = port.to_string();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let fields = fields(line);
            let [f_host, f_port, f_dbname, f_user, password] = &fields[..] else {
                return None;
            };
            let fits = |field: &str, value: &str| field == "*" || field == value;
            let all = fits(f_host, host)
                && fits(f_port, &port)
                && fits(f_dbname, dbname)
                && fits(f_user, user);
            all.then(|| password.clone())
        })
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let last = fields.len() - 1;
        match c {
            '\\' => fields[last].extend(chars.next()),
            // A password may hold colons: it is the rest of the line.
            ':' if last < 4 => fields.push(String::new()),
            c => fields[last].push(c),
        }
    }
    fields
}

/// Whether somebody else than the owner may read a file.
#[cfg(unix)]
pub(crate) fn is_open_to_others(file: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(seen) = fs::metadata(file) else {
        return false;
    };
    // A file of root may be shared with a group.
    let allowed = if seen.uid() == 0 { 0o740 } else { 0o700 };
    seen.mode() & 0o777 & !allowed != 0
}

#[cfg(not(unix))]
pub(crate) fn is_open_to_others(_file: &Path) -> bool {
    false
}

/// The parameters of a service, out of the first file that names it.
pub(crate) fn service(
    name: &str,
    places: &[PathBuf],
) -> Result<Vec<(String, String)>, ParameterError> {
    for place in places {
        let Ok(text) = fs::read_to_string(place) else {
            continue;
        };
        let mut found = None;
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                if found.is_some() {
                    break;
                }
                found = (section == name).then(Vec::new);
            } else if let Some(values) = &mut found
                && !line.is_empty()
                && !line.starts_with('#')
            {
                let (name, value) = line.split_once('=').ok_or_else(|| {
                    let place = place.display();
                    ParameterError(format!(
                        "a line of the service file {place} is not name=value"
                    ))
                })?;
                values.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
        if let Some(found) = found {
            return Ok(found);
        }
    }
    let places: Vec<String> = places.iter().map(|it| it.display().to_string()).collect();
    Err(ParameterError(format!(
        "the service {name:?} is not defined in {}; add a section [{name}] or leave `service` out",
        places.join(" or ")
    )))
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pgpass");
        let text = "# all\ndb:5432:orders:me:first\n*:*:*:me:se\\:c:ond\n";
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let ask = |host: &str, user: &str| password(&file, host, 5432, "orders", user);
        assert_eq!(ask("db", "me").as_deref(), Some("first"));
        assert_eq!(ask("other", "me").as_deref(), Some("se:c:ond"));
        assert_eq!(ask("db", "you"), None);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(
            ask("db", "me"),
            None,
            "a file that others may read is not used"
        );
    }
}
