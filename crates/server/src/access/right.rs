//! The rights that endpoints need, and the roles that have them.

use stepwell_kernel::command::Role;

/// What an endpoint needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// Read runs and everything that belongs to them.
    View,
    /// Start, pause, resume and cancel runs, and deliver events.
    Operate,
    /// Retry and skip steps, register definitions.
    Engineer,
    /// Answer for manual steps and approvals.
    Approve,
    /// Everything that changes the installation.
    Administer,
    /// Take work and report its results.
    Work,
}

impl Right {
    pub const ALL: [Right; 6] = [
        Right::View,
        Right::Operate,
        Right::Engineer,
        Right::Approve,
        Right::Administer,
        Right::Work,
    ];

    /// The name of the right in the OpenAPI document.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Right::View => "view",
            Right::Operate => "operate",
            Right::Engineer => "engineer",
            Right::Approve => "approve",
            Right::Administer => "administer",
            Right::Work => "work",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Right> {
        Right::ALL.into_iter().find(|right| right.name() == name)
    }
}

/// A role that a caller of the server can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ServerRole {
    Viewer,
    Operator,
    Engineer,
    Approver,
    Admin,
    Worker,
}

impl ServerRole {
    pub(crate) const ALL: [ServerRole; 6] = [
        ServerRole::Viewer,
        ServerRole::Operator,
        ServerRole::Engineer,
        ServerRole::Approver,
        ServerRole::Admin,
        ServerRole::Worker,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            ServerRole::Viewer => "viewer",
            ServerRole::Operator => "operator",
            ServerRole::Engineer => "engineer",
            ServerRole::Approver => "approver",
            ServerRole::Admin => "admin",
            ServerRole::Worker => "worker",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<ServerRole> {
        ServerRole::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Whether the role has a right.
    pub(crate) const fn has(self, right: Right) -> bool {
        match self {
            ServerRole::Viewer => matches!(right, Right::View),
            ServerRole::Operator => matches!(right, Right::View | Right::Operate),
            ServerRole::Engineer => {
                matches!(right, Right::View | Right::Operate | Right::Engineer)
            }
            ServerRole::Approver => matches!(right, Right::View | Right::Approve),
            ServerRole::Admin => !matches!(right, Right::Work),
            ServerRole::Worker => matches!(right, Right::Work),
        }
    }

    /// The role that the kernel knows. Approving is no signal: the rules of the step decide who may.
    pub(crate) const fn kernel(self) -> Role {
        match self {
            ServerRole::Viewer | ServerRole::Worker => Role::Viewer,
            ServerRole::Operator | ServerRole::Approver => Role::Operator,
            ServerRole::Engineer => Role::Engineer,
            ServerRole::Admin => Role::Admin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_right_belongs_to_a_role_and_names_read_back() {
        for right in Right::ALL {
            assert_eq!(Right::from_name(right.name()), Some(right));
            assert!(
                ServerRole::ALL.iter().any(|role| role.has(right)),
                "{right:?}"
            );
        }
        for role in ServerRole::ALL {
            assert_eq!(ServerRole::from_name(role.name()), Some(role));
        }
    }

    #[test]
    fn a_worker_reads_nothing_and_an_approver_starts_nothing() {
        assert!(!ServerRole::Worker.has(Right::View));
        assert!(!ServerRole::Approver.has(Right::Operate));
        assert!(!ServerRole::Admin.has(Right::Work));
    }
}
